package org.onnxreg.client;

import java.io.IOException;
import java.util.Collections;
import java.util.List;
import java.util.Map;

/**
 * Fetches blobs into the storage: resumed, verified, and visible under their final name only when they are
 * right.
 */
final class Downloads {
    private static final int BUFFER = 1 << 18;
    private static final int GENERATIONS = 8;

    final Storage storage;
    private final Http http;

    /** Takes the bytes of a part of a blob. */
    private interface Target {
        long position();

        void write(byte[] buffer, int offset, int length) throws IOException;
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
        byte[] fresh = fetchDocument(digest, cancellation);
        if (!Sha256.of(fresh).equals(digest)) {
            throw new IntegrityException("the registry sent other bytes than " + digest);
        }
        storage.save(storage.blob(digest), fresh);
        return fresh;
    }

    private byte[] fetchDocument(String digest, Cancellation cancellation) {
        RegException missing = null;
        for (int generation = 0; generation < GENERATIONS; generation++) {
            try {
                return http.document(path(digest, generation), "", cancellation).bytes;
            } catch (RegException error) {
                missing = orMissing(missing, digest, error);
            }
        }
        throw missing;
    }

    /**
     * Return the error of a blob that is under none of its keys. Some hosts answer 403, or a page,
     * for what is absent. Throw any other error.
     */
    private static RegException orMissing(RegException before, String digest, RegException error) {
        if (error instanceof RemoteException && ((RemoteException) error).status == 403) {
            return error;
        }
        if (!(error instanceof NotFoundException)) {
            throw error;
        }
        return before != null ? before
                : new NotFoundException("the registry does not have " + digest + "; resolve again");
    }

    /**
     * Complete a file that arrives, and give it its final name. Return the number of pieces that were
     * repaired.
     */
    int complete(ReleaseFile file, PartialFile partial, Progress progress) throws IOException {
        receiveRest(file, partial, progress.cancellation());
        List<Integer> wrong = Collections.emptyList();
        if (!partial.isRight()) {
            wrong = partial.wrongPieces();
            for (int piece : wrong) {
                receivePiece(file, partial, piece, progress.cancellation());
            }
            partial.rehash();
            if (!partial.isRight()) {
                storage.delete(storage.partial(file.digest));
                throw new IntegrityException("the registry sent other bytes than " + file.digest);
            }
        }
        partial.sync();
        storage.move(storage.partial(file.digest), storage.blob(file.digest));
        return wrong.size();
    }

    /** Fetch a whole file, if it is not here. */
    void fetch(ReleaseFile file, Progress progress) throws IOException {
        if (storage.has(file)) {
            progress.add(file.size);
            return;
        }
        PartialFile partial = new PartialFile(storage.partial(file.digest), file, progress);
        try {
            complete(file, partial, progress);
        } finally {
            partial.close();
        }
    }

    private void receiveRest(ReleaseFile file, final PartialFile partial, Cancellation cancellation)
            throws IOException {
        receive(file, file.size, cancellation, new Target() {
            @Override
            public long position() {
                return partial.size();
            }

            @Override
            public void write(byte[] buffer, int offset, int length) throws IOException {
                partial.write(buffer, offset, length);
            }
        });
    }

    private void receivePiece(ReleaseFile file, final PartialFile partial, int piece,
            Cancellation cancellation) throws IOException {
        final long start = partial.start(piece);
        receive(file, partial.end(piece), cancellation, new Target() {
            private long position = start;

            @Override
            public long position() {
                return position;
            }

            @Override
            public void write(byte[] buffer, int offset, int length) throws IOException {
                partial.replace(position, buffer, offset, length);
                position += length;
            }
        });
        if (!partial.isPieceRight(piece)) {
            storage.delete(storage.partial(file.digest));
            throw new IntegrityException("the registry sent other bytes than " + file.digest);
        }
    }

    /** Receive bytes up to an end; give up if several attempts in a row bring nothing. */
    private void receive(ReleaseFile file, long end, Cancellation cancellation,
            Target target) throws IOException {
        int failures = 0;
        while (target.position() < end) {
            long before = target.position();
            try {
                receiveOnce(file, end, cancellation, target);
            } catch (RemoteException error) {
                failures = target.position() > before ? 0 : failures;
                http.waitBefore(failures++, error, cancellation);
            }
        }
    }

    private void receiveOnce(ReleaseFile file, long end, Cancellation cancellation, Target target)
            throws IOException {
        long start = target.position();
        boolean isWhole = start == 0 && end == file.size;
        Map<String, String> headers = isWhole ? Collections.<String, String>emptyMap()
                : Collections.singletonMap("Range", "bytes=" + start + "-" + (end - 1));
        HttpResponse response = openAny(file.digest, headers, cancellation);
        try {
            boolean isPart = response.status == 206;
            if (isPart && !isRange(response.header("Content-Range"), start)) {
                throw new RemoteException("the registry sent another part than the requested one", true);
            }
            copy(response, isPart ? 0 : start, end, target);
        } finally {
            response.close();
        }
    }

    private void copy(HttpResponse response, long skip, long end, Target target) throws IOException {
        byte[] buffer = new byte[BUFFER];
        long left = skip;
        while (target.position() < end) {
            int count = response.read(buffer);
            if (count < 0) {
                throw new RemoteException("the registry sent fewer bytes than the manifest says", true);
            }
            int offset = (int) Math.min(left, count);
            left -= offset;
            target.write(buffer, offset, (int) Math.min(count - offset, end - target.position()));
        }
    }

    private HttpResponse openAny(String digest, Map<String, String> headers, Cancellation cancellation) {
        RegException missing = null;
        for (int generation = 0; generation < GENERATIONS; generation++) {
            try {
                return http.open(path(digest, generation), headers, cancellation);
            } catch (RegException error) {
                missing = orMissing(missing, digest, error);
            }
        }
        throw missing;
    }

    private static boolean isRange(String header, long start) {
        return header.isEmpty() || header.startsWith("bytes " + start + "-");
    }

    private static String path(String digest, int generation) {
        String hex = Values.hex(digest);
        String key = "blobs/sha256/" + hex.substring(0, 2) + "/" + hex;
        return generation == 0 ? key : key + "." + generation;
    }
}
