package org.onnxreg.client;

import java.io.IOException;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

/**
 * Fetches blobs into the storage: resumed, verified, and visible under their final name only when they are
 * right.
 */
final class Downloads {
    private static final int BUFFER = 1 << 18;
    private static final int GENERATIONS = 8;
    final Storage storage;
    private final Http http;

    /** Takes the bytes of a part of a blob at its position, which it moves. */
    private abstract static class Target {
        abstract long position();

        abstract void write(byte[] buffer, int offset, int length) throws IOException;
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

    /** Ask for a blob under each of its keys. Some hosts answer 403, or a page, for what is absent. */
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

    /**
     * Complete a file that arrives, and give it its final name. Return the number of pieces that were
     * repaired.
     */
    int complete(ReleaseFile file, PartialFile partial, Progress progress) throws IOException {
        receive(file, file.size, progress.cancellation(), new Target() {
            @Override
            long position() {
                return partial.skipped();
            }

            @Override
            void write(byte[] buffer, int offset, int length) throws IOException {
                partial.write(buffer, offset, length);
            }
        });
        List<Integer> wrong = Collections.emptyList();
        if (!partial.isRight()) {
            wrong = partial.wrongPieces();
            for (int piece : wrong) {
                receivePiece(file, partial, piece, progress.cancellation());
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

    private void receivePiece(ReleaseFile file, PartialFile partial, int piece, Cancellation cancellation)
            throws IOException {
        receive(file, partial.end(piece), cancellation, new Target() {
            private long position = partial.start(piece);

            @Override
            long position() {
                return position;
            }

            @Override
            void write(byte[] buffer, int offset, int length) throws IOException {
                partial.replace(position, buffer, offset, length);
                position += length;
            }
        });
    }

    /** Receive bytes up to an end; give up if several attempts in a row bring nothing. */
    private void receive(ReleaseFile file, long end, Cancellation cancellation, Target target)
            throws IOException {
        int failures = 0;
        while (target.position() < end) {
            long before = target.position();
            try {
                receiveOnce(file, end, cancellation, target);
            } catch (RegException.Remote error) {
                failures = target.position() > before ? 0 : failures;
                http.waitBefore(failures++, error, cancellation);
            }
        }
    }

    private void receiveOnce(ReleaseFile file, long end, Cancellation cancellation, Target target)
            throws IOException {
        long start = target.position();
        boolean isWhole = start == 0 && end == file.size;
        Map<String, String> headers = isWhole ? Collections.emptyMap()
                : Collections.singletonMap("Range", "bytes=" + start + "-" + (end - 1));
        try (HttpResponse response = fromAnyKey(file.digest, path -> http.open(path, headers, cancellation))) {
            String range = response.header("Content-Range");
            boolean isPart = response.status == 206;
            if (isPart && !range.isEmpty() && !range.startsWith("bytes " + start + "-")) {
                throw new RegException.Remote("the registry sent another part than the requested one", true);
            }
            copy(response, isPart ? 0 : start, end, target);
        }
    }

    private void copy(HttpResponse response, long skip, long end, Target target) throws IOException {
        byte[] buffer = new byte[BUFFER];
        long left = skip;
        while (target.position() < end) {
            int count = response.read(buffer);
            if (count < 0) {
                throw new RegException.Remote("the registry sent fewer bytes than the manifest says", true);
            }
            int offset = (int) Math.min(left, count);
            left -= offset;
            target.write(buffer, offset, (int) Math.min(count - offset, end - target.position()));
        }
    }
}
