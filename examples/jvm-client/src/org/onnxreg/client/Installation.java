package org.onnxreg.client;

import java.io.BufferedInputStream;
import java.io.File;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.RandomAccessFile;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** Brings the files of a release into the storage: it makes them by deltas if it can, and fetches the rest. */
final class Installation {
    private static final int BUFFER = 1 << 16;
    private final Downloads downloads;
    private final Storage storage;
    private final Progress progress;

    Installation(Downloads downloads, Progress progress) {
        this.downloads = downloads;
        this.storage = downloads.storage;
        this.progress = progress;
    }

    void install(Release release, List<Delta> offered) throws IOException {
        Set<String> present = new HashSet<>();
        for (Release other : storage.releases()) {
            other.files.stream().filter(storage::has).forEach(file -> present.add(file.digest));
        }
        Map<String, ReleaseFile> missing = new LinkedHashMap<>();
        Map<String, Long> sizes = new LinkedHashMap<>();
        for (ReleaseFile file : release.files) {
            if (storage.has(file)) {
                present.add(file.digest);
                progress.add(file.size);
                progress.arrived(new Listener.Arrival(file, null, "it was here"));
            } else if (missing.put(file.digest, file) == null) {
                sizes.put(file.digest, file.size);
            } else {
                progress.add(file.size);
            }
        }
        Map<String, Delta> chosen = Delta.choose(offered, sizes, present);
        for (ReleaseFile file : missing.values()) {
            Delta delta = chosen.get(file.digest);
            progress.arrived(new Listener.Arrival(file, delta, install(file, delta)));
        }
    }

    /** Install a file. Return the reason why its delta did not make it, or an empty text. */
    private String install(ReleaseFile file, Delta delta) throws IOException {
        try (PartialFile partial = new PartialFile(storage.partial(file.digest), file, progress)) {
            String reason = delta == null ? "no delta from a file that is here" : make(delta, partial);
            int repaired = downloads.complete(file, partial, progress);
            String wrong = repaired + " of " + file.pieces.size() + " pieces came out wrong";
            return reason.isEmpty() && repaired > 0 ? wrong : reason;
        }
    }

    /** Apply a delta. If it fails, the download gets the rest of the file. */
    private String make(Delta delta, PartialFile output) throws IOException {
        File blob = storage.blob(delta.digest);
        // A table may name a file of a release as a delta: that one stays.
        boolean isFetched = !blob.exists();
        List<RandomAccessFile> files = new ArrayList<>();
        List<DeltaReader.OldFile> old = new ArrayList<>();
        try {
            downloads.fetch(new ReleaseFile("delta", "a delta", delta.digest, delta.size), progress.silent());
            for (String digest : delta.oldDigests) {
                RandomAccessFile file = new RandomAccessFile(storage.blob(digest), "r");
                files.add(file);
                old.add((offset, into, length) -> {
                    file.seek(offset);
                    file.readFully(into, 0, length);
                });
            }
            try (InputStream input = new BufferedInputStream(new FileInputStream(blob), BUFFER)) {
                DeltaReader.apply(input, delta.newDigest, delta.oldDigests, old, output);
            }
            return "";
        } catch (RegException error) {
            if (error.isOfDevice()) {
                throw error;
            }
            return error.getMessage();
        } finally {
            for (RandomAccessFile file : files) {
                file.close();
            }
            if (isFetched) {
                storage.delete(blob);
            }
        }
    }
}
