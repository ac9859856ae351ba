package org.onnxreg.client;

/** The caller cancelled the call. What has arrived stays, and the next call continues from it. */
public final class CancelledException extends RegException {
    private static final long serialVersionUID = 1;

    CancelledException(String message) {
        super(Family.CANCELLED, message);
    }
}
