package org.onnxreg.client;

import java.math.BigDecimal;
import java.math.MathContext;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** A writer of canonical JSON (RFC 8785). */
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
        } else if (value instanceof Double) {
            out.append(number((Double) value));
        } else {
            out.append(value);
        }
    }

    /** Write a number as ECMAScript does: the fewest digits that mean the same number. */
    private static String number(double value) {
        BigDecimal exact = new BigDecimal(value);
        BigDecimal shortest = exact.round(new MathContext(1));
        for (int digits = 2; shortest.doubleValue() != value; digits++) {
            shortest = exact.round(new MathContext(digits));
        }
        BigDecimal plain = shortest.stripTrailingZeros();
        String digits = plain.unscaledValue().abs().toString();
        int point = digits.length() - plain.scale();
        String sign = value < 0 ? "-" : "";
        if (point > -6 && point <= 21) {
            return plain.toPlainString();
        }
        String rest = digits.length() > 1 ? "." + digits.substring(1) : "";
        return sign + digits.charAt(0) + rest + (point > 0 ? "e+" : "e") + (point - 1);
    }

    private void object(Map<?, ?> object) {
        String separator = "{";
        for (Map.Entry<?, ?> entry : new TreeMap<>(object).entrySet()) {
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
