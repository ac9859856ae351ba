package org.onnxreg.client;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A condition of docs/query.md over a candidate. Every test of an unknown value is false. */
interface Expression {
    boolean matches(Map<String, Object> candidate);

    /** Read a condition over a candidate: docs/query.md, "Fields". */
    static Expression ofCandidate(String source) {
        return new Parser(source, Field.CANDIDATE).parse();
    }

    /** Read a condition over a device document: docs/rollouts.md, "Who is in". */
    static Expression ofDevice(String source) {
        return new Parser(source, Field.DEVICE).parse();
    }

    /** An expression is malformed. {@link #start} and {@link #end} are the wrong part, in code points. */
    final class Malformed extends RegException {
        private static final long serialVersionUID = 1;
        final int start;
        final int end;

        /** @param start of the wrong part in UTF-16 units, like its end */
        Malformed(String source, int start, int end, String message) {
            super(Family.INPUT, "the expression cannot be read: " + message);
            this.start = source.codePointCount(0, start);
            this.end = source.codePointCount(0, end);
        }
    }
}

/** The parser of docs/query.md. It reads tokens from left to right; each method has its production above it. */
final class Parser {
    private static final int MAX_DEPTH = 64;
    private final String source;
    private final Map<String, Kind> fields;
    private final List<Token> tokens;
    private int at;
    private int depth;

    Parser(String source, Map<String, Kind> fields) {
        this.source = source;
        this.fields = fields;
        tokens = Token.of(source);
    }

    /** expression = alternatives END */
    Expression parse() {
        Expression whole = alternatives();
        if (next().type != Token.Type.END) {
            throw expected("and, or, or the end");
        }
        return whole;
    }

    /** alternatives = conditions {"or" conditions} */
    private Expression alternatives() {
        List<Expression> parts = new ArrayList<>();
        do {
            parts.add(conditions());
        } while (accept("or"));
        return row -> parts.stream().anyMatch(part -> part.matches(row));
    }

    /** conditions = condition {"and" condition} */
    private Expression conditions() {
        List<Expression> parts = new ArrayList<>();
        do {
            parts.add(condition());
        } while (accept("and"));
        return row -> parts.stream().allMatch(part -> part.matches(row));
    }

    /** condition = "not" condition | "(" alternatives ")" | test */
    private Expression condition() {
        boolean isNegation = next().is("not");
        if (!isNegation && !next().is("(")) {
            return test();
        }
        if (depth == MAX_DEPTH) {
            throw wrong(next(), "it is nested deeper than " + MAX_DEPTH + " levels");
        }
        depth++;
        at++;
        Expression part = isNegation ? condition() : alternatives();
        depth--;
        if (isNegation) {
            return row -> !part.matches(row);
        }
        require(")", "and, or, or )");
        return part;
    }

    /** test = text ["not"] "in" LIST | field [relation] */
    private Expression test() {
        if (isMembership()) {
            return membership();
        }
        Token start = next();
        Field field = field();
        if (next().type == Token.Type.OPERATOR) {
            return relation(field, start);
        }
        if (next().is("not") || next().is("in")) {
            return choice(field, start);
        }
        if (field.kind != Kind.FLAG) {
            throw expected("a comparison: " + field.name + " is neither true nor false");
        }
        return row -> Boolean.TRUE.equals(field.read(row));
    }

    /** Return true for a value and {@code in}, without the bracket of a list of values. */
    private boolean isMembership() {
        int in = at + (after(1).is("not") ? 2 : 1);
        boolean isValue = Kind.TEXT.isWrittenAs(next().type) || next().type == Token.Type.NUMBER;
        return isValue && after(in - at).is("in") && !after(in + 1 - at).is("(");
    }

    /** membership = text ["not"] "in" LIST */
    private Expression membership() {
        Object value = literal(Kind.TEXT);
        boolean isNegated = accept("not");
        require("in", "in");
        Token start = next();
        Field field = field();
        if (field.kind != Kind.LIST) {
            throw wrong(start, "expected channels or providers, or values in brackets");
        }
        return row -> {
            List<?> list = (List<?>) field.read(row);
            return list != null && list.contains(value) != isNegated;
        };
    }

    /** relation = ("=" | "==" | "!=" | "<" | "<=" | ">" | ">=") value | "~" text */
    private Expression relation(Field field, Token start) {
        Token token = next();
        String sign = token.text;
        at++;
        checkComparable(field, start);
        boolean isText = field.kind == Kind.TEXT;
        if (sign.equals("~")) {
            if (!isText && field.kind != Kind.VERSION) {
                throw wrong(token, field.name + " is a " + field.kind + ", which has no patterns");
            }
            int[] pattern = ((String) literal(Kind.TEXT)).codePoints().toArray();
            return row -> {
                String actual = (String) field.read(row);
                return actual != null && fits(pattern, actual.codePoints().toArray());
            };
        }
        if (isText && (sign.startsWith("<") || sign.startsWith(">"))) {
            throw wrong(token, field.name + " is a text, which has no order");
        }
        Object value = literal(field.kind);
        return row -> {
            Object actual = field.read(row);
            int order = actual == null ? 0 : field.kind.compare(actual, value);
            boolean isMet = sign.equals("!=") ? order != 0
                    : order == 0 ? sign.contains("=") : sign.startsWith(order < 0 ? "<" : ">");
            return actual != null && isMet;
        };
    }

    /** Match {@code *} and {@code ?}. It never goes back further than the last {@code *}. */
    private static boolean fits(int[] pattern, int[] text) {
        int at = 0;
        int wanted = 0;
        int star = -1;
        int tried = 0;
        while (at < text.length) {
            if (wanted < pattern.length && pattern[wanted] == '*') {
                star = wanted++;
                tried = at;
            } else if (wanted < pattern.length && (pattern[wanted] == '?' || pattern[wanted] == text[at])) {
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

    /** choice = ["not"] "in" "(" value {"," value} ")" */
    private Expression choice(Field field, Token start) {
        checkComparable(field, start);
        boolean isNegated = accept("not");
        require("in", "in");
        require("(", "(");
        List<Object> values = new ArrayList<>();
        do {
            values.add(literal(field.kind));
        } while (accept(","));
        require(")", ", or )");
        return row -> {
            Object actual = field.read(row);
            return actual != null
                    && values.stream().anyMatch(value -> field.kind.compare(actual, value) == 0) != isNegated;
        };
    }

    private void checkComparable(Field field, Token start) {
        if (field.kind == Kind.FLAG) {
            throw wrong(start, field.name + " is true or false by itself and is not compared");
        }
        if (field.kind == Kind.LIST) {
            throw wrong(start, field.name + " is a list and is not compared");
        }
    }

    /** field = NAME | ("recall" | "metric") ("." LABEL | "[" QUOTED "]") */
    private Field field() {
        Token start = next();
        if (start.type != Token.Type.WORD) {
            throw expected("a field, such as size, on the left");
        }
        at++;
        int dot = start.text.indexOf('.');
        String name = dot < 0 ? start.text : start.text.substring(0, dot);
        if (Field.LABELLED.contains(name) && fields.containsKey(name)) {
            String label = dot < 0 ? "" : start.text.substring(dot + 1);
            return Field.labelled(name, label.isEmpty() ? label(start) : label);
        }
        Kind kind = fields.get(start.text);
        if (kind == null) {
            throw wrong(start, "no field " + Values.brief(start.text) + " exists");
        }
        return new Field(start.text, kind, null);
    }

    private String label(Token field) {
        if (!accept("[")) {
            throw wrong(field, "expected the name of the " + field.text);
        }
        Token label = next();
        if (label.type != Token.Type.QUOTED) {
            throw expected("a label in quotes");
        }
        at++;
        require("]", "]");
        return label.content();
    }

    /** value = text | version | size | number, as the field requires */
    private Object literal(Kind kind) {
        Token token = next();
        if (!kind.isWrittenAs(token.type)) {
            throw expected("a " + kind);
        }
        at++;
        try {
            return kind.read(token.content());
        } catch (RegException error) {
            throw wrong(token, "expected a " + kind + ": " + error.getMessage());
        }
    }

    private Token next() {
        return tokens.get(at);
    }

    /** Return the token this many places after the next one. */
    private Token after(int places) {
        return tokens.get(Math.min(at + places, tokens.size() - 1));
    }

    private boolean accept(String word) {
        boolean isNext = next().is(word);
        at += isNext ? 1 : 0;
        return isNext;
    }

    private void require(String word, String wanted) {
        if (!accept(word)) {
            throw expected(wanted);
        }
    }

    private RegException expected(String wanted) {
        String actual = next().text.isEmpty() ? "it ends here" : "it has " + Values.brief(next().text);
        return wrong(next(), "expected " + wanted + "; " + actual);
    }

    private RegException wrong(Token token, String message) {
        return new Expression.Malformed(source, token.start, token.end, message);
    }
}

/** A token of an expression and its place in the source. */
final class Token {
    /** The types of tokens, in the order of the groups of the pattern. */
    enum Type { SPACE, WORD, NUMBER, QUOTED, OPERATOR, MARK, KEYWORD, END }

    private static final Pattern PATTERN = Pattern.compile(
            "([ \\t\\r\\n]+)"
            + "|([A-Za-z_][A-Za-z0-9_./+-]*)"
            + "|([0-9][A-Za-z0-9.+-]*)"
            + "|('[^']*'|\"[^\"]*\")"
            + "|(==|!=|<=|>=|[=<>~])"
            + "|([()\\[\\],])");
    private static final List<String> KEYWORDS = Arrays.asList("and", "or", "not", "in");
    private static final int MAX_LENGTH = 4096;
    final Type type;
    final String text;
    final int start;
    final int end;

    private Token(Type type, String text, int start) {
        this.type = type;
        this.text = text;
        this.start = start;
        end = start + text.length();
    }

    boolean is(String word) {
        return (type == Type.KEYWORD || type == Type.MARK) && text.equals(word);
    }

    /** Return the text of a token that is a value, without its quotes. */
    String content() {
        return type == Type.QUOTED ? text.substring(1, text.length() - 1) : text;
    }

    /** Return the tokens, and one of type END behind them. */
    static List<Token> of(String source) {
        checkCharacters(source);
        List<Token> tokens = new ArrayList<>();
        Matcher matcher = PATTERN.matcher(source);
        int at = 0;
        while (at < source.length()) {
            if (!matcher.find(at) || matcher.start() != at) {
                throw unexpected(source, at);
            }
            Type type = typeOf(matcher);
            if (type != Type.SPACE) {
                tokens.add(new Token(type, matcher.group(), at));
            }
            at = matcher.end();
        }
        tokens.add(new Token(Type.END, "", at));
        return tokens;
    }

    private static Type typeOf(Matcher matcher) {
        if (KEYWORDS.contains(matcher.group())) {
            return Type.KEYWORD;
        }
        int group = 1;
        while (matcher.group(group) == null) {
            group++;
        }
        return Type.values()[group - 1];
    }

    private static void checkCharacters(String source) {
        int length = source.codePointCount(0, source.length());
        if (length > MAX_LENGTH) {
            throw new Expression.Malformed(source, source.offsetByCodePoints(0, MAX_LENGTH), source.length(),
                    "it is longer than " + MAX_LENGTH + " characters");
        }
        for (int at = 0; at < source.length(); at += Character.charCount(source.codePointAt(at))) {
            if (Character.getType(source.codePointAt(at)) == Character.SURROGATE) {
                throw new Expression.Malformed(source, at, at + 1, "a character is cut in two");
            }
        }
    }

    private static RegException unexpected(String source, int at) {
        int end = at + Character.charCount(source.codePointAt(at));
        String character = source.substring(at, end);
        if (character.equals("'") || character.equals("\"")) {
            return new Expression.Malformed(source, at, source.length(),
                    "the text that begins with " + character + " has no end");
        }
        return new Expression.Malformed(source, at, end, "'" + character + "' is not part of the language");
    }
}

/** A field of a candidate or a device. */
final class Field {
    static final Map<String, Kind> CANDIDATE = new HashMap<>();
    static final Map<String, Kind> DEVICE = new HashMap<>();
    /** The fields that are written with a label. */
    static final List<String> LABELLED = Arrays.asList("recall", "metric");
    private static final String RECALL = "character_recall/";

    static {
        add(CANDIDATE, Kind.TEXT,
                "name manifest task family license profile format precision path digest state");
        add(CANDIDATE, Kind.VERSION, "version");
        add(CANDIDATE, Kind.LIST, "channels providers");
        add(CANDIDATE, Kind.FLAG, "newest prerelease yanked pinned certified");
        add(CANDIDATE, Kind.SIZE, "size download_size");
        add(CANDIDATE, Kind.NUMBER, "opset ort_format metric latency");
        add(CANDIDATE, Kind.SHARE, "recall min_recall");
        add(DEVICE, Kind.TEXT, "name build platform abi locale");
        add(DEVICE, Kind.VERSION, "ort app_version");
        add(DEVICE, Kind.LIST, "providers");
        add(DEVICE, Kind.SIZE, "ram free_space");
    }

    final String name;
    final Kind kind;
    /** The label of {@code recall.LABEL} or {@code metric.NAME}; null for other fields. */
    private final String label;

    Field(String name, Kind kind, String label) {
        this.name = name;
        this.kind = kind;
        this.label = label;
    }

    /** Return one number of a field that has several. */
    static Field labelled(String name, String label) {
        if (name.equals("recall")) {
            return new Field(name, Kind.SHARE, label);
        }
        return label.startsWith(RECALL) ? labelled("recall", label.substring(RECALL.length()))
                : new Field(name, Kind.NUMBER, label);
    }

    private static void add(Map<String, Kind> fields, Kind kind, String names) {
        for (String name : Values.keys(names)) {
            fields.put(name, kind);
        }
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

/** The kinds of fields: how their values are written and compared. */
enum Kind {
    TEXT, VERSION, LIST, FLAG, SIZE, NUMBER, SHARE;

    private static final Pattern NUMERAL = Pattern.compile("([0-9]+)(?:\\.([0-9]+))?([A-Za-z]*)");
    private static final int MAX_DIGITS = 15;

    @Override
    public String toString() {
        return name().toLowerCase(Locale.ROOT);
    }

    /** Return true if a value of this kind may be written as such a token. */
    boolean isWrittenAs(Token.Type type) {
        boolean isPlain = type == (this == TEXT ? Token.Type.WORD : Token.Type.NUMBER);
        return isPlain || ((this == TEXT || this == VERSION) && type == Token.Type.QUOTED);
    }

    /** Read a written value. */
    Object read(String written) {
        if (this == TEXT) {
            return written;
        }
        if (this == VERSION) {
            return Version.parse(written).text;
        }
        Matcher number = NUMERAL.matcher(written);
        if (!number.matches() || (this != SIZE && !number.group(3).isEmpty())) {
            throw RegException.input("it is not a number");
        }
        String part = number.group(2) == null ? "" : number.group(2);
        if (number.group(1).length() + part.length() > MAX_DIGITS) {
            throw RegException.input("it has more than " + MAX_DIGITS + " digits");
        }
        if (this == SIZE) {
            return Values.bytes(number.group(1), part, number.group(3));
        }
        double value = Double.parseDouble(written);
        if (this == SHARE && value > 1) {
            throw RegException.input("it is more than 1");
        }
        return value;
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

    /** Compare two values. Texts have no order: they are equal or not. */
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
}
