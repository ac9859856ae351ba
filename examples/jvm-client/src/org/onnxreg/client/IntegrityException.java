package org.onnxreg.client;

/** The bytes are not those that were promised. None of them was handed out. */
public final class IntegrityException extends RegException {
    private static final long serialVersionUID = 1;

    IntegrityException(String message) {
        super(Family.INTEGRITY, message);
    }
}
