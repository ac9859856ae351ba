package org.onnxreg.client;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** A writer of canonical JSON (RFC 8785). No document whose digest this client takes has a fraction. */
final class JsonWriter {
    private static final String ESCAPED = "\"\\\b\f\n\r\t";
    private static final String NAMES = "\"\\bfnrt";

    private final StringBuilder out = new StringBuilder();

    private JsonWriter() {}

    static String write(Object value) {
        JsonWriter writer = new JsonWriter();
        writer.value(value);
        return writer.out.toString();
    }

    private void value(Object value) {
        if (value instanceof Map) {
            object((Map<?, ?>) value);
        } else if (value instanceof List) {
            array((List<?>) value);
        } else if (value instanceof String) {
            string((String) value);
        } else {
            out.append(value);
        }
    }

    private void object(Map<?, ?> object) {
        String separator = "{";
        for (Map.Entry<?, ?> entry : new TreeMap<Object, Object>(object).entrySet()) {
            out.append(separator);
            string((String) entry.getKey());
            out.append(':');
            value(entry.getValue());
            separator = ",";
        }
        out.append(object.isEmpty() ? "{}" : "}");
    }

    private void array(List<?> array) {
        String separator = "[";
        for (Object item : array) {
            out.append(separator);
            value(item);
            separator = ",";
        }
        out.append(array.isEmpty() ? "[]" : "]");
    }

    private void string(String text) {
        out.append('"');
        for (int i = 0; i < text.length(); i++) {
            char unit = text.charAt(i);
            int place = ESCAPED.indexOf(unit);
            if (place >= 0) {
                out.append('\\').append(NAMES.charAt(place));
            } else if (unit < ' ') {
                out.append(unit < 16 ? "\\u000" : "\\u00").append(Integer.toHexString(unit));
            } else {
                out.append(unit);
            }
        }
        out.append('"');
    }
}
