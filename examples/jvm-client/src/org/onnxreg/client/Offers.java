package org.onnxreg.client;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The deltas that a state offers: docs/delta.md, "The table of a version". A malformed offer is none. */
final class Offers {
    private Offers() {}

    /** Return the deltas of a version, and those of others that may lead to it. */
    static List<Delta> read(State state, String version, Documents documents) {
        Map<String, Delta> offered = new LinkedHashMap<String, Delta>();
        try {
            Map<String, Object> key = Values.mappingOrEmpty(state.value.get("deltas"));
            for (Map.Entry<String, Object> entry : Values.mappingOrEmpty(key.get("versions")).entrySet()) {
                Map<String, Object> offer = Values.mapping(entry.getValue());
                add(offer.get("deltas"), offered);
                if (entry.getKey().equals(version) && isCut(state, version, offer)) {
                    String table = Values.digest(Values.mapping(offer.get("table")).get("digest"));
                    add(IndexFile.document(documents.read(table)).get("deltas"), offered);
                }
            }
        } catch (InputException error) {
            // The deltas that were read before are enough: they are hints.
        } catch (IntegrityException error) {
            // The same.
        } catch (NotFoundException error) {
            // The same.
        } catch (RemoteException error) {
            // The same.
        }
        return new ArrayList<Delta>(offered.values());
    }

    private static void add(Object list, Map<String, Delta> offered) {
        for (Delta delta : Delta.readAll(list)) {
            offered.put(delta.digest, delta);
        }
    }

    /** Return true if the table of a version has more deltas than the state. */
    private static boolean isCut(State state, String version, Map<String, Object> offer) {
        Map<String, Object> entry = state.version(version);
        if (entry == null) {
            return false;
        }
        Map<String, Object> table = new LinkedHashMap<String, Object>();
        table.put("format", "onnxreg-deltas");
        table.put("format_version", 1L);
        table.put("name", state.name);
        table.put("version", version);
        table.put("manifest", entry.get("manifest"));
        table.put("deltas", offer.get("deltas"));
        long size = JsonWriter.write(table).getBytes(StandardCharsets.UTF_8).length;
        return size < Values.count(Values.mapping(offer.get("table")).get("size"));
    }
}
