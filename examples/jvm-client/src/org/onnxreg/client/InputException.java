package org.onnxreg.client;

/** A document or an argument is malformed. */
public class InputException extends RegException {
    private static final long serialVersionUID = 1;

    InputException(String message) {
        super(Family.INPUT, message);
    }
}
