package org.onnxreg.client;

import java.io.DataInputStream;
import java.io.IOException;

/** A span of a delta: it makes the next bytes of the new file. */
final class Span {
    static final int COPY = 0;
    static final int LITERAL = 1;
    static final int DIFFERENCE = 2;
    private static final int FLOAT = 1;
    private static final int SPARSE = 2;
    private static final long MAX_LENGTH = 1 << 20;
    private static final long MAX_PAYLOAD = 2 << 20;

    final int operation;
    final int width;
    final int mode;
    final int source;
    final long length;
    final long offset;
    final long payload;

    Span(DataInputStream input) throws IOException {
        operation = input.readUnsignedByte();
        width = input.readUnsignedByte();
        mode = input.readUnsignedByte();
        source = input.readUnsignedByte();
        length = Integer.reverseBytes(input.readInt()) & 0xFFFFFFFFL;
        offset = Long.reverseBytes(input.readLong());
        payload = Integer.reverseBytes(input.readInt()) & 0xFFFFFFFFL;
    }

    boolean isFloat() {
        return (mode & FLOAT) != 0;
    }

    boolean isSparse() {
        return (mode & SPARSE) != 0;
    }

    /** @param rest bytes of the new file that are still missing */
    void check(long rest, long[] oldSizes) {
        if (length < 1 || length > rest) {
            throw DeltaReader.malformed("has a span that is empty or too long");
        }
        if (!isPlain()) {
            throw DeltaReader.malformed("has a span that its operation does not allow");
        }
        if (operation != COPY && (length > MAX_LENGTH || payload < 1 || payload > MAX_PAYLOAD)) {
            throw DeltaReader.malformed("has a span over a block");
        }
        if (operation != LITERAL && !isInside(oldSizes)) {
            throw DeltaReader.malformed("reads after the end of an old file");
        }
    }

    private boolean isInside(long[] oldSizes) {
        return source < oldSizes.length && offset >= 0 && length <= oldSizes[source]
                && offset <= oldSizes[source] - length;
    }

    private boolean isPlain() {
        switch (operation) {
            case COPY:
                return width == 0 && mode == 0 && payload == 0;
            case LITERAL:
                return width == 0 && mode == 0 && source == 0 && offset == 0;
            case DIFFERENCE:
                boolean isWidth = width == 1 || width == 2 || width == 4 || width == 8;
                return isWidth && mode <= (FLOAT | SPARSE) && length % width == 0;
            default:
                return false;
        }
    }
}
