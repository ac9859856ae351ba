package org.onnxreg.client;

/** How a file arrived. */
public final class Arrival {
    /** The path of the file in its version. */
    public final String path;
    /** Bytes of the file. */
    public final long size;
    /** The deltas of its route; 0 if it was fetched whole, or was here. */
    public final int deltas;
    /** Bytes of these deltas. */
    public final long deltaBytes;
    /** Why the deltas did not make the whole file; empty if they did. */
    public final String reason;

    Arrival(ReleaseFile file, Route route, String reason) {
        path = file.path;
        size = file.size;
        deltas = route.deltas.size();
        deltaBytes = route.size;
        this.reason = reason;
    }
}
