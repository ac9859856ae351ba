package org.onnxreg.client;

/** The self-test of the app refused a release. The current release stays, and this one is not taken again. */
public final class SelfTestException extends RegException {
    private static final long serialVersionUID = 1;

    SelfTestException(String message, Throwable cause) {
        super(Family.SELF_TEST, message, cause);
    }
}
