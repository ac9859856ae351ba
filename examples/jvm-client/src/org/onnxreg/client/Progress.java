package org.onnxreg.client;

/** Counts the bytes of an update that have arrived, and ends the update if it is cancelled. */
final class Progress {
    private final UpdateOptions options;
    private final long total;
    private long done;

    Progress(UpdateOptions options, long total) {
        this.options = options;
        this.total = total;
    }

    /** Return a progress with the same cancellation, but without a listener. */
    Progress silent() {
        return new Progress(new UpdateOptions().cancellation(options.cancellation), 0);
    }

    void add(long bytes) {
        if (bytes != 0) {
            done += bytes;
            options.listener.onProgress(done, total);
        }
    }

    void arrived(Listener.Arrival arrival) {
        options.listener.onArrival(arrival);
    }

    void check() {
        options.cancellation.check();
    }

    Cancellation cancellation() {
        return options.cancellation;
    }
}
