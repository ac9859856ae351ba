package org.onnxreg.client;

import java.util.Map;

/** A line of a log: its number, the digest of the line before it, its own digest, and its event. */
final class LogLine {
    /** The lines that are sealed in one segment. */
    static final int SEGMENT_LINES = 64;

    final long seq;
    final String prev;
    final String head;
    final Map<String, Object> event;
    final Map<String, Object> value;

    private LogLine(Map<String, Object> value, String head) {
        this.value = value;
        this.head = head;
        seq = Values.count(value.get("seq"));
        prev = Values.text(value.get("prev"));
        event = Values.mapping(value.get("event"));
    }

    static LogLine read(byte[] bytes) {
        try {
            return new LogLine(IndexFile.document(bytes), Sha256.of(bytes));
        } catch (InputException error) {
            throw new IntegrityException("a line of a log: " + error.getMessage());
        }
    }

    void checkFollows(LogLine before) {
        if (seq != before.seq + 1 || !prev.equals(before.head)) {
            throw new IntegrityException("line " + seq + " of a log does not follow the line before it");
        }
    }

    String kind() {
        return text("kind");
    }

    /** Return a text of the event; empty if it has none. */
    String text(String key) {
        Object value = event.get(key);
        return value instanceof String ? (String) value : "";
    }
}
