package org.onnxreg.client;

/** An error of this client. {@link #family} says what its reader can do next. */
public class RegException extends RuntimeException {
    /** The families of errors. */
    public enum Family {
        /** The question, a name or a setting is wrong: correct the program. */
        INPUT,
        /** No such model, version, artifact or file exists. */
        NOT_FOUND,
        /** The bytes are not those that were promised. None of them was handed out. */
        INTEGRITY,
        /** The server or the network failed: try again later. */
        REMOTE,
        /** The device failed, for example because its disk is full. */
        LOCAL,
        /** The self-test of the app refused the release. The current release stays. */
        SELF_TEST,
        /** The caller cancelled the call. */
        CANCELLED
    }

    private static final long serialVersionUID = 1;

    /** What the reader can do next. */
    public final Family family;

    RegException(Family family, String message) {
        super(message);
        this.family = family;
    }

    RegException(Family family, String message, Throwable cause) {
        super(message, cause);
        this.family = family;
    }
}
