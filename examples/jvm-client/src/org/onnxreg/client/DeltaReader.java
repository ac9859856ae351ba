package org.onnxreg.client;

import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.zip.DataFormatException;
import java.util.zip.Inflater;

/**
 * Applies a delta (docs/delta.md): the bytes of a new file from old ones, in memory for one block.
 *
 * <p>Nobody trusts a delta: the caller checks the digest of the file that comes out.
 */
final class DeltaReader {
    private static final String MAGIC = "ONXDELT1";
    private static final int MAX_HEADER = 65536;
    private static final int MAX_OLD = 16;
    private static final int BLOCK = 1 << 20;

    private final DataInputStream input;
    private final List<? extends OldFile> oldFiles;
    private final Output output;

    /** An old file, which is read anywhere. */
    interface OldFile {
        /** Read exactly so many bytes, or throw EOFException. */
        void read(long offset, byte[] into, int length) throws IOException;
    }

    /** Takes the bytes of the new file in their order. */
    interface Output {
        /** Return the bytes from the start of the new file that are not wanted: they are there already. */
        long skipped();

        void write(byte[] bytes, int offset, int length) throws IOException;
    }

    private DeltaReader(InputStream input, List<? extends OldFile> oldFiles, Output output) {
        this.input = new DataInputStream(input);
        this.oldFiles = oldFiles;
        this.output = output;
    }

    /** Make a new file. IntegrityException if the delta is malformed or is for other files. */
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
        boolean isExpected = newDigest.equals(target.get("digest")) && old.size() == oldDigests.size();
        long[] sizes = new long[old.size()];
        for (int i = 0; isExpected && i < sizes.length; i++) {
            isExpected = oldDigests.get(i).equals(old.get(i).get("digest"));
            sizes[i] = Values.count(old.get(i).get("size"));
        }
        if (!isExpected) {
            throw malformed("is for other files than its table says");
        }
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
        byte[] magic = take(MAGIC.length());
        if (!new String(magic, StandardCharsets.ISO_8859_1).equals(MAGIC)) {
            throw malformed("is not one, or has a later format");
        }
        long size = Integer.reverseBytes(input.readInt()) & 0xFFFFFFFFL;
        if (size > MAX_HEADER) {
            throw malformed("has a header that is too long");
        }
        try {
            Map<String, Object> header = Values.mapping(JsonReader.read(take((int) size)));
            requireKeys(header, "format format_version new old");
            requireDescriptor(Values.mapping(header.get("new")));
            List<Map<String, Object>> old = Values.mappings(header.get("old"));
            for (Map<String, Object> file : old) {
                requireDescriptor(file);
            }
            boolean isKnown = "onnxreg-delta".equals(header.get("format"))
                    && Long.valueOf(1).equals(header.get("format_version"));
            if (!isKnown || old.isEmpty() || old.size() > MAX_OLD) {
                throw malformed("has a header of another version");
            }
            return header;
        } catch (InputException error) {
            throw malformed("has a header that cannot be read: " + error.getMessage());
        }
    }

    private static void requireDescriptor(Map<String, Object> value) {
        requireKeys(value, "digest size");
        Values.digest(value.get("digest"));
        Values.count(value.get("size"));
    }

    private static void requireKeys(Map<String, Object> value, String keys) {
        List<String> required = Values.keys(keys);
        if (value.size() != required.size() || !value.keySet().containsAll(required)) {
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
            write(inflate(payload, (int) span.length, (int) span.length), start);
        } else {
            write(difference(span, payload), start);
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

    private byte[] difference(Span span, byte[] payload) throws IOException {
        int length = (int) span.length;
        int elements = length / span.width;
        int mask = span.isSparse() ? (elements + 7) / 8 : 0;
        byte[] data = inflate(payload, span.isSparse() ? mask : length, mask + length);
        byte[] block = new byte[length];
        oldFiles.get(span.source).read(span.offset, block, length);
        int[] changed = span.isSparse() ? changed(data, mask, elements) : null;
        int size = changed == null ? elements : changed.length;
        if (data.length - mask != (long) size * span.width) {
            throw malformed("does not have one number for each changed element");
        }
        new Elements(block, span.width, span.isFloat()).add(data, mask, size, changed);
        return block;
    }

    /** Return the numbers of the elements whose bits are set. */
    private static int[] changed(byte[] mask, int size, int elements) {
        int count = 0;
        for (int i = 0; i < size; i++) {
            count += Integer.bitCount(mask[i] & 0xFF);
        }
        int[] changed = new int[count];
        int at = 0;
        for (int i = 0; i < 8 * size && at < count; i++) {
            if ((mask[i >> 3] & (128 >> (i & 7))) != 0) {
                changed[at++] = i;
            }
        }
        if (count > 0 && changed[count - 1] >= elements) {
            throw malformed("has bits after the last element");
        }
        return changed;
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
            return size == most ? bytes : Arrays.copyOf(bytes, size);
        } catch (DataFormatException error) {
            throw malformed("has a payload that is not deflated data");
        } finally {
            inflater.end();
        }
    }

    private void write(byte[] bytes, long start) throws IOException {
        write(bytes, bytes.length, start);
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

    static IntegrityException malformed(String fault) {
        return new IntegrityException("a delta " + fault);
    }
}
