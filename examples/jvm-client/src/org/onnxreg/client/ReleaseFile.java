package org.onnxreg.client;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** A file of a release. */
public final class ReleaseFile {
    /** Its role, such as {@code artifact}, {@code tokenizer}, {@code labels}, {@code golden}. */
    public final String role;
    /** Its path in the version. */
    public final String path;
    /** Its digest, {@code sha256:<64 hex digits>}. */
    public final String digest;
    /** Its bytes. */
    public final long size;
    /** Bytes of a piece, and the digest of each; one piece if the manifest names none. */
    final long pieceSize;
    final List<String> pieces;

    ReleaseFile(String role, String path, String digest, long size) {
        this.role = role;
        this.path = path;
        this.digest = Values.digest(digest);
        this.size = size;
        pieceSize = Math.max(1, size);
        pieces = Collections.singletonList(digest);
    }

    private ReleaseFile(String role, Map<String, Object> value, Map<String, Object> table) {
        this.role = role;
        path = Values.text(value.get("path"));
        digest = Values.digest(value.get("digest"));
        size = Values.count(value.get("size"));
        pieceSize = Values.count(table.get("size"));
        pieces = Values.digests(table.get("digests"));
        if (pieceSize < 1 || pieces.size() != size / pieceSize + (size % pieceSize == 0 ? 0 : 1)) {
            throw new InputException("the pieces of " + path + " do not make the file");
        }
    }

    static ReleaseFile read(String role, Map<String, Object> value) {
        if (value.get("pieces") != null) {
            return new ReleaseFile(role, value, Values.mapping(value.get("pieces")));
        }
        String path = Values.text(value.get("path"));
        return new ReleaseFile(role, path, Values.digest(value.get("digest")),
                Values.count(value.get("size")));
    }

    Map<String, Object> toJson() {
        Map<String, Object> value = new LinkedHashMap<String, Object>();
        value.put("role", role);
        value.put("path", path);
        value.put("digest", digest);
        value.put("size", size);
        if (pieces.size() > 1) {
            Map<String, Object> table = new LinkedHashMap<String, Object>();
            table.put("size", pieceSize);
            table.put("digests", pieces);
            value.put("pieces", table);
        }
        return value;
    }
}
