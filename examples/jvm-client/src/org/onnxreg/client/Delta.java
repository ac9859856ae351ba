package org.onnxreg.client;

import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** A delta that the registry offers: it makes one new file from old ones. */
final class Delta {
    final String newDigest;
    final List<String> oldDigests;
    final String digest;
    final long size;

    private Delta(Object row) {
        Map<String, Object> value = Values.mapping(row);
        newDigest = Values.digest(value.get("new"));
        oldDigests = Values.digests(value.get("old"));
        digest = Values.digest(value.get("delta"));
        size = Values.count(value.get("size"));
    }

    static List<Delta> readAll(Object rows) {
        return Values.each(rows, Delta::new);
    }

    /** Return the deltas of a version, or none if their table cannot be read: deltas are hints. */
    static List<Delta> offered(State state, String version, Documents documents) {
        Map<String, Object> entry = state.version(version);
        Object table = entry == null ? null : entry.get("deltas");
        try {
            return table == null ? Collections.emptyList()
                    : readAll(IndexFile.document(documents.read(Values.digest(table))).get("deltas"));
        } catch (RegException error) {
            if (error.isOfDevice()) {
                throw error;
            }
            return Collections.emptyList();
        }
    }

    /**
     * Choose a delta for each file (docs/delta.md, "Choosing"): the smallest one whose old files are here, if it is
     * smaller than half of the file.
     *
     * @param sizes bytes of the files to get, by digest
     * @param present digests of the files that are here
     */
    static Map<String, Delta> choose(List<Delta> offered, Map<String, Long> sizes, Set<String> present) {
        Map<String, Delta> chosen = new HashMap<>();
        for (Delta delta : offered) {
            Long size = sizes.get(delta.newDigest);
            if (size != null && delta.size < size - delta.size && present.containsAll(delta.oldDigests)) {
                chosen.merge(delta.newDigest, delta, Delta::better);
            }
        }
        return chosen;
    }

    /** Return the smaller delta, or of equal ones the delta with the lesser digest. */
    private static Delta better(Delta one, Delta other) {
        int order = Long.compare(one.size, other.size);
        return order < 0 || (order == 0 && one.digest.compareTo(other.digest) <= 0) ? one : other;
    }
}
