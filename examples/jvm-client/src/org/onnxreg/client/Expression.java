package org.onnxreg.client;

import java.util.List;
import java.util.Map;

/**
 * A condition of docs/query.md over a candidate. A test of an unknown value is false, whichever test it is.
 */
abstract class Expression {
    abstract boolean matches(Map<String, Object> candidate);

    static Expression parse(String source, Vocabulary vocabulary) {
        return new ExpressionParser(source, vocabulary).parse();
    }

    /** {@code a or b or c}, or {@code a and b and c}. */
    static final class Combination extends Expression {
        private final List<Expression> parts;
        private final boolean isAnd;

        Combination(List<Expression> parts, boolean isAnd) {
            this.parts = parts;
            this.isAnd = isAnd;
        }

        @Override
        boolean matches(Map<String, Object> candidate) {
            for (Expression part : parts) {
                if (part.matches(candidate) != isAnd) {
                    return !isAnd;
                }
            }
            return isAnd;
        }
    }

    /** {@code not a}. */
    static final class Negation extends Expression {
        private final Expression part;

        Negation(Expression part) {
            this.part = part;
        }

        @Override
        boolean matches(Map<String, Object> candidate) {
            return !part.matches(candidate);
        }
    }

    /** A flag, such as {@code certified}. */
    static final class Flag extends Expression {
        private final Field field;

        Flag(Field field) {
            this.field = field;
        }

        @Override
        boolean matches(Map<String, Object> candidate) {
            return Boolean.TRUE.equals(field.read(candidate));
        }
    }

    /** {@code 'stable' [not] in channels}. */
    static final class Membership extends Expression {
        private final Field field;
        private final String value;
        private final boolean isNegated;

        Membership(Field field, String value, boolean isNegated) {
            this.field = field;
            this.value = value;
            this.isNegated = isNegated;
        }

        @Override
        boolean matches(Map<String, Object> candidate) {
            Object list = field.read(candidate);
            return list instanceof List && ((List<?>) list).contains(value) != isNegated;
        }
    }

    /** {@code field [not] in (a, b)}. */
    static final class Choice extends Expression {
        private final Field field;
        private final List<Object> values;
        private final boolean isNegated;

        Choice(Field field, List<Object> values, boolean isNegated) {
            this.field = field;
            this.values = values;
            this.isNegated = isNegated;
        }

        @Override
        boolean matches(Map<String, Object> candidate) {
            Object actual = field.read(candidate);
            if (actual == null) {
                return false;
            }
            for (Object value : values) {
                if (field.kind.compare(actual, value) == 0) {
                    return !isNegated;
                }
            }
            return isNegated;
        }
    }

    /** {@code field <= value}. */
    static final class Relation extends Expression {
        private final Field field;
        private final String sign;
        private final Object value;

        Relation(Field field, String sign, Object value) {
            this.field = field;
            this.sign = sign;
            this.value = value;
        }

        @Override
        boolean matches(Map<String, Object> candidate) {
            Object actual = field.read(candidate);
            if (actual == null) {
                return false;
            }
            int order = field.kind.compare(actual, value);
            if (sign.equals("!=")) {
                return order != 0;
            }
            if (order == 0) {
                return sign.contains("=");
            }
            return sign.startsWith(order < 0 ? "<" : ">");
        }
    }

    /** {@code field ~ pattern}. */
    static final class Match extends Expression {
        private final Field field;
        private final Pattern pattern;

        Match(Field field, String pattern) {
            this.field = field;
            this.pattern = new Pattern(pattern);
        }

        @Override
        boolean matches(Map<String, Object> candidate) {
            Object actual = field.read(candidate);
            return actual != null && pattern.fits((String) actual);
        }
    }

    /** A pattern of {@code *} and {@code ?}. It never goes back further than the last {@code *}. */
    static final class Pattern {
        private final int[] pattern;

        Pattern(String pattern) {
            this.pattern = codePoints(pattern);
        }

        boolean fits(String text) {
            int[] points = codePoints(text);
            int at = 0;
            int wanted = 0;
            int star = -1;
            int tried = 0;
            while (at < points.length) {
                if (wanted < pattern.length && pattern[wanted] == '*') {
                    star = wanted++;
                    tried = at;
                } else if (wanted < pattern.length
                        && (pattern[wanted] == '?' || pattern[wanted] == points[at])) {
                    at++;
                    wanted++;
                } else if (star >= 0) {
                    wanted = star + 1;
                    at = ++tried;
                } else {
                    return false;
                }
            }
            while (wanted < pattern.length && pattern[wanted] == '*') {
                wanted++;
            }
            return wanted == pattern.length;
        }

        private static int[] codePoints(String text) {
            int[] points = new int[text.codePointCount(0, text.length())];
            for (int at = 0, i = 0; at < text.length(); i++) {
                points[i] = text.codePointAt(at);
                at += Character.charCount(points[i]);
            }
            return points;
        }
    }
}
