package org.onnxreg.client;

import java.util.Collections;
import java.util.List;
import java.util.Map;

/** A file of a release. */
public final class ReleaseFile {
    /** The role of the file, such as {@code artifact}, {@code tokenizer}, {@code labels}, {@code golden}. */
    public final String role;
    /** The path of the file in the version. */
    public final String path;
    /** The digest of the file, {@code sha256:<64 hex digits>}. */
    public final String digest;
    /** The size of the file in bytes. */
    public final long size;
    /** The size of a piece in bytes, and the digests of the pieces. A file without pieces is one piece. */
    final long pieceSize;
    final List<String> pieces;

    ReleaseFile(String role, String path, String digest, long size) {
        this.role = role;
        this.path = path;
        this.digest = digest;
        this.size = size;
        pieceSize = Math.max(1, size);
        pieces = Collections.singletonList(digest);
    }

    ReleaseFile(Object json) {
        Map<String, Object> value = Values.mapping(json);
        role = Values.text(value.get("role"));
        path = Values.text(value.get("path"));
        digest = Values.digest(value.get("digest"));
        size = Values.count(value.get("size"));
        Map<String, Object> table = Values.mappingOrEmpty(value.get("pieces"));
        pieceSize = table.isEmpty() ? Math.max(1, size) : Values.count(table.get("size"));
        pieces = table.isEmpty() ? Collections.singletonList(digest) : Values.digests(table.get("digests"));
        if (!table.isEmpty() && (pieceSize < 1 || pieces.size() != (size + pieceSize - 1) / pieceSize)) {
            throw RegException.input("the pieces of " + path + " do not make the file");
        }
    }

    Map<String, Object> toJson() {
        Map<String, Object> value = Values.table("role", role, "path", path, "digest", digest, "size", size);
        if (pieces.size() > 1) {
            value.put("pieces", Values.table("size", pieceSize, "digests", pieces));
        }
        return value;
    }
}
