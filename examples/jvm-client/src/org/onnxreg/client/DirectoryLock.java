package org.onnxreg.client;

import java.io.Closeable;
import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.channels.FileLock;
import java.util.HashSet;
import java.util.Set;

/** The right to change a directory: one thread of one process has it. It ends with its process. */
final class DirectoryLock implements Closeable {
    private static final Set<String> TAKEN = new HashSet<String>();
    private static final long POLL_MILLISECONDS = 20;

    private final String path;
    private final RandomAccessFile file;

    private DirectoryLock(String path, RandomAccessFile file) {
        this.path = path;
        this.file = file;
    }

    static DirectoryLock take(File file, Cancellation cancellation) {
        try {
            String path = file.getCanonicalPath();
            while (!reserve(path)) {
                cancellation.pause(POLL_MILLISECONDS);
            }
            return lock(path, cancellation);
        } catch (IOException error) {
            throw new LocalException("locking " + file, error);
        }
    }

    private static DirectoryLock lock(String path, Cancellation cancellation) throws IOException {
        RandomAccessFile file = null;
        boolean isLocked = false;
        try {
            file = new RandomAccessFile(path, "rw");
            FileLock lock = file.getChannel().tryLock();
            while (lock == null) {
                cancellation.pause(POLL_MILLISECONDS);
                lock = file.getChannel().tryLock();
            }
            isLocked = true;
            return new DirectoryLock(path, file);
        } finally {
            if (!isLocked) {
                release(path);
                if (file != null) {
                    file.close();
                }
            }
        }
    }

    @Override
    public void close() {
        try {
            file.close();
        } catch (IOException error) {
            throw new LocalException("unlocking " + path, error);
        } finally {
            release(path);
        }
    }

    private static boolean reserve(String path) {
        synchronized (TAKEN) {
            return TAKEN.add(path);
        }
    }

    private static void release(String path) {
        synchronized (TAKEN) {
            TAKEN.remove(path);
        }
    }
}
