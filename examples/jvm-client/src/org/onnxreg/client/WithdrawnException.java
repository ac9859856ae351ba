package org.onnxreg.client;

/** The version was yanked, or its files are gone. */
final class WithdrawnException extends NotFoundException {
    private static final long serialVersionUID = 1;

    WithdrawnException(String message) {
        super(message);
    }
}
