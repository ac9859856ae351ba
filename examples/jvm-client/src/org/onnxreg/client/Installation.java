package org.onnxreg.client;

import java.io.BufferedInputStream;
import java.io.Closeable;
import java.io.File;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.RandomAccessFile;
import java.util.ArrayList;
import java.util.HashMap;
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
    /** An intermediate file of a chain has at most so many times the bytes of the last one. */
    private static final int MAX_LINK_GROWTH = 4;

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
                progress.arrived(new Arrival(file, Route.WHOLE, "it was here"));
            } else if (missing.put(file.digest, file) == null) {
                sizes.put(file.digest, file.size);
            } else {
                progress.add(file.size);
            }
        }
        RoutePlan plan = new RoutePlan(sizes, present, offered, downloads.rate(), RoutePlan.APPLY_RATE);
        for (Map.Entry<String, Route> entry : plan.routes().entrySet()) {
            ReleaseFile file = missing.get(entry.getKey());
            progress.arrived(new Arrival(file, entry.getValue(), install(file, entry.getValue())));
        }
    }

    /** Install a file, and return why its deltas did not make it; empty if they did. */
    private String install(ReleaseFile file, Route route) throws IOException {
        PartialFile partial = new PartialFile(storage.partial(file.digest), file, progress);
        try {
            String reason = route.deltas.isEmpty() ? "no delta was better" : make(file, route, partial);
            int repaired = downloads.complete(file, partial, progress);
            String wrong = repaired + " of " + file.pieces.size() + " pieces came out wrong";
            return reason.isEmpty() && repaired > 0 ? wrong : reason;
        } finally {
            partial.close();
        }
    }

    /** Apply the deltas of a route; on any doubt the rest is left to the download. */
    private String make(ReleaseFile file, Route route, PartialFile partial) throws IOException {
        Map<String, File> links = new HashMap<String, File>();
        List<File> fetched = new ArrayList<File>();
        for (Delta delta : route.deltas) {
            // A table may name a file of a release as a delta: that one stays.
            if (!storage.blob(delta.digest).exists()) {
                fetched.add(storage.blob(delta.digest));
            }
        }
        try {
            for (String digest : route.needs()) {
                if (!storage.blob(digest).isFile()) {
                    return "an old file did not arrive";
                }
            }
            for (Delta delta : route.deltas) {
                boolean isLast = delta == route.deltas.get(route.deltas.size() - 1);
                if (isLast) {
                    apply(delta, links, partial);
                } else {
                    links.put(delta.newDigest, link(delta, links, MAX_LINK_GROWTH * file.size));
                }
            }
            return "";
        } catch (IntegrityException error) {
            return error.getMessage();
        } catch (NotFoundException error) {
            return error.getMessage();
        } catch (RemoteException error) {
            return error.getMessage();
        } finally {
            for (File link : links.values()) {
                storage.delete(link);
            }
            for (File delta : fetched) {
                storage.delete(delta);
            }
        }
    }

    /** Make an intermediate file of a chain. */
    private File link(Delta delta, Map<String, File> links, long limit) throws IOException {
        File path = new File(storage.partial(delta.newDigest).getPath() + ".link");
        storage.delete(path);
        ReleaseFile file = new ReleaseFile("link", "an earlier file", delta.newDigest, limit);
        PartialFile partial = new PartialFile(path, file, progress.silent());
        links.put(delta.newDigest, path);
        try {
            apply(delta, links, partial);
        } finally {
            partial.close();
        }
        return path;
    }

    private void apply(Delta delta, Map<String, File> links, PartialFile output) throws IOException {
        downloads.fetch(new ReleaseFile("delta", "a delta", delta.digest, delta.size), progress.silent());
        List<StoredFile> old = new ArrayList<StoredFile>();
        InputStream input = new BufferedInputStream(new FileInputStream(storage.blob(delta.digest)), BUFFER);
        try {
            for (String digest : delta.oldDigests) {
                File link = links.get(digest);
                old.add(new StoredFile(link == null ? storage.blob(digest) : link));
            }
            DeltaReader.apply(input, delta.newDigest, delta.oldDigests, old, output);
        } finally {
            input.close();
            for (StoredFile file : old) {
                file.close();
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
