package org.onnxreg.client;

import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/** Checks that lines and releases are signed by a trusted key: docs/format.md, "The log" and "Signed versions". */
final class Signatures {
    private static final String LINE = "application/vnd.onnxreg.line.v1+json";
    private static final String ENVELOPE = "application/vnd.dsse.envelope.v1+json";
    private static final String IN_TOTO = "application/vnd.in-toto+json";
    private static final String STATEMENT = "https://in-toto.io/Statement/v1";
    private static final String RELEASE = "urn:onnxreg:release:v1";
    private static final List<String> CERTIFICATE = Values.keys("format precision path digest certification");

    private final Trust trust;
    private final State state;

    Signatures(Trust trust, State state) {
        this.trust = trust;
        this.state = state;
    }

    /** Throw an integrity error if a required signature of a line is missing or wrong. */
    void checkLines(List<LogLine> lines) {
        for (LogLine line : lines) {
            boolean isRequired = trust.requiresLine(line.seq) || line.seq == state.seq();
            if (isRequired && !isSigned(line)) {
                throw RegException.integrity(
                        "line " + line.seq + " of " + state.name + " is not signed by a trusted key");
            }
        }
    }

    private boolean isSigned(LogLine line) {
        Object value = line.value.get("sig");
        String[] parts = value instanceof String ? ((String) value).split(":", 2) : new String[0];
        PublicKey key = parts.length < 2 ? null : trust.keyOf(parts[0]);
        if (key == null) {
            return false;
        }
        Map<String, Object> signed = new LinkedHashMap<>();
        for (String part : Values.keys("seq prev event via")) {
            if (line.value.containsKey(part)) {
                signed.put(part, line.value.get(part));
            }
        }
        signed.put("registry", state.registry());
        signed.put("name", state.name);
        byte[] bytes = JsonWriter.write(signed).getBytes(StandardCharsets.UTF_8);
        return key.verifies(decode(parts[1]), encoding(LINE, bytes));
    }

    /** Throw an integrity error if no trusted key signed that a manifest is this version of the model. */
    void checkRelease(String version, String manifest, IndexFile index, Documents documents) {
        RegException unsupported = null;
        List<LogLine> lines = index.linesFrom(1, documents);
        Collections.reverse(lines);
        for (LogLine line : lines) {
            boolean isStatement = line.kind.equals("attest") && line.text("media_type").equals(ENVELOPE);
            if (isStatement && line.text("manifest").equals(manifest)) {
                try {
                    byte[] envelope = documents.read(Values.digest(line.text("statement")));
                    if (isRelease(IndexFile.document(envelope), version, manifest, documents)) {
                        return;
                    }
                } catch (RegException error) {
                    if (error.family == RegException.Family.INPUT) {
                        unsupported = error;
                    } else if (error.family != RegException.Family.NOT_FOUND) {
                        throw error; // a statement that was taken down proves nothing
                    }
                }
            }
        }
        throw unsupported != null ? unsupported : RegException.integrity(
                state.name + ":" + version + " is not signed by a trusted key");
    }

    /** Return true for an envelope in which a trusted key signs this release. */
    private boolean isRelease(Map<String, Object> envelope, String version, String manifest,
            Documents documents) {
        byte[] payload = decode(Values.text(envelope.get("payload")));
        if (!IN_TOTO.equals(envelope.get("payloadType")) || !isSigned(envelope, payload)) {
            return false;
        }
        Map<String, Object> statement = IndexFile.document(payload);
        List<Map<String, Object>> subjects = Values.mappings(statement.get("subject"));
        Map<String, Object> predicate = Values.mappingOrEmpty(statement.get("predicate"));
        return STATEMENT.equals(statement.get("_type"))
                && RELEASE.equals(statement.get("predicateType"))
                && subjects.size() == 1
                && state.name.equals(subjects.get(0).get("name"))
                && Values.hex(manifest).equals(
                        Values.mappingOrEmpty(subjects.get(0).get("digest")).get("sha256"))
                && version.equals(predicate.get("version"))
                && isPredicate(predicate, IndexFile.document(documents.read(manifest)));
    }

    private boolean isSigned(Map<String, Object> envelope, byte[] payload) {
        byte[] bytes = encoding(IN_TOTO, payload);
        for (Map<String, Object> signature : Values.mappings(envelope.get("signatures"))) {
            PublicKey key = trust.keyOf(signature.get("keyid"));
            if (key != null && key.verifies(decode(Values.text(signature.get("sig"))), bytes)) {
                return true;
            }
        }
        return false;
    }

    /** Return true if recipe and certificates of a statement are those of the manifest. */
    private static boolean isPredicate(Map<String, Object> predicate, Map<String, Object> manifest) {
        List<Map<String, Object>> stated = Values.mappings(predicate.get("artifacts"));
        List<Map<String, Object>> artifacts = Values.mappings(manifest.get("artifacts"));
        boolean isSame = stated.size() == artifacts.size()
                && Objects.equals(predicate.get("recipe"), manifest.get("recipe"));
        for (int i = 0; isSame && i < stated.size(); i++) {
            isSame = Values.agree(stated.get(i), artifacts.get(i), CERTIFICATE);
        }
        return isSame;
    }

    /** Return the bytes that are signed: the pre-authentication encoding of DSSE. */
    private static byte[] encoding(String type, byte[] payload) {
        String header = "DSSEv1 " + type.length() + " " + type + " " + payload.length + " ";
        return Sha256.join(header.getBytes(StandardCharsets.UTF_8), payload);
    }

    private static byte[] decode(String text) {
        try {
            return Base64.getDecoder().decode(text);
        } catch (IllegalArgumentException error) {
            throw RegException.integrity("a signature is not base64");
        }
    }
}
