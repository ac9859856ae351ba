package org.onnxreg.client;

import java.util.LinkedHashMap;
import java.util.Map;

/**
 * The keys that an app trusts, and what must be signed by one of them (docs/signing.md).
 *
 * <p>Without requirements no signature is checked: the first contact trusts the server, as https does.
 */
public final class Trust {
    private final Map<String, PublicKey> keys = new LinkedHashMap<>();
    private boolean hasReleases;
    private long firstLine = Long.MAX_VALUE;

    /** Trust a key, written as {@code reg key show} prints it. Ed25519 needs Java 15, or a platform that has it. */
    public Trust key(String text) {
        PublicKey key = PublicKey.parse(text);
        keys.put(key.id, key);
        return this;
    }

    /** Require that each release is signed, as by {@code reg sign}. */
    public Trust requireReleases() {
        hasReleases = true;
        return this;
    }

    /** Require a signature on each line of a log from this line on, and in any case on the last line. */
    public Trust requireLines(long since) {
        firstLine = since;
        return this;
    }

    boolean requiresReleases() {
        return hasReleases;
    }

    boolean requiresLine(long seq) {
        return seq >= firstLine;
    }

    boolean requiresLines() {
        return firstLine < Long.MAX_VALUE;
    }

    PublicKey keyOf(Object id) {
        return keys.get(id);
    }

    /** Return a text that changes with the required checks of lines. */
    String lineChecks() {
        return requiresLines() ? firstLine + " " + keys.keySet() : "";
    }
}
