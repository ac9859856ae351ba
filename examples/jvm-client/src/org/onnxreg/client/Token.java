package org.onnxreg.client;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

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

    private Token(Type type, String text, int start, int end) {
        this.type = type;
        this.text = text;
        this.start = start;
        this.end = end;
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
        List<Token> tokens = new ArrayList<Token>();
        Matcher matcher = PATTERN.matcher(source);
        int at = 0;
        while (at < source.length()) {
            if (!matcher.find(at) || matcher.start() != at) {
                throw unexpected(source, at);
            }
            Type type = typeOf(matcher);
            if (type != Type.SPACE) {
                tokens.add(new Token(type, matcher.group(), at, matcher.end()));
            }
            at = matcher.end();
        }
        tokens.add(new Token(Type.END, "", at, at));
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
            throw new ExpressionException("it is longer than " + MAX_LENGTH + " characters", MAX_LENGTH,
                    length);
        }
        for (int at = 0; at < source.length(); at += Character.charCount(source.codePointAt(at))) {
            int point = source.codePointAt(at);
            if (point >= Character.MIN_SURROGATE && point <= Character.MAX_SURROGATE) {
                throw wrong(source, at, at + 1, "a character is cut in two");
            }
        }
    }

    private static ExpressionException unexpected(String source, int at) {
        int end = at + Character.charCount(source.codePointAt(at));
        String character = source.substring(at, end);
        if (character.equals("'") || character.equals("\"")) {
            return wrong(source, at, source.length(), "the text that begins with " + character
                    + " has no end");
        }
        return wrong(source, at, end, "'" + character + "' is not part of the language");
    }

    /** Return an error about a part of the source, given in UTF-16 units. */
    static ExpressionException wrong(String source, int start, int end, String message) {
        return new ExpressionException(message, source.codePointCount(0, start),
                source.codePointCount(0, end));
    }
}
