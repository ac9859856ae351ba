package org.onnxreg.client;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The contract of an artifact: the digest of everything that an app relies on (docs/resolve.md, "Contracts"). */
final class Contract {
    private Contract() {}

    /** Return the contract, by a manifest and the artifact's metadata; null without inputs or without outputs. */
    static String of(Map<String, Object> manifest, Map<String, Object> metadata) {
        Map<String, Object> document = new LinkedHashMap<>();
        for (String side : Values.keys("inputs outputs")) {
            List<Map<String, Object>> tensors = Values.mappingsOrEmpty(metadata.get(side));
            if (tensors.isEmpty()) {
                return null;
            }
            document.put(side, Values.each(tensors, Contract::tensor));
        }
        boolean hasLabels = !Values.textsOrEmpty(manifest.get("labels")).isEmpty();
        document.put("labels", hasLabels ? manifest.get("labels") : digests(manifest, "labels"));
        document.put("tokenizer", digests(manifest, "tokenizer"));
        document.put("segmenter", digests(manifest, "segmenter"));
        document.put("preprocessing", manifest.get("preprocessing"));
        document.values().removeIf(value -> value == null);
        return Sha256.of(JsonWriter.write(document));
    }

    /** Return the digests of the files with a role, by path; null if no file has it. */
    private static Map<String, Object> digests(Map<String, Object> manifest, String role) {
        Map<String, Object> digests = new LinkedHashMap<>();
        for (Map<String, Object> file : Values.mappingsOrEmpty(manifest.get("files"))) {
            if (role.equals(file.get("role"))) {
                digests.put(Values.text(file.get("path")), file.get("digest"));
            }
        }
        return digests.isEmpty() ? null : digests;
    }

    private static Object tensor(Object entry) {
        Map<String, Object> tensor = new LinkedHashMap<>(Values.mapping(entry));
        tensor.keySet().retainAll(Values.keys("name dtype shape"));
        List<Map<String, Object>> shape = Values.mappingsOrEmpty(tensor.get("shape"));
        tensor.put("shape", Values.each(shape, axis -> Values.mapping(axis).get("value")));
        return tensor;
    }
}
