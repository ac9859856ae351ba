package org.onnxreg.client;

import java.io.Closeable;
import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** A lock on a directory: one thread of one process may change it. The lock ends with the process. */
final class DirectoryLock implements Closeable {
    /** The paths that this process locks. A second handle on such a file would, when it is closed, end the lock. */
    private static final Set<String> TAKEN = ConcurrentHashMap.newKeySet();
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
            while (!TAKEN.add(path)) {
                cancellation.pause(POLL_MILLISECONDS);
            }
            RandomAccessFile opened = null;
            try {
                opened = new RandomAccessFile(path, "rw");
                while (opened.getChannel().tryLock() == null) {
                    cancellation.pause(POLL_MILLISECONDS);
                }
                return new DirectoryLock(path, opened);
            } catch (IOException | RuntimeException error) {
                new DirectoryLock(path, opened).close();
                throw error;
            }
        } catch (IOException error) {
            throw RegException.local("locking " + file, error);
        }
    }

    @Override
    public void close() {
        try {
            if (file != null) {
                file.close();
            }
        } catch (IOException error) {
            throw RegException.local("unlocking " + path, error);
        } finally {
            TAKEN.remove(path);
        }
    }
}
