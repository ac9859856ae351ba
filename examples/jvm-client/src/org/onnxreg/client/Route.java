package org.onnxreg.client;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** A way to get a file: whole, by a delta, or by a chain of deltas. */
final class Route {
    static final Route WHOLE = new Route(Collections.<Delta>emptyList(), 0, 0);

    /** In the order in which they are applied; empty for the whole file. */
    final List<Delta> deltas;
    /** Bytes to fetch. */
    final long size;
    final double cost;

    Route(List<Delta> deltas, long size, double cost) {
        this.deltas = deltas;
        this.size = size;
        this.cost = cost;
    }

    boolean isBetterThan(Route other) {
        return cost < other.cost || (cost == other.cost && deltas.size() < other.deltas.size());
    }

    /** Return the old files that the chain does not make itself. */
    List<String> needs() {
        List<String> needs = new ArrayList<String>();
        for (Delta delta : deltas) {
            needs.addAll(delta.oldDigests);
        }
        for (Delta delta : deltas) {
            needs.removeAll(Collections.singleton(delta.newDigest));
        }
        return needs;
    }
}
