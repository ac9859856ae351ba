package org.onnxreg.client;

/** No such model, version, artifact or file exists. */
public class NotFoundException extends RegException {
    private static final long serialVersionUID = 1;

    NotFoundException(String message) {
        super(Family.NOT_FOUND, message);
    }
}
