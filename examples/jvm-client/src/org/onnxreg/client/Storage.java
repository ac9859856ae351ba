package org.onnxreg.client;

import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import java.security.DigestInputStream;
import java.security.DigestOutputStream;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.UUID;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

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
    private static final Pattern DOCUMENT =
            Pattern.compile("\"(?:checkpoint|operators|statement)\":\"sha256:([0-9a-f]{64})\"");
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

    /** Return how many bytes of a file are here or have arrived. */
    long here(String digest) {
        return Math.max(blob(digest).length(), partial(digest).length());
    }

    boolean has(ReleaseFile file) {
        return blob(file.digest).length() == file.size && blob(file.digest).isFile();
    }

    private List<String> models() {
        return list("slots", false).stream().map(file -> file.getName().replace('~', '/'))
                .collect(Collectors.toList());
    }

    /** Return the complete files of a folder, or the temporary ones. */
    private List<File> list(String folder, boolean isTemporary) {
        File[] files = new File(root, folder).listFiles(file -> file.getName().endsWith(".tmp") == isTemporary);
        return files == null ? Collections.emptyList() : Arrays.asList(files);
    }

    /** Return the bytes of a file, or null if it is missing. */
    byte[] load(File file) {
        try {
            return file.isFile() ? Files.readAllBytes(file.toPath()) : null;
        } catch (IOException error) {
            throw RegException.local("reading " + file, error);
        }
    }

    /** Write a file, which is complete or absent at any moment. */
    void save(File file, byte[] bytes) {
        try {
            write(file, output -> output.write(bytes));
        } catch (IOException error) {
            throw RegException.local("writing " + file, error);
        }
    }

    private interface Writer {
        void write(OutputStream output) throws IOException;
    }

    private static void write(File file, Writer writer) throws IOException {
        File fresh = new File(file.getParentFile(), UUID.randomUUID() + ".tmp");
        try {
            try (FileOutputStream output = new FileOutputStream(fresh)) {
                writer.write(output);
                output.getFD().sync();
            }
            move(fresh, file);
        } finally {
            Files.deleteIfExists(fresh.toPath());
        }
    }

    static void move(File source, File target) throws IOException {
        Files.move(source.toPath(), target.toPath(), StandardCopyOption.ATOMIC_MOVE);
    }

    void delete(File file) {
        try {
            Files.deleteIfExists(file.toPath());
        } catch (IOException error) {
            throw RegException.local("deleting " + file, error);
        }
    }

    String digest(File file) {
        MessageDigest digest = Sha256.start();
        byte[] buffer = new byte[BUFFER];
        try (InputStream input = new DigestInputStream(Files.newInputStream(file.toPath()), digest)) {
            while (input.read(buffer) >= 0) {
                // The stream hashes what it reads.
            }
            return Sha256.written(digest.digest());
        } catch (IOException error) {
            throw RegException.local("reading " + file, error);
        }
    }

    /** Copy a blob to its own path below a directory, and verify the bytes that were written. */
    void extract(File blob, ReleaseFile file, File directory) {
        try {
            File target = new File(directory, file.path);
            String root = directory.getCanonicalPath() + File.separator;
            if (!target.getCanonicalPath().equals(root + file.path.replace('/', File.separatorChar))) {
                throw RegException.integrity("a release has a file with the path " + Values.brief(file.path));
            }
            Files.createDirectories(target.getParentFile().toPath());
            MessageDigest digest = Sha256.start();
            write(target, output -> {
                Files.copy(blob.toPath(), new DigestOutputStream(output, digest));
                if (!Sha256.written(digest.digest()).equals(file.digest)) {
                    throw RegException.integrity(file.path + " changed while it was copied");
                }
            });
        } catch (IOException error) {
            throw RegException.local("writing " + file.path, error);
        }
    }

    Slot readSlot(String name) {
        byte[] bytes = load(slot(name));
        return bytes == null ? Slot.empty()
                : RegException.reading("the slot of " + name + " was changed", () -> Slot.read(bytes));
    }

    void saveSlot(String name, Slot slot) {
        save(slot(name), slot.write().getBytes(StandardCharsets.UTF_8));
    }

    /** Return the releases whose files are kept. */
    List<Release> releases() {
        List<Release> releases = new ArrayList<>();
        for (String model : models()) {
            releases.addAll(readSlot(model).releases());
        }
        return releases;
    }

    /** Delete the files that no release needs. While the rest exceeds the budget, delete previous releases too. */
    void tidy(long budget) {
        for (String folder : Values.keys("index slots blobs")) {
            list(folder, true).forEach(this::delete); // a killed process left it half written
        }
        list("partial", false).forEach(this::delete);
        List<String> models = models();
        models.sort(Comparator.comparingLong(model -> slot(model).lastModified()));
        deleteUnneeded();
        for (String model : models) {
            Slot slot = readSlot(model);
            if (slot.previous != null && list("blobs", false).stream().mapToLong(File::length).sum() > budget) {
                long time = slot(model).lastModified();
                saveSlot(model, slot.withoutPrevious());
                slot(model).setLastModified(time); // that of its last update
                deleteUnneeded();
            }
        }
    }

    /** Return the documents that the last seen states name. An update without a network reads them. */
    private Set<String> documents() {
        Set<String> found = new HashSet<>();
        for (File index : list("index", false)) {
            List<File> texts = new ArrayList<>(Collections.singletonList(index));
            RegException.reading("the state in " + index + " was changed", () -> SeenIndex.read(load(index)))
                    .state.segments().forEach(digest -> texts.add(blob(digest)));
            texts.removeIf(text -> !text.isFile());
            for (File text : texts) {
                found.add(text.getName());
                Matcher match = DOCUMENT.matcher(new String(load(text), StandardCharsets.UTF_8));
                while (match.find()) {
                    found.add(match.group(1));
                }
            }
        }
        return found;
    }

    private void deleteUnneeded() {
        Set<String> needed = documents();
        for (Release release : releases()) {
            needed.add(Values.hex(release.manifest));
            release.files.forEach(file -> needed.add(Values.hex(file.digest)));
        }
        for (File blob : list("blobs", false)) {
            if (!needed.contains(blob.getName())) {
                delete(blob);
            }
        }
    }

    private File inside(String folder, String name) {
        File directory = new File(root, folder);
        try {
            Files.createDirectories(directory.toPath());
        } catch (IOException error) {
            throw RegException.local("creating " + directory, error);
        }
        return new File(directory, name);
    }

    private static String fileName(String model) {
        return Values.modelName(model).replace('/', '~');
    }
}
