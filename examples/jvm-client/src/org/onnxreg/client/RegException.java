package org.onnxreg.client;

import java.io.IOException;
import java.util.Collections;
import java.util.List;
import java.util.function.Supplier;

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
    /** If no artifact matches the question: every candidate, with the code of its rejection. */
    public final transient List<Rejection> rejected;

    RegException(Family family, String message) {
        this(family, message, null, Collections.emptyList());
    }

    RegException(Family family, String message, Throwable cause, List<Rejection> rejected) {
        super(message, cause);
        this.family = family;
        this.rejected = rejected;
    }

    static RegException input(String message) {
        return new RegException(Family.INPUT, message);
    }

    static RegException notFound(String message) {
        return new RegException(Family.NOT_FOUND, message);
    }

    static RegException integrity(String message) {
        return new RegException(Family.INTEGRITY, message);
    }

    static RegException cancelled(String message) {
        return new RegException(Family.CANCELLED, message);
    }

    static RegException local(String action, IOException cause) {
        return new RegException(
                Family.LOCAL, action + " failed: " + cause.getMessage(), cause, Collections.emptyList());
    }

    /** Return true if no server is the cause: the device failed, or the caller cancelled the call. */
    boolean isOfDevice() {
        return family == Family.LOCAL || family == Family.CANCELLED;
    }

    /** Read a document that was sent or stored. If it is malformed, throw an integrity error, not an input error. */
    static <T> T reading(String document, Supplier<T> reader) {
        try {
            return reader.get();
        } catch (RegException error) {
            throw error.family == Family.INPUT ? integrity(document + ": " + error.getMessage()) : error;
        }
    }

    /** The server or the network failed. */
    static final class Remote extends RegException {
        private static final long serialVersionUID = 1;
        /** True if a retry may help. */
        final boolean isPassing;
        /** The status of the server's answer; 0 without one. */
        final int status;
        /** Seconds that the server asks to wait; 0 if it does not say. */
        final long retryAfter;

        Remote(String message, boolean isPassing) {
            this(message, isPassing, 0, 0);
        }

        Remote(String message, boolean isPassing, int status, long retryAfter) {
            super(Family.REMOTE, message);
            this.isPassing = isPassing;
            this.status = status;
            this.retryAfter = retryAfter;
        }
    }
}
