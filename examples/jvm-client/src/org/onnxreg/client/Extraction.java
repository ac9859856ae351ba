package org.onnxreg.client;

import java.io.File;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.security.MessageDigest;
import java.util.UUID;

/** Copies files of a release to their own paths below a directory. */
final class Extraction {
    private static final int BUFFER = 1 << 16;

    private final Storage storage;
    private final File directory;

    Extraction(Storage storage, File directory) {
        this.storage = storage;
        this.directory = directory;
    }

    /** Copy a blob, and verify the bytes that were written before they get the path of the file. */
    void copy(File source, ReleaseFile file) {
        try {
            File target = target(file.path);
            File fresh = new File(target.getParentFile(), UUID.randomUUID() + ".tmp");
            try {
                if (!copy(source, fresh).equals(file.digest)) {
                    throw new IntegrityException(file.path + " changed while it was copied");
                }
                storage.move(fresh, target);
            } finally {
                storage.delete(fresh);
            }
        } catch (IOException error) {
            throw new LocalException("writing " + file.path, error);
        }
    }

    /** Return the file that a path names, which must be a plain relative path. */
    private File target(String path) throws IOException {
        File file = new File(directory, path);
        String root = directory.getCanonicalPath() + File.separator;
        if (!file.getCanonicalPath().equals(root + path.replace('/', File.separatorChar))) {
            throw new IntegrityException("a release has a file with the path " + Values.brief(path));
        }
        File parent = file.getParentFile();
        if (!parent.isDirectory() && !parent.mkdirs() && !parent.isDirectory()) {
            throw new IOException("cannot create " + parent);
        }
        return file;
    }

    /** Return the digest of what was copied. */
    private static String copy(File source, File target) throws IOException {
        MessageDigest digest = Sha256.start();
        InputStream input = new FileInputStream(source);
        try {
            FileOutputStream output = new FileOutputStream(target);
            try {
                byte[] buffer = new byte[BUFFER];
                for (int count = input.read(buffer); count >= 0; count = input.read(buffer)) {
                    digest.update(buffer, 0, count);
                    output.write(buffer, 0, count);
                }
                output.getFD().sync();
            } finally {
                output.close();
            }
        } finally {
            input.close();
        }
        return Sha256.written(digest.digest());
    }
}
