package org.onnxreg.client;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;

/** The summary of a version, made from its manifest as docs/format.md specifies. */
final class Summary {
    private static final String RECALL = "character_recall/";
    private static final int MAX_METRICS = 32;
    private static final List<String> KEYS = Values.keys("manifest size files task family license artifacts");
    private static final List<String> ARTIFACT_KEYS = Values.keys(
            "format precision path digest size state files opset ort_format operators providers recall"
            + " ir_version domains member contract contrib kv_cache metrics preferred");

    private Summary() {}

    /** Return true if an index file's summary agrees with the one from the manifest. It may have more keys. */
    static boolean agrees(Map<String, Object> summary, Map<String, Object> derived) {
        Map<String, Object> comparable = copy(summary, KEYS);
        comparable.put("artifacts",
                Values.each(summary.get("artifacts"), item -> copy(Values.mapping(item), ARTIFACT_KEYS)));
        return comparable.equals(derived);
    }

    /** Make the summary of a manifest with a digest and a size. */
    static Map<String, Object> of(Map<String, Object> manifest, String digest, long size) {
        Map<String, Object> summary = new LinkedHashMap<>();
        summary.put("manifest", digest);
        summary.put("size", size);
        for (String key : Values.keys("task family license")) {
            put(summary, key, manifest.get(key));
        }
        Map<String, Object> family = Values.mappingOrEmpty(manifest.get("model_family"));
        Map<String, String> owners = owners(family);
        List<Object> artifacts = new ArrayList<>();
        for (Map<String, Object> artifact : Values.mappings(manifest.get("artifacts"))) {
            String path = Values.text(artifact.get("path"));
            if (family.isEmpty() || owners.containsKey(path)) {
                artifacts.add(artifact(manifest, artifact, owners.get(path)));
            }
        }
        summary.put("artifacts", artifacts);
        summary.put("files", files(manifest.get("files")));
        return summary;
    }

    /** Return the stage of each artifact that the summary shows; null for the backbone. */
    private static Map<String, String> owners(Map<String, Object> family) {
        Map<String, String> owners = new HashMap<>();
        for (Map<String, Object> member : Values.mappingsOrEmpty(family.get("members"))) {
            boolean isStage = "stage".equals(member.get("role"));
            if (isStage || "backbone".equals(member.get("role"))) {
                for (String path : Values.textsOrEmpty(member.get("artifacts"))) {
                    owners.put(path, isStage ? Values.text(member.get("name")) : null);
                }
            }
        }
        return owners;
    }

    private static Map<String, Object> artifact(
            Map<String, Object> manifest, Map<String, Object> artifact, String member) {
        Map<String, Object> metadata = Values.mappingOrEmpty(artifact.get("metadata"));
        Map<String, Object> certification = Values.mappingOrEmpty(artifact.get("certification"));
        List<Map<String, Object>> operators = Values.mappingsOrEmpty(artifact.get("operators"));
        Map<String, Object> summary = copy(artifact, Values.keys("format precision path digest size"));
        summary.put("state", certification.getOrDefault("state", "unknown"));
        put(summary, "files", files(artifact.get("files")));
        put(summary, "opset", metadata.get("opset"));
        put(summary, "ort_format", artifact.get("ort_format"));
        put(summary, "operators", operators.isEmpty() ? null : Sha256.of(JsonWriter.write(operators)));
        put(summary, "providers", metadata.get("execution_providers"));
        put(summary, "ir_version", artifact.get("ir_version"));
        TreeSet<String> domains = new TreeSet<>();
        operators.forEach(operator -> domains.add(Values.text(operator.get("domain"))));
        domains.remove("ai.onnx");
        put(summary, "domains", new ArrayList<>(domains));
        put(summary, "member", member);
        put(summary, "contract", Contract.of(manifest, metadata));
        put(summary, "kv_cache", artifact.get("kv_cache"));
        put(summary, "contrib", artifact.get("contrib"));
        Object suite = Values.mappingOrEmpty(certification.get("evidence")).get("suite");
        putFigures(summary, Values.mappingsOrEmpty(artifact.get("checks")), suite);
        Map<String, Object> recipe = Values.mappingOrEmpty(manifest.get("recipe"));
        Object search = Values.mappingOrEmpty(recipe.get("parameters")).get("search");
        if (search instanceof Map && artifact.get("path").equals(((Map<?, ?>) search).get("output"))) {
            summary.put("preferred", true);
        }
        return summary;
    }

    private static List<Object> files(Object value) {
        return new ArrayList<>(Values.each(Values.mappingsOrEmpty(value),
                file -> copy(Values.mapping(file), Values.keys("role path digest size"))));
    }

    /** Put the recall of each label, and the other figures on the suite of the certification. */
    private static void putFigures(
            Map<String, Object> summary, List<Map<String, Object>> checks, Object suite) {
        Map<String, Object> recalls = new LinkedHashMap<>();
        Map<String, Object> metrics = new LinkedHashMap<>();
        int count = 0;
        for (Map<String, Object> check : checks) {
            String name = Values.text(check.get("name"));
            Object value = check.get("value");
            if (value != null && name.startsWith(RECALL)) {
                recalls.put(name.substring(RECALL.length()), value);
            } else if (value != null && suite != null && suite.equals(check.get("dataset"))
                    && count++ < MAX_METRICS) {
                metrics.put(name, value);
            }
        }
        put(summary, "recall", recalls);
        put(summary, "metrics", metrics);
    }

    /** Put a value that is neither null nor empty. */
    private static void put(Map<String, Object> table, String key, Object value) {
        boolean isEmpty = (value instanceof List && ((List<?>) value).isEmpty())
                || (value instanceof Map && ((Map<?, ?>) value).isEmpty());
        if (value != null && !isEmpty) {
            table.put(key, value);
        }
    }

    private static Map<String, Object> copy(Map<String, Object> source, List<String> keys) {
        Map<String, Object> copy = new LinkedHashMap<>(source);
        copy.keySet().retainAll(keys);
        return copy;
    }
}
