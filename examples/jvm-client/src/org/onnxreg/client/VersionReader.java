package org.onnxreg.client;

import java.util.Map;

/** Reads the versions of a model from checkpoint and manifests. */
final class VersionReader {
    private final Documents documents;

    VersionReader(Documents documents) {
        this.documents = documents;
    }

    /** Return a state with the version of a tag, even if the index file has no summary of it. */
    State complete(State state, String tag) {
        if (tag == null || !Version.isVersion(tag) || state.summary(tag) != null) {
            return state;
        }
        Map<String, Object> entry = state.version(tag);
        Object checkpoint = state.value.get("checkpoint");
        if (entry == null && checkpoint != null) {
            Map<String, Object> tables = IndexFile.document(documents.read(Values.digest(checkpoint)));
            Object listed = Values.mapping(tables.get("versions")).get(tag);
            entry = listed == null ? null : Values.mapping(listed);
        }
        if (entry == null) {
            return state;
        }
        return state.with(tag, entry, entry.get("gone") == null ? summary(entry) : null);
    }

    /** Return true if the state's summary of a version agrees with its manifest. */
    boolean agrees(State state, String version) {
        return Summary.agrees(state.summary(version), summary(state.version(version)));
    }

    /** Return the release of an artifact, from the manifest of its version. */
    Release release(State state, String version, String path) {
        String digest = Values.digest(state.version(version).get("manifest"));
        Map<String, Object> manifest = IndexFile.document(documents.read(digest));
        return RegException.reading("the manifest " + digest,
                () -> Release.of(state.name, version, digest, manifest, path));
    }

    private Map<String, Object> summary(Map<String, Object> entry) {
        String digest = Values.digest(entry.get("manifest"));
        Map<String, Object> manifest = IndexFile.document(documents.read(digest));
        return RegException.reading("the manifest " + digest,
                () -> Summary.of(manifest, digest, Values.count(entry.get("size"))));
    }
}
