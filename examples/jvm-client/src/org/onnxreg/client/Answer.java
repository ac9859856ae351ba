package org.onnxreg.client;

import java.util.Collections;
import java.util.List;

/** The answer to a question: one artifact of one version, and why the others were rejected. */
public final class Answer {
    /** The version of the artifact; null if nothing matches. */
    public final String version;
    /** The path of the artifact in its version; null if nothing matches. */
    public final String artifact;
    /** The digest of the artifact's main file; null if nothing matches. */
    public final String digest;
    /** Bytes of the whole download; 0 if nothing matches. */
    public final long size;
    /** Every candidate that was considered and rejected. */
    public final List<Rejection> rejected;

    /** True if the registry could not be reached, so that the last seen state answered. */
    public final boolean isOffline;
    /** True if the registry sent an older state than the last seen one, so that the last seen state answered. */
    public final boolean isStale;
    /** The state that answered. */
    final State state;

    Answer(String version, Artifact artifact, List<Rejection> rejected, State state, boolean isOffline,
            boolean isStale) {
        this.version = version;
        this.artifact = artifact == null ? null : artifact.path;
        this.digest = artifact == null ? null : artifact.digest;
        this.size = artifact == null ? 0 : artifact.download;
        this.rejected = Collections.unmodifiableList(rejected);
        this.state = state;
        this.isOffline = isOffline;
        this.isStale = isStale;
    }

    /** Return true if an artifact matches. */
    public boolean matches() {
        return artifact != null;
    }
}
