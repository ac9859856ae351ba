package org.onnxreg.client;

import java.io.File;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;

/**
 * The directory of a client.
 *
 * <pre>
 * index/NAME      the state that was seen last     slots/NAME   the current release and the previous one
 * blobs/HEX       a verified file                  partial/HEX  a file that arrives
 * seed a private random number lock held by the process that changes the directory
 * </pre>
 *
 * <p>NAME has a tilde instead of a slash. A file appears by a rename, after its bytes were synced.
 */
final class Storage {
    private static final int BUFFER = 1 << 16;

    private final File root;

    Storage(File root) {
        this.root = root;
    }

    File index(String name) {
        return inside("index", fileName(name));
    }

    File slot(String name) {
        return inside("slots", fileName(name));
    }

    File seed() {
        return inside(".", "seed");
    }

    File blob(String digest) {
        return inside("blobs", Values.hex(digest));
    }

    File partial(String digest) {
        return inside("partial", Values.hex(digest));
    }

    DirectoryLock lock(Cancellation cancellation) {
        return DirectoryLock.take(inside(".", "lock"), cancellation);
    }

    boolean has(ReleaseFile file) {
        return blob(file.digest).length() == file.size && blob(file.digest).isFile();
    }

    /** Return the names of the models that have a slot. */
    List<String> models() {
        List<String> names = new ArrayList<String>();
        for (File file : list("slots")) {
            names.add(file.getName().replace('~', '/'));
        }
        return names;
    }

    /** Return the complete files of a folder. */
    List<File> list(String folder) {
        List<File> files = new ArrayList<File>();
        File[] all = new File(root, folder).listFiles();
        for (File file : all == null ? new File[0] : all) {
            if (!file.getName().endsWith(".tmp")) {
                files.add(file);
            }
        }
        return files;
    }

    /** Return the bytes of a file; null if it is missing. */
    byte[] load(File file) {
        if (!file.isFile()) {
            return null;
        }
        try {
            RandomAccessFile input = new RandomAccessFile(file, "r");
            try {
                byte[] bytes = new byte[(int) input.length()];
                input.readFully(bytes);
                return bytes;
            } finally {
                input.close();
            }
        } catch (IOException error) {
            throw new LocalException("reading " + file, error);
        }
    }

    /** Write a file, which is complete or absent at any moment. */
    void save(File file, byte[] bytes) {
        File fresh = new File(file.getParentFile(), UUID.randomUUID() + ".tmp");
        try {
            FileOutputStream output = new FileOutputStream(fresh);
            try {
                output.write(bytes);
                output.getFD().sync();
            } finally {
                output.close();
            }
            move(fresh, file);
        } catch (IOException error) {
            delete(fresh);
            throw new LocalException("writing " + file, error);
        }
    }

    void move(File source, File target) throws IOException {
        if (!source.renameTo(target)) {
            throw new IOException("cannot rename " + source + " to " + target);
        }
    }

    void delete(File file) {
        if (!file.delete() && file.exists()) {
            throw new LocalException("deleting " + file, new IOException("the system refuses"));
        }
    }

    /** Delete what a killed process left half written. */
    void deleteTemporaries() {
        for (String folder : new String[] {"index", "slots", "blobs"}) {
            File[] files = new File(root, folder).listFiles();
            for (File file : files == null ? new File[0] : files) {
                if (file.getName().endsWith(".tmp")) {
                    delete(file);
                }
            }
        }
    }

    /** Return the digest of a file. */
    String digest(File file) {
        try {
            FileInputStream input = new FileInputStream(file);
            try {
                MessageDigest digest = Sha256.start();
                byte[] buffer = new byte[BUFFER];
                for (int count = input.read(buffer); count >= 0; count = input.read(buffer)) {
                    digest.update(buffer, 0, count);
                }
                return Sha256.written(digest.digest());
            } finally {
                input.close();
            }
        } catch (IOException error) {
            throw new LocalException("reading " + file, error);
        }
    }

    private File inside(String folder, String name) {
        File directory = new File(root, folder);
        if (!directory.isDirectory() && !directory.mkdirs() && !directory.isDirectory()) {
            throw new LocalException("creating " + directory, new IOException("the system refuses"));
        }
        return new File(directory, name);
    }

    private static String fileName(String model) {
        return Values.modelName(model).replace('/', '~');
    }
}
