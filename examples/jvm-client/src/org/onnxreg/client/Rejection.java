package org.onnxreg.client;

/** A candidate that was rejected. The codes are defined in docs/resolve.md. */
public final class Rejection {
    /** The version of the candidate. */
    public final String version;
    /** The path of the artifact; null if the whole version was rejected. */
    public final String artifact;
    /** The first requirement that the candidate does not meet. */
    public final String code;
    /** The code in words, for people. They may change. */
    public final String detail;

    Rejection(String version, String artifact, String code, String detail) {
        this.version = version;
        this.artifact = artifact;
        this.code = code;
        this.detail = detail;
    }

    @Override
    public String toString() {
        return version + " " + (artifact == null ? "" : artifact + " ") + detail;
    }
}
