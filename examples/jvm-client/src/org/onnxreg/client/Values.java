package org.onnxreg.client;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.MathContext;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.Function;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Parts of JSON documents, read strictly: a value of another type is an input error. */
final class Values {
    private static final Pattern DIGEST = Pattern.compile("sha256:[0-9a-f]{64}");
    private static final String PART = "[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?";
    private static final Pattern NAME = Pattern.compile(PART + "(?:/" + PART + ")?");
    private static final Pattern SIZE = Pattern.compile("([0-9]{1,15})(?:\\.([0-9]{1,9}))?([A-Za-z]*)");
    private static final List<String> DECIMAL = keys("B kB MB GB TB");
    private static final List<String> BINARY = keys("B KiB MiB GiB TiB");

    private Values() {}

    @SuppressWarnings("unchecked")
    static Map<String, Object> mapping(Object value) {
        return typed(Map.class, value, "an object");
    }

    @SuppressWarnings("unchecked")
    static List<Object> list(Object value) {
        return typed(List.class, value, "an array");
    }

    static String text(Object value) {
        return typed(String.class, value, "a string");
    }

    static boolean flag(Object value) {
        return typed(Boolean.class, value, "true or false");
    }

    static double number(Object value) {
        return typed(Number.class, value, "a number").doubleValue();
    }

    static long count(Object value) {
        long count = typed(Long.class, value, "a count");
        if (count < 0) {
            throw RegException.input("not a count");
        }
        return count;
    }

    private static <T> T typed(Class<T> type, Object value, String name) {
        if (!type.isInstance(value)) {
            throw RegException.input("not " + name);
        }
        return type.cast(value);
    }

    /** Write a number with at most this many significant digits. */
    static String figure(double number, int digits) {
        return new BigDecimal(number).round(new MathContext(digits)).stripTrailingZeros().toPlainString();
    }

    static double share(Object value) {
        double number = number(value);
        if (!(number >= 0 && number <= 1)) {
            throw RegException.input("not a number from 0 to 1");
        }
        return number;
    }

    static double positive(Object value) {
        double number = number(value);
        if (!(number > 0 && number < Double.POSITIVE_INFINITY)) {
            throw RegException.input("not a number above 0");
        }
        return number;
    }

    static String digest(Object value) {
        if (!DIGEST.matcher(text(value)).matches()) {
            throw RegException.input("not a digest: " + brief((String) value));
        }
        return (String) value;
    }

    /** Return the 64 hex digits of a digest. */
    static String hex(Object value) {
        return digest(value).substring("sha256:".length());
    }

    /** Read each item of an array. */
    static <T> List<T> each(Object value, Function<Object, T> read) {
        List<T> items = new ArrayList<>();
        for (Object item : list(value)) {
            items.add(read.apply(item));
        }
        return items;
    }

    static List<String> texts(Object value) {
        return each(value, Values::text);
    }

    static List<String> digests(Object value) {
        return each(value, Values::digest);
    }

    static List<Map<String, Object>> mappings(Object value) {
        return each(value, Values::mapping);
    }

    static Map<String, Object> mappingOrEmpty(Object value) {
        return value == null ? Collections.emptyMap() : mapping(value);
    }

    static List<String> textsOrEmpty(Object value) {
        return value == null ? Collections.emptyList() : texts(value);
    }

    static List<Map<String, Object>> mappingsOrEmpty(Object value) {
        return value == null ? Collections.emptyList() : mappings(value);
    }

    /** Read a number of bytes, or DIGITS ["." DIGITS] [UNIT], such as {@code 30MB}: docs/resolve.md, "Query". */
    static long size(Object value) {
        if (!(value instanceof String)) {
            return count(value);
        }
        Matcher match = SIZE.matcher((String) value);
        if (!match.matches()) {
            throw RegException.input("not a size: " + brief((String) value));
        }
        return bytes(match.group(1), match.group(2) == null ? "" : match.group(2), match.group(3));
    }

    /** Return the bytes of {@code whole.part unit}, which must be a whole number below 2^53. */
    static long bytes(String whole, String part, String unit) {
        String name = unit.isEmpty() ? "B" : unit;
        boolean isDecimal = DECIMAL.contains(name);
        int power = (isDecimal ? DECIMAL : BINARY).indexOf(name);
        if (power < 0) {
            throw RegException.input(brief(unit) + " is not a unit of size");
        }
        BigInteger product = new BigInteger(whole + part).multiply(
                BigInteger.valueOf(isDecimal ? 1000 : 1024).pow(power));
        BigInteger[] bytes = product.divideAndRemainder(BigInteger.TEN.pow(part.length()));
        if (bytes[1].signum() != 0 || bytes[0].bitLength() > 53) {
            throw RegException.input(
                    whole + "." + part + unit + " is not a whole number of bytes below 2^53");
        }
        return bytes[0].longValue();
    }

    /** Check that a question or a device has no other fields, not even with null. */
    static Map<String, Object> fields(Object value, String subject, String keys) {
        Map<String, Object> fields = mapping(value);
        for (String key : fields.keySet()) {
            if (!keys(keys).contains(key)) {
                throw RegException.input(subject + " has no field " + brief(key));
            }
        }
        return fields;
    }

    /** Read a field; an error names it. */
    static <T> T field(Map<String, Object> fields, String key, Function<Object, T> read, T absent) {
        Object value = fields.get(key);
        try {
            return value == null ? absent : read.apply(value);
        } catch (RegException error) {
            throw RegException.input(key + ": " + error.getMessage());
        }
    }

    /** Check the name of a model, which is then safe in a URL and as the name of a file. */
    static String modelName(String name) {
        if (name == null || name.length() > 200 || name.contains("..") || !NAME.matcher(name).matches()) {
            throw RegException.input("not a model's name: " + brief(String.valueOf(name)));
        }
        return name;
    }

    /** Return true if two objects agree in these keys; a missing key is null. */
    static boolean agree(Map<String, Object> one, Map<String, Object> other, List<String> keys) {
        return keys.stream().allMatch(key -> Objects.equals(one.get(key), other.get(key)));
    }

    /** Return a table of keys, each with the value after it. */
    static Map<String, Object> table(Object... pairs) {
        Map<String, Object> table = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            table.put((String) pairs[i], pairs[i + 1]);
        }
        return table;
    }

    static List<String> keys(String words) {
        return Arrays.asList(words.split(" "));
    }

    static String brief(String text) {
        return text.substring(0, Math.min(text.length(), 80));
    }
}
