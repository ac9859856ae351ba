package org.onnxreg.client;

import java.io.File;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/** Deletes the files that no release needs. */
final class Tidying {
    private final Storage storage;

    Tidying(Storage storage) {
        this.storage = storage;
    }

    void run(long budget) {
        storage.deleteTemporaries();
        deleteExcept(storage.list("partial"), Collections.<String>emptySet());
        List<String> models = storage.models();
        Collections.sort(models, new OldestUpdate());
        deleteUnneeded(models);
        for (String model : models) {
            if (size() <= budget) {
                return;
            }
            Slot slot = read(model);
            if (slot.previous != null) {
                save(model, slot.withoutPrevious());
                deleteUnneeded(models);
            }
        }
    }

    private void deleteUnneeded(List<String> models) {
        Set<String> needed = new HashSet<String>();
        for (String model : models) {
            for (Release release : read(model).releases()) {
                needed.add(Values.hex(release.manifest));
                for (ReleaseFile file : release.files) {
                    needed.add(Values.hex(file.digest));
                }
            }
        }
        deleteExcept(storage.list("blobs"), needed);
    }

    private void deleteExcept(List<File> files, Set<String> needed) {
        for (File file : files) {
            if (!needed.contains(file.getName())) {
                storage.delete(file);
            }
        }
    }

    private long size() {
        long size = 0;
        for (File file : storage.list("blobs")) {
            size += file.length();
        }
        return size;
    }

    private Slot read(String model) {
        return Slot.read(storage.load(storage.slot(model)));
    }

    /** Write a slot, which keeps the time of its last update. */
    private void save(String model, Slot slot) {
        File file = storage.slot(model);
        long time = file.lastModified();
        storage.save(file, slot.write().getBytes(StandardCharsets.UTF_8));
        file.setLastModified(time);
    }

    private final class OldestUpdate implements Comparator<String> {
        @Override
        public int compare(String one, String other) {
            return Long.compare(storage.slot(one).lastModified(), storage.slot(other).lastModified());
        }
    }
}
