package org.onnxreg.client;

import java.math.BigInteger;
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
    /** The processor family of each ABI with another name. Names of instruction sets begin with the family. */
    private static final Map<String, String> FAMILIES = new HashMap<>();

    static {
        Values.keys("arm64-v8a aarch64 arm64e").forEach(abi -> FAMILIES.put(abi, "arm64"));
        Values.keys("amd64 x86-64 x64").forEach(abi -> FAMILIES.put(abi, "x86_64"));
        Values.keys("armeabi-v7a armv7l").forEach(abi -> FAMILIES.put(abi, "arm"));
        FAMILIES.put("wasm32", "wasm");
    }

    private final RuntimeRelease release;
    private final MinimalBuild build;
    private final List<String> providers;
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
        providers = Values.field(fields, "providers", Values::texts, Collections.singletonList("CPU"));
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

    /** Fill in the fields of a device document that an expression may test. */
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
     * Test the requirements on an artifact. The operator set of an artifact that meets all others is read.
     *
     * @param missing the bytes of its download that are not here yet
     * @param context the tokens that a decoder keeps; null for its longest context
     * @param operatorSets the operator sets by their digests, as JSON
     */
    void test(Artifact artifact, long missing, Long context, Function<String, Object> operatorSets, Miss miss) {
        String loads = "ONNX Runtime " + release + " loads ";
        miss.unless(!artifact.format.equals("openvino-ir"), "runtime", () ->
                "is " + artifact.format + ", which is not for ONNX Runtime");
        Object format = artifact.value.get("ort_format");
        double number = artifact.number("ort_format", OLDEST_ORT_FORMAT);
        miss.unless(artifact.isOrt() || build == null, "ort-format", () ->
                "is ONNX, a minimal build loads only ORT format");
        miss.unless(!artifact.isOrt() || format != null, "ort-format", () ->
                "is of an ORT format whose number is not recorded");
        miss.unless(number >= OLDEST_ORT_FORMAT && number <= release.ortFormat(), "ort-format", () ->
                "is of ORT format " + format + ", " + loads + OLDEST_ORT_FORMAT + " to " + release.ortFormat());
        Object opset = artifact.value.get("opset");
        miss.unless(opset != null, "opset", () -> "has an opset that is not recorded");
        miss.unless(artifact.number("opset", 0) <= release.opset(), "opset", () ->
                "has opset " + opset + ", " + loads + "up to " + release.opset());
        double version = artifact.isOrt() ? 0 : artifact.number("ir_version", 0);
        miss.unless(version <= release.irVersion(), "ir-version", () ->
                "has ONNX IR version " + (long) version + ", " + loads + "up to " + release.irVersion());
        List<String> unknown = new ArrayList<>(artifact.texts("domains"));
        unknown.removeAll(domains);
        miss.unless(build != null || unknown.isEmpty(), "domain", () ->
                "needs operators of " + String.join(" and ", unknown));
        List<String> usable = usableProviders(artifact);
        miss.unless(usable.stream().anyMatch(this::hasProvider), "provider", () ->
                "runs on " + String.join(" and ", usable) + ", this build on "
                        + (providers.isEmpty() ? "nothing" : String.join(" and ", providers)));
        testMemory(artifact, context, miss);
        miss.unless(missing <= freeSpace, "space", () ->
                "needs " + missing + " bytes of " + freeSpace + " that are free");
        double latency = latency(artifact);
        miss.unless(latency <= maxLatencyRatio, "latency", () -> latency == Double.POSITIVE_INFINITY
                ? "has no measured latency on such a device"
                : "takes " + Values.figure(latency, 3) + " times as long as full precision, at most "
                        + Values.figure(maxLatencyRatio, 6) + " is wanted");
        if (!artifact.format.equals("webgpu")) { // the table of contrib operators is of the CPU
            List<String> needs = artifact.texts("contrib");
            boolean isRecorded = !needs.isEmpty() || !artifact.texts("domains").contains(Contrib.DOMAIN);
            miss.unless(isRecorded, "contrib", () -> "has contrib operators that are not recorded");
            String problem = Contrib.problem(release, needs);
            miss.unless(problem == null, "contrib", () -> problem);
        }
        if (build != null && miss.code == null) {
            String operators = artifact.text("operators");
            miss.unless(operators != null, "operators", () -> "has operators that are not recorded");
            if (operators != null) {
                build.test(operatorSets.apply(operators), miss);
            }
        }
    }

    /** Return true if an artifact is known to be slower than full precision on a device like this. */
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

    /** Return the providers that run an artifact. Every artifact except one for WebGPU also runs on the CPU. */
    private static List<String> usableProviders(Artifact artifact) {
        List<String> names = new ArrayList<>(artifact.texts("providers"));
        if (!artifact.format.equals("webgpu")) {
            names.add(0, "CPU");
        } else if (names.isEmpty()) {
            names.add("WebGPU");
        }
        return names;
    }

    private boolean hasProvider(String name) {
        return providers.stream().anyMatch(each -> provider(each).equals(provider(name)));
    }

    /** Test that the weights fit into memory, together with the keys and values of a decoder. */
    private void testMemory(Artifact artifact, Long context, Miss miss) {
        Map<String, Object> cache = artifact.mapping("kv_cache");
        long weights = artifact.weights();
        long perToken = cache.isEmpty() ? 0 : Values.count(cache.get("bytes_per_token"));
        long tokens = cache.isEmpty() ? 0 : context == null ? Values.count(cache.get("max_tokens")) : context;
        BigInteger bytes = BigInteger.valueOf(perToken).multiply(BigInteger.valueOf(tokens))
                .add(BigInteger.valueOf(weights));
        String parts = cache.isEmpty() ? ""
                : ": " + weights + " of weights, and " + perToken + " for each of " + tokens + " tokens";
        miss.unless(bytes.compareTo(BigInteger.valueOf(ram)) <= 0, "ram", () ->
                "has " + bytes + " bytes to hold in " + ram + " bytes of memory" + parts);
    }

    /** Return one name for the names of a provider: NnapiExecutionProvider is NNAPI, and WASM is the CPU. */
    private static String provider(String name) {
        String brief = name.toLowerCase(Locale.ROOT).replaceFirst("executionprovider$", "");
        return brief.equals("wasm") ? "cpu" : brief;
    }
}
