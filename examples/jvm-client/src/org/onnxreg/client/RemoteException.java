package org.onnxreg.client;

/** The server or the network failed. */
public final class RemoteException extends RegException {
    private static final long serialVersionUID = 1;

    /** True if a retry may help. */
    public final boolean isPassing;
    /** The status of the server's answer; 0 without one. */
    final int status;
    /** Seconds that the server asks to wait; 0 if it does not say. */
    final long retryAfter;

    RemoteException(String message, boolean isPassing) {
        this(message, isPassing, 0, 0);
    }

    RemoteException(String message, boolean isPassing, int status, long retryAfter) {
        super(Family.REMOTE, message);
        this.isPassing = isPassing;
        this.status = status;
        this.retryAfter = retryAfter;
    }
}
