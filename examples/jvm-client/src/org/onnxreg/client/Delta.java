package org.onnxreg.client;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** A delta that the registry offers: it makes one new file from old ones. */
final class Delta {
    final String newDigest;
    final List<String> oldDigests;
    final String digest;
    final long size;

    Delta(Map<String, Object> value) {
        newDigest = Values.digest(value.get("new"));
        oldDigests = Values.digests(value.get("old"));
        digest = Values.digest(value.get("delta"));
        size = Values.count(value.get("size"));
    }

    /** Return true if this one is the better choice: it is smaller, or has the lesser digest. */
    boolean isBefore(Delta other) {
        return size < other.size || (size == other.size && digest.compareTo(other.digest) < 0);
    }

    static List<Delta> readAll(Object value) {
        List<Delta> deltas = new ArrayList<Delta>();
        for (Map<String, Object> item : Values.mappings(value)) {
            deltas.add(new Delta(item));
        }
        return deltas;
    }
}
