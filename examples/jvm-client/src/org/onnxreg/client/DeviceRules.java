package org.onnxreg.client;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
import java.util.stream.Stream;

/** The requirements of a device document: docs/resolve.md, "Device". */
final class DeviceRules {
    private static final String KEYS =
            "name ort build operators providers domains"
            + " platform abi ram free_space locale app_version max_latency_ratio";
    private static final List<String> BUILT_IN = Arrays.asList("ai.onnx", "ai.onnx.ml", Contrib.DOMAIN);
    private static final int OLDEST_ORT_FORMAT = 5;
    /** The family of processors, as instruction sets begin with it, of an ABI with another name. */
    private static final Map<String, String> FAMILIES = new HashMap<>();

    static {
        Values.keys("arm64-v8a aarch64 arm64e").forEach(abi -> FAMILIES.put(abi, "arm64"));
        Values.keys("amd64 x86-64 x64").forEach(abi -> FAMILIES.put(abi, "x86_64"));
        Values.keys("armeabi-v7a armv7l").forEach(abi -> FAMILIES.put(abi, "arm"));
        FAMILIES.put("wasm32", "wasm");
    }

    private final RuntimeRelease release;
    private final MinimalBuild build;
    private final Set<String> providers = new HashSet<>();
    private final Set<String> domains = new HashSet<>(BUILT_IN);
    private final long ram;
    private final long freeSpace;
    private final double maxLatencyRatio;
    /** The family of the device's processor; null if it is not known. */
    private final String family;

    DeviceRules(Object document) {
        Map<String, Object> fields = Values.fields(document, "a device", KEYS);
        for (String key : Values.keys("name platform locale")) {
            Values.field(fields, key, Values::text, null);
        }
        Values.field(fields, "app_version", Version::parse, null);
        release = RuntimeRelease.parse(Values.field(fields, "ort", Values::text, ""));
        release.opset();
        String kind = Values.field(fields, "build", Values::text, "full");
        if (!kind.equals("full") && !kind.equals("minimal")) {
            throw RegException.input("build: write full or minimal");
        }
        String config = Values.field(fields, "operators", Values::text, null);
        if (kind.equals("minimal") != (config != null)) {
            throw RegException.input("operators and a minimal build belong together");
        }
        build = config == null ? null : new MinimalBuild(config);
        domains.addAll(Values.field(fields, "domains", Values::texts, Collections.emptyList()));
        for (String name : Values.field(fields, "providers", Values::texts, Collections.singletonList("CPU"))) {
            providers.add(provider(name));
        }
        ram = Values.field(fields, "ram", Values::size, Long.MAX_VALUE);
        freeSpace = Values.field(fields, "free_space", Values::size, Long.MAX_VALUE);
        maxLatencyRatio = Values.field(
                fields, "max_latency_ratio", Values::positive, Double.POSITIVE_INFINITY);
        String abi = Values.field(fields, "abi", Values::text, null);
        family = abi == null ? null : family(abi);
    }

    /** Return the family of processors of an ABI. */
    static String family(String abi) {
        String name = abi.toLowerCase(Locale.ROOT);
        return FAMILIES.getOrDefault(name, name);
    }

    /** Complete the fields of a device document, as an expression tests them. */
    void complete(Map<String, Object> fields) {
        String ort = Values.text(fields.get("ort"));
        fields.put("ort", ort.indexOf('.') == ort.lastIndexOf('.') ? ort + ".0" : ort);
        fields.put("build", build == null ? "full" : "minimal");
        if (fields.get("providers") == null) {
            fields.put("providers", Collections.singletonList("CPU"));
        }
        fields.put("ram", ram == Long.MAX_VALUE ? null : ram);
        fields.put("free_space", freeSpace == Long.MAX_VALUE ? null : freeSpace);
    }

    /**
     * Return the code of the first requirement that an artifact does not meet; null if it meets all.
     *
     * @param context the tokens that a decoder keeps; null for its longest context
     * @param operatorSets the operator sets by their digests, as JSON
     */
    String unmet(Artifact artifact, Long context, Function<String, Object> operatorSets) {
        if (artifact.format.equals("openvino-ir")) {
            return "runtime";
        }
        if (!loadsFormat(artifact)) {
            return "ort-format";
        }
        if (artifact.number("opset", Double.POSITIVE_INFINITY) > release.opset()) {
            return "opset";
        }
        if (!artifact.isOrt() && artifact.number("ir_version", 0) > release.irVersion()) {
            return "ir-version";
        }
        if (build == null && !domains.containsAll(artifact.texts("domains"))) {
            return "domain";
        }
        if (!hasProvider(artifact)) {
            return "provider";
        }
        if (artifact.memory(context) > ram) {
            return "ram";
        }
        if (artifact.download > freeSpace) {
            return "space";
        }
        if (latency(artifact) > maxLatencyRatio) {
            return "latency";
        }
        if (!runsContrib(artifact)) {
            return "contrib";
        }
        if (build == null) {
            return null;
        }
        String operators = artifact.text("operators");
        return operators == null ? "operators" : build.shortfall(operatorSets.apply(operators));
    }

    /** Return true if an artifact is known to be slower than full precision on such a device. */
    boolean isSlow(Artifact artifact) {
        return speeds(artifact).anyMatch(speed -> Values.number(speed.get("low")) > 1);
    }

    /** Return the largest measured ratio to the latency in full precision; infinity if none is known. */
    private double latency(Artifact artifact) {
        double unknown = artifact.precision.equals("float32") ? 1 : Double.POSITIVE_INFINITY;
        return speeds(artifact).mapToDouble(speed -> Values.number(speed.get("ratio"))).max().orElse(unknown);
    }

    /** Return the speeds with ONNX Runtime on processors of the device's family, or of any family. */
    private Stream<Map<String, Object>> speeds(Artifact artifact) {
        return artifact.speeds().stream()
                .filter(speed -> Values.text(speed.get("runtime")).startsWith("onnxruntime"))
                .filter(speed -> family == null
                        || family.equals(Values.text(speed.get("isa")).split("\\+", 2)[0]));
    }

    private boolean loadsFormat(Artifact artifact) {
        if (!artifact.isOrt()) {
            return build == null;
        }
        double number = artifact.number("ort_format", -1);
        return number >= OLDEST_ORT_FORMAT && number <= release.ortFormat();
    }

    private boolean hasProvider(Artifact artifact) {
        List<String> names = new ArrayList<>(artifact.texts("providers"));
        if (!artifact.format.equals("webgpu")) {
            names.add("CPU");
        } else if (names.isEmpty()) {
            names.add("WebGPU");
        }
        return names.stream().anyMatch(name -> providers.contains(provider(name)));
    }

    /** What is not recorded is not proven. The table is of the CPU: an artifact for WebGPU is not tested. */
    private boolean runsContrib(Artifact artifact) {
        List<String> needs = artifact.texts("contrib");
        boolean isRecorded = !needs.isEmpty() || !artifact.texts("domains").contains(Contrib.DOMAIN);
        return artifact.format.equals("webgpu") || (isRecorded && Contrib.meets(release, needs));
    }

    /** NnapiExecutionProvider and NNAPI are the same, and WASM is the CPU. */
    private static String provider(String name) {
        String brief = name.toLowerCase(Locale.ROOT).replaceFirst("executionprovider$", "");
        return brief.equals("wasm") ? "cpu" : brief;
    }
}
