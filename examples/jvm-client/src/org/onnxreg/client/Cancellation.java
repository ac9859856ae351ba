package org.onnxreg.client;

/** Lets another thread end a call. A call looks for it after each buffer, and keeps the bytes that have arrived. */
public final class Cancellation {
    private volatile boolean isCancelled;

    /** End the calls that have this cancellation. */
    public void cancel() {
        isCancelled = true;
    }

    /** Return true after {@link #cancel}. */
    public boolean isCancelled() {
        return isCancelled;
    }

    void check() {
        if (isCancelled) {
            throw RegException.cancelled("the call was cancelled");
        }
    }

    /** Wait, unless the call is cancelled or its thread interrupted. */
    void pause(long milliseconds) {
        long end = System.nanoTime() + milliseconds * 1000000;
        try {
            while (System.nanoTime() < end) {
                check();
                Thread.sleep(Math.min(50, Math.max(1, milliseconds)));
            }
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw RegException.cancelled("the thread was interrupted");
        }
    }
}
