package org.onnxreg.client;

import java.util.HashMap;
import java.util.Map;

/** The fields that an expression may test, and their kinds. */
final class Vocabulary {
    /** The fields of a candidate: docs/query.md, "Fields". */
    static final Vocabulary CANDIDATE = new Vocabulary()
            .add(Kind.TEXT, "name manifest task family license profile format precision path digest state")
            .add(Kind.VERSION, "version")
            .add(Kind.LIST, "channels providers")
            .add(Kind.FLAG, "newest prerelease yanked pinned certified")
            .add(Kind.SIZE, "size download_size")
            .add(Kind.NUMBER, "opset ort_format metric")
            .add(Kind.SHARE, "recall min_recall");
    /** The keys of a device document: docs/rollouts.md, "Who is in". */
    static final Vocabulary DEVICE = new Vocabulary()
            .add(Kind.TEXT, "name build platform abi locale")
            .add(Kind.VERSION, "ort app_version")
            .add(Kind.LIST, "providers")
            .add(Kind.SIZE, "ram free_space");

    private final Map<String, Kind> kinds = new HashMap<String, Kind>();

    private Vocabulary() {}

    /** Return the kind of a field; null if no such field exists. */
    Kind kind(String name) {
        return kinds.get(name);
    }

    /** Return true for a field that is written with a label. */
    boolean isLabelled(String name) {
        return (name.equals("recall") || name.equals("metric")) && kinds.containsKey(name);
    }

    private Vocabulary add(Kind kind, String names) {
        for (String name : Values.keys(names)) {
            kinds.put(name, kind);
        }
        return this;
    }
}
