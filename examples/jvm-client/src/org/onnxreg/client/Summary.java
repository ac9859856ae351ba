package org.onnxreg.client;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;

/** The summary of a version, made from its manifest as docs/format.md specifies. */
final class Summary {
    private static final String RECALL = "character_recall/";
    private static final int MAX_METRICS = 32;
    private static final List<String> KEYS = Values.keys("manifest size files task family license");
    private static final List<String> LATER_KEYS = Values.keys("contract contrib kv_cache metrics preferred");
    private static final List<String> ARTIFACT_KEYS = Values.keys(
            "format precision path digest size state files opset ort_format operators providers recall"
            + " ir_version domains member contract contrib kv_cache metrics preferred");

    private Summary() {}

    /**
     * Return true if the index file says of a version what its manifest says.
     *
     * <p>A newer build may write further keys, and an older one did not write the later keys.
     */
    static boolean agrees(Map<String, Object> summary, Map<String, Object> derived) {
        List<Map<String, Object>> expected = Values.mappings(derived.get("artifacts"));
        List<Object> artifacts = new ArrayList<Object>();
        for (Map<String, Object> stated : Values.mappings(summary.get("artifacts"))) {
            Map<String, Object> artifact = new HashMap<String, Object>();
            if (artifacts.size() < expected.size()) {
                copy(expected.get(artifacts.size()), LATER_KEYS, artifact);
            }
            copy(stated, ARTIFACT_KEYS, artifact);
            artifacts.add(artifact);
        }
        Map<String, Object> comparable = new HashMap<String, Object>();
        copy(summary, KEYS, comparable);
        comparable.put("artifacts", artifacts);
        return comparable.equals(derived);
    }

    /** Make the summary of a manifest with a digest and a size. */
    static Map<String, Object> of(Map<String, Object> manifest, String digest, long size) {
        Map<String, Object> summary = new LinkedHashMap<String, Object>();
        summary.put("manifest", digest);
        summary.put("size", size);
        for (String key : Values.keys("task family license")) {
            put(summary, key, manifest.get(key));
        }
        Map<String, Object> family = Values.mappingOrEmpty(manifest.get("model_family"));
        Map<String, String> owners = owners(family);
        List<Object> artifacts = new ArrayList<Object>();
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
        Map<String, String> owners = new HashMap<String, String>();
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
        List<Map<String, Object>> checks = Values.mappingsOrEmpty(artifact.get("checks"));
        Object suite = Values.mappingOrEmpty(certification.get("evidence")).get("suite");
        Map<String, Object> summary = new LinkedHashMap<String, Object>();
        for (String key : Values.keys("format precision path digest size")) {
            put(summary, key, artifact.get(key));
        }
        Object state = certification.get("state");
        summary.put("state", state == null ? "unknown" : state);
        put(summary, "files", files(artifact.get("files")));
        put(summary, "opset", metadata.get("opset"));
        put(summary, "ort_format", artifact.get("ort_format"));
        put(summary, "operators", operators.isEmpty() ? null : Sha256.of(JsonWriter.write(operators)));
        put(summary, "providers", metadata.get("execution_providers"));
        put(summary, "recall", recalls(checks));
        put(summary, "ir_version", artifact.get("ir_version"));
        put(summary, "domains", domains(operators));
        put(summary, "member", member);
        put(summary, "contract", Contract.of(manifest, metadata));
        put(summary, "kv_cache", artifact.get("kv_cache"));
        put(summary, "contrib", artifact.get("contrib"));
        put(summary, "metrics", metrics(checks, suite));
        Map<String, Object> recipe = Values.mappingOrEmpty(manifest.get("recipe"));
        Object search = Values.mappingOrEmpty(recipe.get("parameters")).get("search");
        boolean isWinner = search instanceof Map && artifact.get("path").equals(((Map<?, ?>) search).get("output"));
        put(summary, "preferred", isWinner ? Boolean.TRUE : null);
        return summary;
    }

    private static List<Object> files(Object value) {
        List<Object> files = new ArrayList<Object>();
        for (Map<String, Object> file : Values.mappingsOrEmpty(value)) {
            Map<String, Object> entry = new LinkedHashMap<String, Object>();
            copy(file, Values.keys("role path digest size"), entry);
            files.add(entry);
        }
        return files;
    }

    private static List<Object> domains(List<Map<String, Object>> operators) {
        Set<String> domains = new HashSet<String>();
        for (Map<String, Object> operator : operators) {
            domains.add(Values.text(operator.get("domain")));
        }
        domains.remove("ai.onnx");
        return new ArrayList<Object>(new TreeSet<String>(domains));
    }

    private static Map<String, Object> recalls(List<Map<String, Object>> checks) {
        Map<String, Object> recalls = new LinkedHashMap<String, Object>();
        for (Map<String, Object> check : checks) {
            String name = Values.text(check.get("name"));
            if (name.startsWith(RECALL) && check.get("value") != null) {
                recalls.put(name.substring(RECALL.length()), check.get("value"));
            }
        }
        return recalls;
    }

    /** Return the figures on the suite of the certification, without the recall of labels. */
    private static Map<String, Object> metrics(List<Map<String, Object>> checks, Object suite) {
        Map<String, Object> metrics = new LinkedHashMap<String, Object>();
        int count = 0;
        for (Map<String, Object> check : checks) {
            String name = Values.text(check.get("name"));
            boolean isMetric = suite != null && suite.equals(check.get("dataset"))
                    && !name.startsWith(RECALL);
            if (isMetric && check.get("value") != null && count++ < MAX_METRICS) {
                metrics.put(name, check.get("value"));
            }
        }
        return metrics;
    }

    /** Put a value that is neither null nor empty. */
    private static void put(Map<String, Object> table, String key, Object value) {
        boolean isEmpty = (value instanceof List && ((List<?>) value).isEmpty())
                || (value instanceof Map && ((Map<?, ?>) value).isEmpty());
        if (value != null && !isEmpty) {
            table.put(key, value);
        }
    }

    private static void copy(Map<String, Object> source, List<String> keys, Map<String, Object> target) {
        for (String key : keys) {
            if (source.containsKey(key)) {
                target.put(key, source.get(key));
            }
        }
    }
}
