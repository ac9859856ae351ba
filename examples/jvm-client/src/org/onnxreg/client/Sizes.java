package org.onnxreg.client;

import java.math.BigInteger;
import java.util.Arrays;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Sizes such as {@code 30MB}, as docs/resolve.md defines them. */
final class Sizes {
    private static final List<String> DECIMAL = Arrays.asList("B", "kB", "MB", "GB", "TB");
    private static final List<String> BINARY = Arrays.asList("B", "KiB", "MiB", "GiB", "TiB");
    private static final Pattern SIZE = Pattern.compile("([0-9]{1,15})(?:\\.([0-9]{1,9}))?([A-Za-z]*)");

    private Sizes() {}

    /** Read a number of bytes, or DIGITS ["." DIGITS] [UNIT]. */
    static long read(Object value) {
        if (!(value instanceof String)) {
            return Values.count(value);
        }
        Matcher match = SIZE.matcher((String) value);
        if (!match.matches()) {
            throw new InputException("not a size: " + Values.brief((String) value));
        }
        return bytes(match.group(1), match.group(2) == null ? "" : match.group(2), match.group(3));
    }

    /** Return the bytes of {@code whole.part unit}, which must be a whole number below 2^53. */
    static long bytes(String whole, String part, String unit) {
        BigInteger product = new BigInteger(whole + part).multiply(unitSize(unit));
        BigInteger[] bytes = product.divideAndRemainder(BigInteger.TEN.pow(part.length()));
        if (bytes[1].signum() != 0 || bytes[0].bitLength() > 53) {
            throw new InputException(whole + "." + part + unit
                    + " is not a whole number of bytes below 2^53");
        }
        return bytes[0].longValue();
    }

    private static BigInteger unitSize(String unit) {
        String name = unit.isEmpty() ? "B" : unit;
        if (DECIMAL.contains(name)) {
            return BigInteger.valueOf(1000).pow(DECIMAL.indexOf(name));
        }
        if (BINARY.contains(name)) {
            return BigInteger.valueOf(1024).pow(BINARY.indexOf(name));
        }
        throw new InputException(Values.brief(unit) + " is not a unit of size");
    }
}
