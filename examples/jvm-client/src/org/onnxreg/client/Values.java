package org.onnxreg.client;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.regex.Pattern;

/** Parts of JSON documents, read strictly: a value of another type is an {@link InputException}. */
final class Values {
    static final long MAX_INTEGER = (1L << 53) - 1;

    private static final Pattern DIGEST = Pattern.compile("sha256:[0-9a-f]{64}");
    private static final String PART = "[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?";
    private static final Pattern NAME = Pattern.compile(PART + "(?:/" + PART + ")?");

    private Values() {}

    @SuppressWarnings("unchecked")
    static Map<String, Object> mapping(Object value) {
        if (!(value instanceof Map)) {
            throw new InputException("not an object");
        }
        return (Map<String, Object>) value;
    }

    @SuppressWarnings("unchecked")
    static List<Object> list(Object value) {
        if (!(value instanceof List)) {
            throw new InputException("not an array");
        }
        return (List<Object>) value;
    }

    static String text(Object value) {
        if (!(value instanceof String)) {
            throw new InputException("not a string");
        }
        return (String) value;
    }

    static long count(Object value) {
        if (!(value instanceof Long) || (Long) value < 0) {
            throw new InputException("not a count");
        }
        return (Long) value;
    }

    static boolean flag(Object value) {
        if (!(value instanceof Boolean)) {
            throw new InputException("neither true nor false");
        }
        return (Boolean) value;
    }

    static double number(Object value) {
        if (!(value instanceof Number)) {
            throw new InputException("not a number");
        }
        return ((Number) value).doubleValue();
    }

    static double share(Object value) {
        double number = number(value);
        if (!(number >= 0 && number <= 1)) {
            throw new InputException("not a number from 0 to 1");
        }
        return number;
    }

    static String digest(Object value) {
        if (!DIGEST.matcher(text(value)).matches()) {
            throw new InputException("not a digest: " + brief((String) value));
        }
        return (String) value;
    }

    /** Return the 64 hex digits of a digest. */
    static String hex(Object value) {
        return digest(value).substring("sha256:".length());
    }

    static List<String> texts(Object value) {
        List<String> texts = new ArrayList<String>();
        for (Object item : list(value)) {
            texts.add(text(item));
        }
        return texts;
    }

    static List<String> digests(Object value) {
        List<String> digests = texts(value);
        for (String item : digests) {
            digest(item);
        }
        return digests;
    }

    static List<Map<String, Object>> mappings(Object value) {
        List<Map<String, Object>> mappings = new ArrayList<Map<String, Object>>();
        for (Object item : list(value)) {
            mappings.add(mapping(item));
        }
        return mappings;
    }

    static Map<String, Object> mappingOrEmpty(Object value) {
        return value == null ? Collections.<String, Object>emptyMap() : mapping(value);
    }

    static List<String> textsOrEmpty(Object value) {
        return value == null ? Collections.<String>emptyList() : texts(value);
    }

    static List<Map<String, Object>> mappingsOrEmpty(Object value) {
        return value == null ? Collections.<Map<String, Object>>emptyList() : mappings(value);
    }

    /** Check the name of a model, which is then safe in a URL and as the name of a file. */
    static String modelName(String name) {
        if (name == null || name.length() > 200 || name.contains("..") || !NAME.matcher(name).matches()) {
            throw new InputException("not a model's name: " + brief(String.valueOf(name)));
        }
        return name;
    }

    /** Return true if two objects agree in these keys; a missing key is null. */
    static boolean agree(Map<String, Object> one, Map<String, Object> other, List<String> keys) {
        for (String key : keys) {
            Object left = one == null ? null : one.get(key);
            if (!Objects.equals(left, other == null ? null : other.get(key))) {
                return false;
            }
        }
        return true;
    }

    static List<String> keys(String words) {
        return Arrays.asList(words.split(" "));
    }

    static String brief(String text) {
        return text.substring(0, Math.min(text.length(), 80));
    }
}
