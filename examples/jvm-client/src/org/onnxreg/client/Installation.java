package org.onnxreg.client;

import java.io.BufferedInputStream;
import java.io.Closeable;
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

/**
 * Brings the files of a release into the storage: made by deltas as far as they help, and fetched otherwise.
 */
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

    /** @param earlier digests of files that are here */
    void install(Release release, Set<String> earlier, List<Delta> offered) throws IOException {
        Map<String, ReleaseFile> missing = new LinkedHashMap<String, ReleaseFile>();
        Map<String, Long> sizes = new LinkedHashMap<String, Long>();
        Set<String> present = new HashSet<String>(earlier);
        for (ReleaseFile file : release.files) {
            if (storage.has(file)) {
                present.add(file.digest);
                progress.add(file.size);
                progress.arrived(new Arrival(file, null, "it was here"));
            } else if (missing.put(file.digest, file) == null) {
                sizes.put(file.digest, file.size);
            } else {
                progress.add(file.size);
            }
        }
        Map<String, Delta> chosen = Offers.choose(offered, sizes, present);
        for (ReleaseFile file : missing.values()) {
            Delta delta = chosen.get(file.digest);
            progress.arrived(new Arrival(file, delta, install(file, delta)));
        }
    }

    /** Install a file, and return why its delta did not make it; empty if it did. */
    private String install(ReleaseFile file, Delta delta) throws IOException {
        PartialFile partial = new PartialFile(storage.partial(file.digest), file, progress);
        try {
            String reason = delta == null ? "no delta from a file that is here" : make(delta, partial);
            int repaired = downloads.complete(file, partial, progress);
            String wrong = repaired + " of " + file.pieces.size() + " pieces came out wrong";
            return reason.isEmpty() && repaired > 0 ? wrong : reason;
        } finally {
            partial.close();
        }
    }

    /** Apply a delta; on any doubt the rest is left to the download. */
    private String make(Delta delta, PartialFile output) throws IOException {
        // A table may name a file of a release as a delta: that one stays.
        boolean isFetched = !storage.blob(delta.digest).exists();
        List<StoredFile> old = new ArrayList<StoredFile>();
        try {
            downloads.fetch(new ReleaseFile("delta", "a delta", delta.digest, delta.size), progress.silent());
            for (String digest : delta.oldDigests) {
                old.add(new StoredFile(storage.blob(digest)));
            }
            InputStream input = new BufferedInputStream(new FileInputStream(storage.blob(delta.digest)), BUFFER);
            try {
                DeltaReader.apply(input, delta.newDigest, delta.oldDigests, old, output);
            } finally {
                input.close();
            }
            return "";
        } catch (IntegrityException error) {
            return error.getMessage();
        } catch (NotFoundException error) {
            return error.getMessage();
        } catch (RemoteException error) {
            return error.getMessage();
        } finally {
            for (StoredFile file : old) {
                file.close();
            }
            if (isFetched) {
                storage.delete(storage.blob(delta.digest));
            }
        }
    }

    /** A file of the storage, read anywhere. */
    private static final class StoredFile implements DeltaReader.OldFile, Closeable {
        private final RandomAccessFile file;

        StoredFile(File path) throws IOException {
            file = new RandomAccessFile(path, "r");
        }

        @Override
        public void read(long offset, byte[] into, int length) throws IOException {
            file.seek(offset);
            file.readFully(into, 0, length);
        }

        @Override
        public void close() throws IOException {
            file.close();
        }
    }
}
