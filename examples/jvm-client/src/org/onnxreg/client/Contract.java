package org.onnxreg.client;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The contract of an artifact: the digest of everything that an app relies on (docs/resolve.md, "Contracts").
 */
final class Contract {
    private Contract() {}

    /**
     * Return the contract, by a manifest and the artifact's metadata; null without inputs or without outputs.
     */
    static String of(Map<String, Object> manifest, Map<String, Object> metadata) {
        List<Object> inputs = tensors(metadata.get("inputs"));
        List<Object> outputs = tensors(metadata.get("outputs"));
        if (inputs.isEmpty() || outputs.isEmpty()) {
            return null;
        }
        Map<String, Object> document = new LinkedHashMap<String, Object>();
        document.put("inputs", inputs);
        document.put("outputs", outputs);
        boolean hasLabels = !Values.textsOrEmpty(manifest.get("labels")).isEmpty();
        put(document, "labels", hasLabels ? manifest.get("labels") : digests(manifest, "labels"));
        put(document, "tokenizer", digests(manifest, "tokenizer"));
        put(document, "segmenter", digests(manifest, "segmenter"));
        put(document, "preprocessing", manifest.get("preprocessing"));
        return Sha256.of(JsonWriter.write(document));
    }

    private static void put(Map<String, Object> document, String key, Object value) {
        if (value != null) {
            document.put(key, value);
        }
    }

    /** Return the digests of the files with a role, by path; null if no file has it. */
    private static Map<String, Object> digests(Map<String, Object> manifest, String role) {
        Map<String, Object> digests = new LinkedHashMap<String, Object>();
        for (Map<String, Object> file : Values.mappingsOrEmpty(manifest.get("files"))) {
            if (role.equals(file.get("role"))) {
                digests.put(Values.text(file.get("path")), file.get("digest"));
            }
        }
        return digests.isEmpty() ? null : digests;
    }

    private static List<Object> tensors(Object value) {
        List<Object> tensors = new ArrayList<Object>();
        for (Map<String, Object> entry : Values.mappingsOrEmpty(value)) {
            List<Object> shape = new ArrayList<Object>();
            for (Map<String, Object> axis : Values.mappingsOrEmpty(entry.get("shape"))) {
                shape.add(axis.get("value"));
            }
            Map<String, Object> tensor = new LinkedHashMap<String, Object>();
            tensor.put("name", entry.get("name"));
            tensor.put("dtype", entry.get("dtype"));
            tensor.put("shape", shape);
            tensors.add(tensor);
        }
        return tensors;
    }
}
