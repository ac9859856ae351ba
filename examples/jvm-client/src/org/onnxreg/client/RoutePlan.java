package org.onnxreg.client;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** Chooses the fastest route of each file: docs/delta.md, "Choosing". */
final class RoutePlan {
    static final double APPLY_RATE = 60e6;
    private static final int MAX_CHAIN = 3;
    private static final int MAX_CHOICES = 16;
    private static final int MAX_WAITING = 16;

    private final Map<String, Long> sizes;
    private final Set<String> present;
    private final List<Delta> offered;
    private final double rate;
    private final double applyRate;
    private final Map<String, Route> routes = new LinkedHashMap<String, Route>();

    /**
     * @param sizes of the files to get, by digest
     * @param present digests of the files that are here
     * @param rate bytes that arrive in a second; 0 if it was not measured
     * @param applyRate bytes of a new file that a delta makes in a second
     */
    RoutePlan(Map<String, Long> sizes, Set<String> present, List<Delta> offered, double rate,
            double applyRate) {
        this.sizes = sizes;
        this.present = present;
        this.offered = offered;
        this.rate = rate;
        this.applyRate = applyRate;
    }

    /** Return the route of each file. A file whose route needs another one of these comes after it. */
    Map<String, Route> routes() {
        for (String file : sizes.keySet()) {
            settle(file, Collections.<String>emptySet());
        }
        return routes;
    }

    /** @param waiting files that wait for this one, which it cannot need */
    private void settle(String file, Set<String> waiting) {
        if (routes.containsKey(file)) {
            return;
        }
        Set<String> pending = new HashSet<String>(waiting);
        pending.add(file);
        Route best = route(file, Collections.<Delta>emptyList());
        List<Route> chains = new ArrayList<Route>();
        addChains(file, Collections.<Delta>emptyList(), pending, chains);
        for (Route chain : chains) {
            best = chain.isBetterThan(best) ? chain : best;
        }
        for (String old : best.needs()) {
            if (!present.contains(old)) {
                settle(old, pending);
            }
        }
        routes.put(file, best);
    }

    private void addChains(String file, List<Delta> later, Set<String> pending, List<Route> chains) {
        int choices = 0;
        for (Delta delta : offered) {
            if (!delta.newDigest.equals(file) || ++choices > MAX_CHOICES) {
                continue;
            }
            List<Delta> chain = new ArrayList<Delta>();
            chain.add(delta);
            chain.addAll(later);
            List<String> missing = missing(delta, pending);
            if (missing.isEmpty()) {
                chains.add(route(chain.get(chain.size() - 1).newDigest, chain));
            } else if (missing.size() == 1 && chain.size() < MAX_CHAIN && !makes(chain, missing.get(0))) {
                addChains(missing.get(0), chain, pending, chains);
            }
        }
    }

    private List<String> missing(Delta delta, Set<String> pending) {
        List<String> missing = new ArrayList<String>();
        for (String old : delta.oldDigests) {
            boolean isComing = sizes.containsKey(old) && !pending.contains(old)
                    && pending.size() < MAX_WAITING;
            if (!present.contains(old) && !isComing) {
                missing.add(old);
            }
        }
        return missing;
    }

    private static boolean makes(List<Delta> chain, String file) {
        for (Delta delta : chain) {
            if (delta.newDigest.equals(file)) {
                return true;
            }
        }
        return false;
    }

    private Route route(String file, List<Delta> chain) {
        long whole = sizes.get(file);
        long size = chain.isEmpty() ? whole : 0;
        for (Delta delta : chain) {
            size += delta.size;
        }
        double seconds = rate == 0 ? size : size / rate + chain.size() * (double) whole / applyRate;
        return new Route(chain, size, seconds);
    }
}
