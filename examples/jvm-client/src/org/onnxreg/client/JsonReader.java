package org.onnxreg.client;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A strict reader of JSON (RFC 8259).
 *
 * <p>Objects become maps in the order of their keys, whole numbers below 2^53 Long, other numbers Double.
 */
final class JsonReader {
    private static final Pattern NUMBER =
            Pattern.compile("-?(?:0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?");
    private static final int MAX_DEPTH = 200;
    private static final double EXACT = 9007199254740992.0;

    private final String source;
    private int at;
    private int depth;

    private JsonReader(String source) {
        this.source = source;
    }

    static Object read(byte[] utf8) {
        try {
            return read(StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(utf8)).toString());
        } catch (CharacterCodingException error) {
            throw RegException.input("the document is not UTF-8");
        }
    }

    static Object read(String source) {
        JsonReader reader = new JsonReader(source);
        Object value = reader.value();
        reader.skipSpace();
        if (reader.at < source.length()) {
            throw reader.malformed();
        }
        return value;
    }

    private Object value() {
        skipSpace();
        switch (peek()) {
            case '{':
                return nested(true);
            case '[':
                return nested(false);
            case '"':
                return string();
            case 't':
                return word("true", Boolean.TRUE);
            case 'f':
                return word("false", Boolean.FALSE);
            case 'n':
                return word("null", null);
            default:
                return number();
        }
    }

    private Object nested(boolean isObject) {
        if (++depth > MAX_DEPTH) {
            throw RegException.input("the JSON document is nested too deep");
        }
        at++;
        Object value = isObject ? object() : array();
        depth--;
        return value;
    }

    private Map<String, Object> object() {
        Map<String, Object> object = new LinkedHashMap<>();
        skipSpace();
        if (accept('}')) {
            return object;
        }
        do {
            skipSpace();
            String key = string();
            skipSpace();
            require(':');
            object.put(key, value());
            skipSpace();
        } while (accept(','));
        require('}');
        return object;
    }

    private List<Object> array() {
        List<Object> array = new ArrayList<>();
        skipSpace();
        if (accept(']')) {
            return array;
        }
        do {
            array.add(value());
            skipSpace();
        } while (accept(','));
        require(']');
        return array;
    }

    private String string() {
        require('"');
        int start = at;
        while (peek() != '"' && peek() != '\\') {
            plain();
        }
        if (accept('"')) {
            return source.substring(start, at - 1);
        }
        StringBuilder text = new StringBuilder(source.substring(start, at));
        while (!accept('"')) {
            text.append(accept('\\') ? escape() : plain());
        }
        return text.toString();
    }

    private char plain() {
        char found = peek();
        if (found < ' ') {
            throw malformed();
        }
        at++;
        return found;
    }

    private char escape() {
        char mark = peek();
        at++;
        int place = "\"\\/bfnrt".indexOf(mark);
        if (place >= 0) {
            return "\"\\/\b\f\n\r\t".charAt(place);
        }
        if (mark != 'u') {
            throw malformed();
        }
        int code = 0;
        for (int i = 0; i < 4; i++, at++) {
            int digit = peek() < 128 ? Character.digit(peek(), 16) : -1;
            if (digit < 0) {
                throw malformed();
            }
            code = code * 16 + digit;
        }
        return (char) code;
    }

    private Object number() {
        Matcher match = NUMBER.matcher(source).region(at, source.length());
        if (!match.lookingAt()) {
            throw malformed();
        }
        at = match.end();
        boolean isWhole = match.group(1) == null && match.group(2) == null;
        if (isWhole && match.group().length() < 16) {
            return Long.valueOf(match.group());
        }
        double number = Double.parseDouble(match.group());
        boolean isExact = Math.rint(number) == number && Math.abs(number) < EXACT;
        return isExact ? (Object) (long) number : (Object) number;
    }

    private Object word(String word, Object value) {
        if (!source.startsWith(word, at)) {
            throw malformed();
        }
        at += word.length();
        return value;
    }

    private void skipSpace() {
        while (at < source.length() && " \t\r\n".indexOf(source.charAt(at)) >= 0) {
            at++;
        }
    }

    private char peek() {
        if (at >= source.length()) {
            throw malformed();
        }
        return source.charAt(at);
    }

    private boolean accept(char mark) {
        boolean isNext = at < source.length() && source.charAt(at) == mark;
        at += isNext ? 1 : 0;
        return isNext;
    }

    private void require(char mark) {
        if (!accept(mark)) {
            throw malformed();
        }
    }

    private RegException malformed() {
        return RegException.input("the document is not JSON at character " + at);
    }
}
