package org.onnxreg.client;

import java.io.IOException;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

/** Fetches blobs into the storage, resumed and verified. A blob gets its final name only if its bytes are right. */
final class Downloads {
    private static final int BUFFER = 1 << 18;
    private static final int GENERATIONS = 8;
    final Storage storage;
    private final Http http;

    /** Takes the bytes of a blob. */
    private interface Sink {
        void write(long position, byte[] buffer, int offset, int length) throws IOException;
    }

    /** A part of a blob that is still arriving. */
    private static final class Part {
        long position;
        final long end;
        final Sink sink;

        Part(long start, long end, Sink sink) {
            this.position = start;
            this.end = end;
            this.sink = sink;
        }
    }

    Downloads(Http http, Storage storage) {
        this.http = http;
        this.storage = storage;
    }

    /** Read a small blob, from the storage or the registry. */
    byte[] document(String digest, Cancellation cancellation) {
        byte[] kept = storage.load(storage.blob(digest));
        if (kept != null && Sha256.of(kept).equals(digest)) {
            return kept;
        }
        byte[] fresh = fromAnyKey(digest, path -> http.document(path, "", cancellation).bytes);
        if (!Sha256.of(fresh).equals(digest)) {
            throw RegException.integrity("the registry sent other bytes than " + digest);
        }
        storage.save(storage.blob(digest), fresh);
        return fresh;
    }

    /** Ask for a blob under each of its keys. Some hosts answer 403, or a page, if a file is absent. */
    private static <T> T fromAnyKey(String digest, Function<String, T> ask) {
        String hex = Values.hex(digest);
        String key = "blobs/sha256/" + hex.substring(0, 2) + "/" + hex;
        RegException missing =
                RegException.notFound("the registry does not have " + digest + "; resolve again");
        for (int generation = 0; generation < GENERATIONS; generation++) {
            try {
                return ask.apply(generation == 0 ? key : key + "." + generation);
            } catch (RegException error) {
                boolean isForbidden = error instanceof RegException.Remote
                        && ((RegException.Remote) error).status == 403;
                if (!isForbidden && error.family != RegException.Family.NOT_FOUND) {
                    throw error;
                }
                missing = isForbidden ? error : missing;
            }
        }
        throw missing;
    }

    /** Complete a partial file, and give it its final name. Return the number of repaired pieces. */
    int complete(ReleaseFile file, PartialFile partial, Progress progress) throws IOException {
        Part rest = new Part(partial.skipped(), file.size,
                (position, buffer, offset, length) -> partial.write(buffer, offset, length));
        receive(file, rest, progress.cancellation());
        List<Integer> wrong = Collections.emptyList();
        if (!partial.isRight()) {
            wrong = partial.wrongPieces();
            for (int piece : wrong) {
                Part repaired = new Part(partial.start(piece), partial.end(piece), partial::replace);
                receive(file, repaired, progress.cancellation());
            }
            partial.rehash();
            if (!partial.isRight()) {
                storage.delete(storage.partial(file.digest));
                throw RegException.integrity("the registry sent other bytes than " + file.digest);
            }
        }
        partial.sync();
        Storage.move(storage.partial(file.digest), storage.blob(file.digest));
        return wrong.size();
    }

    /** Fetch a whole file, if it is not here. */
    void fetch(ReleaseFile file, Progress progress) throws IOException {
        if (storage.has(file)) {
            progress.add(file.size);
            return;
        }
        try (PartialFile partial = new PartialFile(storage.partial(file.digest), file, progress)) {
            complete(file, partial, progress);
        }
    }

    /** Receive the bytes of a part. Give up if several attempts in a row bring nothing. */
    private void receive(ReleaseFile file, Part part, Cancellation cancellation) throws IOException {
        int failures = 0;
        while (part.position < part.end) {
            long before = part.position;
            try {
                receiveOnce(file, part, cancellation);
            } catch (RegException.Remote error) {
                failures = part.position > before ? 0 : failures;
                http.waitBefore(failures++, error, cancellation);
            }
        }
    }

    private void receiveOnce(ReleaseFile file, Part part, Cancellation cancellation) throws IOException {
        long start = part.position;
        boolean isWhole = start == 0 && part.end == file.size;
        Map<String, String> headers = isWhole ? Collections.emptyMap()
                : Collections.singletonMap("Range", "bytes=" + start + "-" + (part.end - 1));
        try (HttpResponse response = fromAnyKey(file.digest, path -> http.open(path, headers, cancellation))) {
            String range = response.header("Content-Range");
            boolean isPart = response.status == 206;
            if (isPart && !range.isEmpty() && !range.startsWith("bytes " + start + "-")) {
                throw new RegException.Remote("the registry sent another part than the requested one", true);
            }
            copy(response, isPart ? 0 : start, part);
        }
    }

    private static void copy(HttpResponse response, long skip, Part part) throws IOException {
        byte[] buffer = new byte[BUFFER];
        long left = skip;
        while (part.position < part.end) {
            int count = response.read(buffer);
            if (count < 0) {
                throw new RegException.Remote("the registry sent fewer bytes than the manifest says", true);
            }
            int offset = (int) Math.min(left, count);
            left -= offset;
            int length = (int) Math.min(count - offset, part.end - part.position);
            part.sink.write(part.position, buffer, offset, length);
            part.position += length;
        }
    }
}
