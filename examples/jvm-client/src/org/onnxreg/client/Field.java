package org.onnxreg.client;

import java.util.HashMap;
import java.util.Map;

/** A field of a candidate in an expression. */
final class Field {
    private static final Map<String, Kind> KINDS = new HashMap<String, Kind>();
    private static final String RECALL = "character_recall/";

    static {
        put(Kind.TEXT, "name manifest task family license profile format precision path digest state");
        put(Kind.VERSION, "version");
        put(Kind.LIST, "channels providers");
        put(Kind.FLAG, "newest prerelease yanked pinned certified");
        put(Kind.SIZE, "size download_size");
        put(Kind.NUMBER, "opset ort_format metric");
        put(Kind.SHARE, "recall min_recall");
    }

    final String name;
    final Kind kind;
    /** The label of {@code recall.LABEL} or {@code metric.NAME}; null for other fields. */
    private final String label;

    private Field(String name, String label) {
        this.name = name;
        this.label = label;
        kind = KINDS.get(name);
    }

    /** Return the field with a name; null if none exists. */
    static Field named(String name) {
        return KINDS.containsKey(name) ? new Field(name, null) : null;
    }

    /** Return true for a field that is written with a label. */
    static boolean isLabelled(String name) {
        return name.equals("recall") || name.equals("metric");
    }

    static Field labelled(String name, String label) {
        boolean isRecall = name.equals("metric") && label.startsWith(RECALL);
        return isRecall ? new Field("recall", label.substring(RECALL.length())) : new Field(name, label);
    }

    /** Return the value of a candidate, of this field's kind; null if it is unknown. */
    Object read(Map<String, Object> candidate) {
        Object value = candidate.get(name);
        if (value == Expression.UNREADABLE) {
            throw new InputException("no index file has the " + name + " of a version: use reg resolve");
        }
        if (label != null) {
            value = value instanceof Map ? ((Map<?, ?>) value).get(label) : null;
        }
        return kind.accepts(value) ? value : null;
    }

    private static void put(Kind kind, String names) {
        for (String name : Values.keys(names)) {
            KINDS.put(name, kind);
        }
    }
}
