package org.onnxreg.client;

import java.util.List;
import java.util.Map;

/** Reads index files from the registry. Each must continue the last seen one, and then becomes the last seen one. */
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
        return bytes == null ? null
                : RegException.reading("the state of " + name + " was changed here", () -> SeenIndex.read(bytes));
    }

    /** Return the index file that was seen last, if it passed the required checks; otherwise throw the error. */
    SeenIndex loadAfter(RegException.Remote error, String name) {
        SeenIndex seen = load(name);
        if (!isChecked(seen)) {
            throw error;
        }
        return seen;
    }

    /**
     * Ask the registry for the newest index file, by a conditional request. If the answer is older than the last seen
     * file, ask again past the web caches. If it is still older, return the last seen file.
     */
    SeenIndex refresh(String name, Documents documents, Cancellation cancellation) {
        SeenIndex seen = load(name);
        String etag = isChecked(seen) ? seen.etag : "";
        String path = "index/" + name + ".jsonl";
        Http.Document document = http.document(path, etag, cancellation);
        if (document == null) {
            return seen;
        }
        IndexFile index = IndexFile.read(document.bytes, name);
        if (seen != null && index.state.seq() < seen.state.seq()) {
            document = http.document(path + "?after=" + index.state.seq(), "", cancellation);
            index = IndexFile.read(document.bytes, name);
        }
        if (seen != null && index.state.seq() < seen.state.seq()) {
            History.checkContinues(index.state, true, seen.index(), documents);
            if (!isChecked(seen)) {
                throw new RegException.Remote(path + " is older than the one that was seen before", true);
            }
            return seen.asStale();
        }
        Withdrawals withdrawals = check(index, seen, documents);
        checkIdentity(index.state.registry(), cancellation);
        SeenIndex latest = load(name);
        if (latest != null && latest.state.seq() > index.state.seq()) {
            return latest; // another thread or process has seen more meanwhile
        }
        SeenIndex fresh = SeenIndex.of(
                document.bytes, index.state, document.etag, trust.lineChecks(), withdrawals);
        storage.save(storage.index(name), fresh.write());
        return fresh;
    }

    /** Note that a manifest contradicts the last seen summaries. From then on, they may change. */
    void noteWrongSummaries(String name) {
        storage.save(storage.index(name), load(name).withWrongSummaries().write());
    }

    /** Return the releases that are withdrawn in the state that was seen last. */
    Withdrawals withdrawals(String name) {
        SeenIndex seen = load(name);
        return seen == null ? Withdrawals.NONE : seen.withdrawals;
    }

    private boolean isChecked(SeenIndex seen) {
        return seen != null && seen.lineChecks.equals(trust.lineChecks());
    }

    /** Return the withdrawn releases. Throw an integrity error if an index file does not continue the last seen one. */
    private Withdrawals check(IndexFile index, SeenIndex seen, Documents documents) {
        Withdrawals withdrawals = Withdrawals.NONE;
        if (seen == null) {
            History.checkFirst(index.state, index.lines);
        } else {
            withdrawals = seen.withdrawals.after(seen.state,
                    History.checkContinues(seen.state, seen.hasWrongSummaries, index, documents));
        }
        if (trust.requiresLines()) {
            long first = isChecked(seen) ? seen.state.seq() : 1;
            List<LogLine> unchecked = index.linesFrom(first, documents);
            if (!isChecked(seen)) {
                History.checkFirst(index.state, unchecked);
            }
            new Signatures(trust, index.state).checkLines(unchecked);
        }
        return withdrawals;
    }

    private void checkIdentity(String id, Cancellation cancellation) {
        Map<String, Object> identity =
                IndexFile.document(http.document("registry.json", "", cancellation).bytes);
        Object reader = identity.get("min_reader");
        if (!"onnxreg".equals(identity.get("layout")) || !(reader instanceof Long) || (Long) reader > 1) {
            throw new RegException.Remote("this is not a registry, or it needs a newer client", false);
        }
        if (!id.equals(identity.get("id"))) {
            throw RegException.integrity("registry.json and index file name two registries: "
                    + identity.get("id") + " and " + id);
        }
    }
}
