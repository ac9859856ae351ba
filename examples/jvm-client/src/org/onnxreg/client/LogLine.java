package org.onnxreg.client;

import java.util.Map;

/** A line of the log: its number, the digest of the line before it, its own digest, and its event. */
final class LogLine {
    /** The lines that are sealed in one segment. */
    static final int SEGMENT_LINES = 64;
    final long seq;
    final String prev;
    final String head;
    final Map<String, Object> event;
    final String kind;
    final Map<String, Object> value;

    private LogLine(byte[] bytes) {
        value = Values.mapping(JsonReader.read(bytes));
        head = Sha256.of(bytes);
        seq = Values.count(value.get("seq"));
        prev = Values.text(value.get("prev"));
        event = Values.mapping(value.get("event"));
        kind = text("kind");
    }

    static LogLine read(byte[] bytes) {
        return RegException.reading("a line of a log", () -> new LogLine(bytes));
    }

    void checkFollows(LogLine before) {
        if (seq != before.seq + 1 || !prev.equals(before.head)) {
            throw RegException.integrity("line " + seq + " of a log does not follow the line before it");
        }
    }

    /** Return a text of the event; empty if it has none. */
    String text(String key) {
        Object value = event.get(key);
        return value instanceof String ? (String) value : "";
    }
}
