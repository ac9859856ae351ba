package org.onnxreg.client;

/** Follows an update. Its methods are called in the thread of the update. */
public abstract class Listener {
    /** Some bytes of a release are here. */
    public void onProgress(long done, long total) {}

    /** A file of a release is here, whole and verified. */
    public void onArrival(Arrival arrival) {}
}
