package org.onnxreg.client;

import java.util.List;
import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The kinds of the fields of an expression: how their values are written and compared. */
enum Kind {
    TEXT, VERSION, LIST, FLAG, SIZE, NUMBER, SHARE;

    private static final Pattern NUMERAL = Pattern.compile("([0-9]+)(?:\\.([0-9]+))?");
    private static final int MAX_DIGITS = 15;

    @Override
    public String toString() {
        return name().toLowerCase(Locale.ROOT);
    }

    /** Return true if a value of this kind may be written as such a token. */
    boolean isWrittenAs(Token.Type type) {
        switch (this) {
            case TEXT:
                return type == Token.Type.WORD || type == Token.Type.QUOTED;
            case VERSION:
                return type == Token.Type.NUMBER || type == Token.Type.QUOTED;
            default:
                return type == Token.Type.NUMBER;
        }
    }

    /** Read a written value. */
    Object read(String written) {
        switch (this) {
            case VERSION:
                return Version.parse(written).text;
            case SIZE:
                return readSize(written);
            case NUMBER:
                return Double.valueOf(numeral(written).group());
            case SHARE:
                double share = Double.parseDouble(numeral(written).group());
                if (share > 1) {
                    throw new InputException("it is more than 1");
                }
                return share;
            default:
                return written;
        }
    }

    /** Return true if a value of a candidate is of this kind. */
    boolean accepts(Object value) {
        switch (this) {
            case VERSION:
                return value instanceof String && Version.isVersion((String) value);
            case LIST:
                return value instanceof List;
            case FLAG:
                return value instanceof Boolean;
            case TEXT:
                return value instanceof String;
            default:
                return value instanceof Number;
        }
    }

    /** Compare two values; texts are only equal or not. */
    int compare(Object actual, Object value) {
        switch (this) {
            case VERSION:
                return Version.parse(actual).compareTo(Version.parse(value));
            case TEXT:
                return actual.equals(value) ? 0 : 1;
            default:
                return Double.compare(((Number) actual).doubleValue(), ((Number) value).doubleValue());
        }
    }

    private static Long readSize(String written) {
        int end = written.length();
        while (end > 0 && Character.isLetter(written.charAt(end - 1))) {
            end--;
        }
        Matcher number = numeral(written.substring(0, end));
        String part = number.group(2) == null ? "" : number.group(2);
        return Sizes.bytes(number.group(1), part, written.substring(end));
    }

    /** NUMBER = DIGITS ["." DIGITS] */
    private static Matcher numeral(String written) {
        Matcher match = NUMERAL.matcher(written);
        if (!match.matches()) {
            throw new InputException("it is not a number");
        }
        if (written.replace(".", "").length() > MAX_DIGITS) {
            throw new InputException("it has more than " + MAX_DIGITS + " digits");
        }
        return match;
    }
}
