package org.onnxreg.client;

import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.BitSet;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.zip.DataFormatException;
import java.util.zip.Inflater;

/**
 * Applies a delta (docs/delta.md): it makes a new file from old ones, with one block in memory.
 *
 * <p>A delta is not trusted: the caller checks the digest of the new file.
 */
final class DeltaReader {
    private static final String MAGIC = "ONXDELT1";
    private static final int MAX_HEADER = 65536;
    private static final int MAX_OLD = 16;
    private static final int BLOCK = 1 << 20;
    private final DataInputStream input;
    private final List<? extends OldFile> oldFiles;
    private final Output output;

    /** An old file, which can be read at any offset. */
    interface OldFile {
        /** Read exactly this many bytes, or throw EOFException. */
        void read(long offset, byte[] into, int length) throws IOException;
    }

    /** Takes the bytes of the new file in their order. */
    interface Output {
        /** Return how many bytes at the start of the new file are there already, and need not be made. */
        long skipped();

        void write(byte[] bytes, int offset, int length) throws IOException;
    }

    private DeltaReader(InputStream input, List<? extends OldFile> oldFiles, Output output) {
        this.input = new DataInputStream(input);
        this.oldFiles = oldFiles;
        this.output = output;
    }

    /** Make a new file. Throw an integrity error if the delta is malformed or is for other files. */
    static void apply(InputStream input, String newDigest, List<String> oldDigests,
            List<? extends OldFile> oldFiles, Output output) throws IOException {
        try {
            new DeltaReader(input, oldFiles, output).apply(newDigest, oldDigests);
        } catch (EOFException error) {
            throw malformed("ends early, or an old file does");
        }
    }

    private void apply(String newDigest, List<String> oldDigests) throws IOException {
        Map<String, Object> header = readHeader();
        Map<String, Object> target = Values.mapping(header.get("new"));
        List<Map<String, Object>> old = Values.mappings(header.get("old"));
        List<String> digests = Values.each(old, file -> Values.text(Values.mapping(file).get("digest")));
        if (!newDigest.equals(target.get("digest")) || !digests.equals(oldDigests)) {
            throw malformed("is for other files than its table says");
        }
        long[] sizes = old.stream().mapToLong(file -> Values.count(file.get("size"))).toArray();
        long size = Values.count(target.get("size"));
        for (long done = 0; done < size;) {
            Span span = new Span(input);
            span.check(size - done, sizes);
            make(span, done);
            done += span.length;
        }
        if (input.read() >= 0) {
            throw malformed("continues after its last span");
        }
    }

    private Map<String, Object> readHeader() throws IOException {
        if (!new String(take(MAGIC.length()), StandardCharsets.ISO_8859_1).equals(MAGIC)) {
            throw malformed("is not one, or has a later format");
        }
        long size = Integer.toUnsignedLong(Integer.reverseBytes(input.readInt()));
        if (size > MAX_HEADER) {
            throw malformed("has a header that is too long");
        }
        byte[] bytes = take((int) size);
        return RegException.reading("the header of a delta", () -> {
            Map<String, Object> header = Values.mapping(JsonReader.read(bytes));
            requireKeys(header, "format format_version new old");
            requireDescriptor(Values.mapping(header.get("new")));
            List<Map<String, Object>> old = Values.mappings(header.get("old"));
            old.forEach(DeltaReader::requireDescriptor);
            if (!"onnxreg-delta".equals(header.get("format"))
                    || !Long.valueOf(1).equals(header.get("format_version")) || old.isEmpty() || old.size() > MAX_OLD) {
                throw malformed("has a header of another version");
            }
            return header;
        });
    }

    private static void requireDescriptor(Map<String, Object> value) {
        requireKeys(value, "digest size");
        Values.digest(value.get("digest"));
        Values.count(value.get("size"));
    }

    private static void requireKeys(Map<String, Object> value, String keys) {
        if (!value.keySet().equals(new HashSet<>(Values.keys(keys)))) {
            throw malformed("has other keys than a header");
        }
    }

    /** Make the bytes of one span, or pass over it if they are there already. */
    private void make(Span span, long start) throws IOException {
        byte[] payload = take((int) span.payload);
        if (start + span.length <= output.skipped()) {
            return;
        }
        if (span.operation == Span.COPY) {
            copy(span, start);
        } else if (span.operation == Span.LITERAL) {
            write(inflate(payload, (int) span.length, (int) span.length), (int) span.length, start);
        } else {
            write(difference(span, payload), (int) span.length, start);
        }
    }

    private void copy(Span span, long start) throws IOException {
        byte[] block = new byte[(int) Math.min(BLOCK, span.length)];
        for (long at = 0; at < span.length; at += block.length) {
            int size = (int) Math.min(block.length, span.length - at);
            oldFiles.get(span.source).read(span.offset + at, block, size);
            write(block, size, start + at);
        }
    }

    /** Return a block of an old file with the differences of the payload added to its numbers. */
    private byte[] difference(Span span, byte[] payload) throws IOException {
        int length = (int) span.length;
        int elements = length / span.width;
        int mask = span.isSparse() ? (elements + 7) / 8 : 0;
        byte[] data = inflate(payload, span.isSparse() ? mask : length, mask + length);
        byte[] block = new byte[length];
        oldFiles.get(span.source).read(span.offset, block, length);
        BitSet changed = changed(data, mask, elements);
        int size = span.isSparse() ? changed.cardinality() : elements;
        if (data.length - mask != (long) size * span.width) {
            throw malformed("does not have one number for each changed element");
        }
        int element = -1;
        for (int i = 0; i < size; i++) {
            element = span.isSparse() ? changed.nextSetBit(element + 1) : i;
            long zigzag = span.isSparse() ? 1 : 0;
            for (int plane = 0; plane < span.width; plane++) {
                zigzag += (data[mask + plane * size + i] & 0xFFL) << (8 * plane);
            }
            zigzag &= span.bits();
            add(span, block, span.width * element, (zigzag >>> 1) ^ -(zigzag & 1));
        }
        return block;
    }

    /** Return the numbers of the elements whose bits are set in a mask, whose first bit is the highest. */
    private static BitSet changed(byte[] mask, int size, int elements) {
        BitSet changed = new BitSet();
        for (int i = 0; i < 8 * size; i++) {
            changed.set(i, (mask[i >> 3] & (128 >> (i & 7))) != 0);
        }
        if (changed.length() > elements && size > 0) {
            throw malformed("has bits after the last element");
        }
        return changed;
    }

    /** Add a difference to a little-endian integer, or to the integer whose order is the order of a float. */
    private static void add(Span span, byte[] block, int at, long difference) {
        long value = 0;
        for (int i = 0; i < span.width; i++) {
            value |= (block[at + i] & 0xFFL) << (8 * i);
        }
        long sign = 1L << (8 * span.width - 1);
        if (span.isFloat()) {
            long ordered = ((value & sign) == 0 ? value | sign : ~value) + difference;
            value = (ordered & sign) == 0 ? ~ordered : ordered & ~sign;
        } else {
            value += difference;
        }
        for (int i = 0; i < span.width; i++) {
            block[at + i] = (byte) (value >>> (8 * i));
        }
    }

    /** Inflate raw deflated data, all of which must be used. */
    private static byte[] inflate(byte[] payload, int least, int most) {
        Inflater inflater = new Inflater(true);
        try {
            inflater.setInput(payload);
            byte[] bytes = new byte[most];
            int size = 0;
            int count = 1;
            while (size < most && count > 0) {
                count = inflater.inflate(bytes, size, most - size);
                size += count;
            }
            if (!inflater.finished() && inflater.inflate(new byte[1]) > 0) {
                throw malformed("inflates to more bytes than it states");
            }
            if (!inflater.finished() || inflater.getRemaining() > 0) {
                throw malformed("has a payload that does not end with its data");
            }
            if (size < least) {
                throw malformed("inflates to fewer bytes than it states");
            }
            return Arrays.copyOf(bytes, size);
        } catch (DataFormatException error) {
            throw malformed("has a payload that is not deflated data");
        } finally {
            inflater.end();
        }
    }

    private void write(byte[] bytes, int length, long start) throws IOException {
        int known = (int) Math.min(length, Math.max(0, output.skipped() - start));
        output.write(bytes, known, length - known);
    }

    private byte[] take(int size) throws IOException {
        byte[] bytes = new byte[size];
        input.readFully(bytes);
        return bytes;
    }

    private static RegException malformed(String fault) {
        return RegException.integrity("a delta " + fault);
    }

    /** A span of a delta: it makes the next bytes of the new file. */
    private static final class Span {
        static final int COPY = 0;
        static final int LITERAL = 1;
        static final int DIFFERENCE = 2;
        private static final int FLOAT = 1;
        private static final int SPARSE = 2;
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
            length = Integer.toUnsignedLong(Integer.reverseBytes(input.readInt()));
            offset = Long.reverseBytes(input.readLong());
            payload = Integer.toUnsignedLong(Integer.reverseBytes(input.readInt()));
        }

        boolean isFloat() {
            return (mode & FLOAT) != 0;
        }

        boolean isSparse() {
            return (mode & SPARSE) != 0;
        }

        /** The bits of an element. */
        long bits() {
            return -1L >>> (64 - 8 * width);
        }

        /** @param rest bytes of the new file that are still missing */
        void check(long rest, long[] oldSizes) {
            if (length < 1 || length > rest) {
                throw malformed("has a span that is empty or too long");
            }
            if (!isPlain()) {
                throw malformed("has a span that its operation does not allow");
            }
            if (operation != COPY && (length > BLOCK || payload < 1 || payload > MAX_PAYLOAD)) {
                throw malformed("has a span over a block");
            }
            boolean isInside = source < oldSizes.length && offset >= 0 && length <= oldSizes[source]
                    && offset <= oldSizes[source] - length;
            if (operation != LITERAL && !isInside) {
                throw malformed("reads after the end of an old file");
            }
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
}
