package org.onnxreg.client;

import java.util.Map;

/**
 * Reads index files from the registry. Each must continue the one that was seen before, and is then the one
 * seen.
 */
final class IndexReader {
    private final Http http;
    private final Storage storage;
    private final Trust trust;

    IndexReader(Http http, Storage storage, Trust trust) {
        this.http = http;
        this.storage = storage;
        this.trust = trust;
    }

    /** Return the index file that was seen last; null before the first contact. */
    SeenIndex load(String name) {
        byte[] bytes = storage.load(storage.index(name));
        try {
            return bytes == null ? null : SeenIndex.read(bytes);
        } catch (InputException error) {
            throw new IntegrityException("the state of " + name + " was changed here: " + error.getMessage());
        }
    }

    /**
     * Return the index file that was seen last, if it passed the required checks; otherwise throw the error.
     */
    SeenIndex loadAfter(RemoteException error, String name) {
        SeenIndex seen = load(name);
        if (!isChecked(seen)) {
            throw error;
        }
        return seen;
    }

    /** Ask the registry for the newest index file, by one conditional request. */
    SeenIndex refresh(String name, Documents documents, Cancellation cancellation) {
        SeenIndex seen = load(name);
        String etag = isChecked(seen) ? seen.etag : "";
        Http.Document document = http.document("index/" + name + ".jsonl", etag, cancellation);
        if (document == null) {
            return seen;
        }
        IndexFile index = IndexFile.read(document.bytes, name);
        check(index, seen, documents);
        checkIdentity(index.state.registry(), cancellation);
        SeenIndex latest = load(name);
        if (latest != null && latest.state.seq() > index.state.seq()) {
            return latest; // another thread or process has seen more meanwhile
        }
        SeenIndex fresh = SeenIndex.of(document.bytes, index.state, document.etag, trust.lineChecks());
        storage.save(storage.index(name), fresh.write());
        return fresh;
    }

    /** Note that a manifest contradicts the summaries that were seen, which may change then. */
    void noteWrongSummaries(String name) {
        storage.save(storage.index(name), load(name).withWrongSummaries().write());
    }

    private boolean isChecked(SeenIndex seen) {
        return seen != null && seen.lineChecks.equals(trust.lineChecks());
    }

    private void check(IndexFile index, SeenIndex seen, Documents documents) {
        if (seen == null) {
            History.checkFirst(index);
        } else {
            History.checkContinues(seen.state, seen.hasWrongSummaries, index, documents);
        }
        if (trust.requiresLines()) {
            long first = isChecked(seen) ? seen.state.seq() : 1;
            new Signatures(trust, index.state).checkLines(index.linesFrom(first, documents));
        }
    }

    private void checkIdentity(String id, Cancellation cancellation) {
        Map<String, Object> identity =
                IndexFile.document(http.document("registry.json", "", cancellation).bytes);
        Object reader = identity.get("min_reader");
        if (!"onnxreg".equals(identity.get("layout")) || !(reader instanceof Long) || (Long) reader > 1) {
            throw new RemoteException("this is not a registry, or it needs a newer client", false);
        }
        if (!id.equals(identity.get("id"))) {
            throw new IntegrityException("registry.json and index file name two registries: "
                    + identity.get("id") + " and " + id);
        }
    }
}
