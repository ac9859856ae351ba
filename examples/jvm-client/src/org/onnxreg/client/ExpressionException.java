package org.onnxreg.client;

/**
 * A {@code where} expression is malformed. {@link #start} and {@link #end} are the wrong part, in code
 * points.
 */
public final class ExpressionException extends InputException {
    private static final long serialVersionUID = 1;

    /** The first code point of the wrong part. */
    public final int start;
    /** The code point after the wrong part. */
    public final int end;

    ExpressionException(String message, int start, int end) {
        super("the expression cannot be read: " + message);
        this.start = start;
        this.end = end;
    }
}
