package org.onnxreg.client;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;

/** The requirements of a device document: docs/resolve.md, "Device". */
final class DeviceRules {
    private static final String KEYS =
            "name ort build operators providers domains platform abi ram free_space locale app_version";
    private static final int OLDEST_ORT_FORMAT = 5;

    private final RuntimeRelease release;
    private final MinimalBuild build;
    private final Set<String> providers = new HashSet<String>();
    private final Set<String> domains = new HashSet<String>();
    private final long ram;
    private final long freeSpace;

    DeviceRules(Object document) {
        Fields fields = new Fields(document, "a device", KEYS);
        for (String key : Values.keys("name platform abi locale")) {
            fields.text(key, null);
        }
        if (fields.text("app_version", null) != null) {
            Version.parse(fields.text("app_version", null));
        }
        release = RuntimeRelease.parse(fields.text("ort", ""));
        release.opset();
        String kind = fields.text("build", "full");
        if (!kind.equals("full") && !kind.equals("minimal")) {
            throw new InputException("build: write full or minimal");
        }
        String config = fields.text("operators", null);
        if (kind.equals("minimal") != (config != null)) {
            throw new InputException("operators and a minimal build belong together");
        }
        build = config == null ? null : MinimalBuild.read(config);
        Collections.addAll(domains, "ai.onnx", "ai.onnx.ml", Contrib.DOMAIN);
        domains.addAll(fields.texts("domains"));
        List<String> names = fields.isAbsent("providers") ? Collections.singletonList("CPU")
                : fields.texts("providers");
        for (String name : names) {
            providers.add(provider(name));
        }
        ram = fields.size("ram");
        freeSpace = fields.size("free_space");
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
     */
    String unmet(Artifact artifact, Long context, OperatorSets operatorSets) {
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
        return unmetOperators(artifact, operatorSets);
    }

    private boolean loadsFormat(Artifact artifact) {
        if (!artifact.isOrt()) {
            return build == null;
        }
        double number = artifact.number("ort_format", -1);
        return number >= OLDEST_ORT_FORMAT && number <= release.ortFormat();
    }

    private boolean hasProvider(Artifact artifact) {
        List<String> names = new ArrayList<String>(artifact.texts("providers"));
        if (!artifact.format.equals("webgpu")) {
            names.add("CPU");
        } else if (names.isEmpty()) {
            names.add("WebGPU");
        }
        for (String name : names) {
            if (providers.contains(provider(name))) {
                return true;
            }
        }
        return false;
    }

    private String unmetOperators(Artifact artifact, OperatorSets operatorSets) {
        if (!runsContrib(artifact)) {
            return "contrib";
        }
        if (build == null) {
            return null;
        }
        String operators = artifact.text("operators");
        return operators == null ? "operators" : build.shortfall(operatorSets.read(operators));
    }

    /** What is not recorded is not proven. The table is of the CPU: an artifact for WebGPU is not tested. */
    private boolean runsContrib(Artifact artifact) {
        List<String> needs = artifact.texts("contrib");
        if (artifact.format.equals("webgpu")) {
            return true;
        }
        boolean isRecorded = !needs.isEmpty() || !artifact.texts("domains").contains(Contrib.DOMAIN);
        return isRecorded && Contrib.meets(release, needs);
    }

    /** NnapiExecutionProvider and NNAPI are the same, and WASM is the CPU. */
    private static String provider(String name) {
        String lower = name.toLowerCase(Locale.ROOT);
        String ending = "executionprovider";
        String brief = lower.endsWith(ending) ? lower.substring(0, lower.length() - ending.length()) : lower;
        return brief.equals("wasm") ? "cpu" : brief;
    }
}
