package org.onnxreg.client;

import java.io.Closeable;
import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.List;

/** A file that is still arriving. It outlives the process, and is trusted only after all of it was hashed. */
final class PartialFile implements Closeable, DeltaReader.Output {
    private static final int BUFFER = 1 << 16;

    private final ReleaseFile target;
    private final Progress progress;
    private final RandomAccessFile file;
    private final MessageDigest digest = Sha256.start();
    private long size;

    /** Open the file and hash the bytes that are there. */
    PartialFile(File path, ReleaseFile target, Progress progress) throws IOException {
        this.target = target;
        this.progress = progress;
        file = new RandomAccessFile(path, "rw");
        if (file.length() > target.size) {
            file.setLength(0);
        }
        hash(digest, 0, file.length());
        size = file.length();
        progress.add(size);
    }

    @Override
    public long skipped() {
        return size;
    }

    @Override
    public void write(byte[] bytes, int offset, int length) throws IOException {
        progress.check();
        if (length > target.size - size) {
            throw RegException.integrity("the bytes of " + target.path + " are more than its manifest says");
        }
        file.seek(size);
        file.write(bytes, offset, length);
        digest.update(bytes, offset, length);
        size += length;
        progress.add(length);
    }

    /** Return true if every byte has arrived and the digest is right. Call it once, and after each repair. */
    boolean isRight() {
        return size == target.size && Sha256.written(digest.digest()).equals(target.digest);
    }

    /** Return the numbers of the pieces whose digest is wrong. */
    List<Integer> wrongPieces() throws IOException {
        List<Integer> wrong = new ArrayList<>();
        for (int number = 0; number < target.pieces.size(); number++) {
            MessageDigest piece = Sha256.start();
            hash(piece, start(number), end(number));
            if (!Sha256.written(piece.digest()).equals(target.pieces.get(number))) {
                wrong.add(number);
            }
        }
        return wrong;
    }

    long start(int piece) {
        return piece * target.pieceSize;
    }

    long end(int piece) {
        return Math.min(start(piece) + target.pieceSize, target.size);
    }

    /** Replace bytes of a complete file. */
    void replace(long position, byte[] bytes, int offset, int length) throws IOException {
        progress.check();
        file.seek(position);
        file.write(bytes, offset, length);
    }

    /** Hash the whole file again, after a repair. */
    void rehash() throws IOException {
        digest.reset();
        hash(digest, 0, size);
    }

    void sync() throws IOException {
        file.getFD().sync();
    }

    @Override
    public void close() throws IOException {
        file.close();
    }

    private void hash(MessageDigest into, long start, long end) throws IOException {
        byte[] buffer = new byte[BUFFER];
        file.seek(start);
        for (long left = end - start; left > 0;) {
            progress.check();
            int count = file.read(buffer, 0, (int) Math.min(buffer.length, left));
            if (count < 0) {
                throw new IOException("the file became shorter");
            }
            into.update(buffer, 0, count);
            left -= count;
        }
    }
}
