package org.onnxreg.client;

/** Follows an update. Its methods are called in the thread of the update. */
public abstract class Listener {
    /** Called when some bytes of a release have arrived. */
    public void onProgress(long done, long total) {}

    /** Called when a file of a release is here, whole and verified. */
    public void onArrival(Arrival arrival) {}

    /** How a file arrived. */
    public static final class Arrival {
        /** The path of the file in its version. */
        public final String path;
        /** Bytes of the file. */
        public final long size;
        /** 1 if a delta made the file; 0 if the file was fetched whole, or was here before. */
        public final int deltas;
        /** Bytes of the delta. */
        public final long deltaBytes;
        /** The reason why no delta made the whole file, or an empty text. */
        public final String reason;

        Arrival(ReleaseFile file, Delta delta, String reason) {
            path = file.path;
            size = file.size;
            deltas = delta == null ? 0 : 1;
            deltaBytes = delta == null ? 0 : delta.size;
            this.reason = reason;
        }
    }
}
