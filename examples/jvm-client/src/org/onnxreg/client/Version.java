package org.onnxreg.client;

import java.math.BigInteger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A version; the order is the precedence of SemVer 2.0, section 11. */
final class Version implements Comparable<Version> {
    private static final String NUMBER = "(0|[1-9][0-9]*)";
    private static final String PRE = "(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)";
    private static final String BUILD = "(?:\\+[0-9A-Za-z-]+(?:\\.[0-9A-Za-z-]+)*)?";
    private static final Pattern SEMVER = Pattern.compile(
            NUMBER + "\\." + NUMBER + "\\." + NUMBER + "(?:-(" + PRE + "(?:\\." + PRE + ")*))?" + BUILD);
    private static final Pattern DIGITS = Pattern.compile("[0-9]+");

    final String text;
    private final BigInteger[] numbers = new BigInteger[3];
    private final String[] pre;

    private Version(String text, Matcher match) {
        this.text = text;
        for (int i = 0; i < numbers.length; i++) {
            numbers[i] = new BigInteger(match.group(i + 1));
        }
        pre = match.group(4) == null ? new String[0] : match.group(4).split("\\.");
    }

    static boolean isVersion(String tag) {
        return tag.length() <= 128 && SEMVER.matcher(tag).matches();
    }

    static Version parse(Object value) {
        String text = Values.text(value);
        Matcher match = SEMVER.matcher(text);
        if (text.length() > 128 || !match.matches()) {
            throw RegException.input("not a version: " + Values.brief(text));
        }
        return new Version(text, match);
    }

    boolean isPrerelease() {
        return pre.length > 0;
    }

    @Override
    public int compareTo(Version other) {
        for (int i = 0; i < numbers.length; i++) {
            int order = numbers[i].compareTo(other.numbers[i]);
            if (order != 0) {
                return order;
            }
        }
        if (isPrerelease() != other.isPrerelease()) {
            return isPrerelease() ? -1 : 1;
        }
        for (int i = 0; i < Math.min(pre.length, other.pre.length); i++) {
            int order = compareIdentifiers(pre[i], other.pre[i]);
            if (order != 0) {
                return order;
            }
        }
        return pre.length - other.pre.length;
    }

    private static int compareIdentifiers(String one, String other) {
        boolean isNumber = DIGITS.matcher(one).matches();
        boolean isOtherNumber = DIGITS.matcher(other).matches();
        if (isNumber && isOtherNumber) {
            return new BigInteger(one).compareTo(new BigInteger(other));
        }
        return isNumber ? -1 : isOtherNumber ? 1 : one.compareTo(other);
    }
}
