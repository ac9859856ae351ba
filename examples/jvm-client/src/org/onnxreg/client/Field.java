package org.onnxreg.client;

import java.util.Map;

/** A field of a candidate or a device in an expression. */
final class Field {
    private static final String RECALL = "character_recall/";

    final String name;
    final Kind kind;
    /** The label of {@code recall.LABEL} or {@code metric.NAME}; null for other fields. */
    private final String label;

    Field(String name, Kind kind) {
        this(name, kind, null);
    }

    private Field(String name, Kind kind, String label) {
        this.name = name;
        this.kind = kind;
        this.label = label;
    }

    /** Return one number of a field that has several. */
    static Field labelled(String name, String label) {
        boolean isRecall = name.equals("recall") || label.startsWith(RECALL);
        if (!isRecall) {
            return new Field(name, Kind.NUMBER, label);
        }
        String share = name.equals("recall") ? label : label.substring(RECALL.length());
        return new Field("recall", Kind.SHARE, share);
    }

    /** Return the value of a candidate, of this field's kind; null if it is unknown. */
    Object read(Map<String, Object> candidate) {
        Object value = candidate.get(name);
        if (label != null) {
            value = value instanceof Map ? ((Map<?, ?>) value).get(label) : null;
        }
        return kind.accepts(value) ? value : null;
    }
}
