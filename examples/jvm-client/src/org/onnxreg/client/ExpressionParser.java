package org.onnxreg.client;

import java.util.ArrayList;
import java.util.List;

/**
 * The parser of docs/query.md. It reads tokens from left to right; each method has its production above it.
 */
final class ExpressionParser {
    private static final int MAX_DEPTH = 64;

    private final String source;
    private final Vocabulary vocabulary;
    private final List<Token> tokens;
    private int at;
    private int depth;

    ExpressionParser(String source, Vocabulary vocabulary) {
        this.source = source;
        this.vocabulary = vocabulary;
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
        List<Expression> parts = new ArrayList<Expression>();
        do {
            parts.add(conditions());
        } while (accept("or"));
        return new Expression.Combination(parts, false);
    }

    /** conditions = condition {"and" condition} */
    private Expression conditions() {
        List<Expression> parts = new ArrayList<Expression>();
        do {
            parts.add(condition());
        } while (accept("and"));
        return new Expression.Combination(parts, true);
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
        Expression part = isNegation ? new Expression.Negation(condition()) : alternatives();
        depth--;
        if (!isNegation) {
            require(")", "and, or, or )");
        }
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
        return new Expression.Flag(field);
    }

    /** Return true for a value and {@code in}, without the bracket of a list of values. */
    private boolean isMembership() {
        int in = at + (after(1).is("not") ? 2 : 1);
        boolean isValue = Kind.TEXT.isWrittenAs(next().type) || next().type == Token.Type.NUMBER;
        return isValue && after(in - at).is("in") && !after(in + 1 - at).is("(");
    }

    /** membership = text ["not"] "in" LIST */
    private Expression membership() {
        String value = (String) literal(Kind.TEXT);
        boolean isNegated = accept("not");
        require("in", "in");
        Token start = next();
        Field field = field();
        if (field.kind != Kind.LIST) {
            throw wrong(start, "expected channels or providers, or values in brackets");
        }
        return new Expression.Membership(field, value, isNegated);
    }

    /** relation = ("=" | "==" | "!=" | "<" | "<=" | ">" | ">=") value | "~" text */
    private Expression relation(Field field, Token start) {
        Token sign = next();
        at++;
        checkComparable(field, start);
        boolean isText = field.kind == Kind.TEXT;
        if (sign.text.equals("~")) {
            if (!isText && field.kind != Kind.VERSION) {
                throw wrong(sign, field.name + " is a " + field.kind + ", which has no patterns");
            }
            return new Expression.Match(field, (String) literal(Kind.TEXT));
        }
        if (isText && (sign.text.startsWith("<") || sign.text.startsWith(">"))) {
            throw wrong(sign, field.name + " is a text, which has no order");
        }
        return new Expression.Relation(field, sign.text, literal(field.kind));
    }

    /** choice = ["not"] "in" "(" value {"," value} ")" */
    private Expression choice(Field field, Token start) {
        checkComparable(field, start);
        boolean isNegated = accept("not");
        require("in", "in");
        require("(", "(");
        List<Object> values = new ArrayList<Object>();
        do {
            values.add(literal(field.kind));
        } while (accept(","));
        require(")", ", or )");
        return new Expression.Choice(field, values, isNegated);
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
        if (vocabulary.isLabelled(name)) {
            String label = dot < 0 ? "" : start.text.substring(dot + 1);
            return Field.labelled(name, label.isEmpty() ? label(start) : label);
        }
        Kind kind = vocabulary.kind(start.text);
        if (kind == null) {
            throw wrong(start, "no field " + Values.brief(start.text) + " exists");
        }
        return new Field(start.text, kind);
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
        } catch (InputException error) {
            throw wrong(token, "expected a " + kind + ": " + error.getMessage());
        }
    }

    private Token next() {
        return tokens.get(at);
    }

    /** Return the token so many places after the next one. */
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

    private ExpressionException expected(String wanted) {
        String actual = next().text.isEmpty() ? "it ends here" : "it has " + Values.brief(next().text);
        return wrong(next(), "expected " + wanted + "; " + actual);
    }

    private ExpressionException wrong(Token token, String message) {
        return Token.wrong(source, token.start, token.end, message);
    }
}
