package org.onnxreg.client;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;

/** The last seen index file, with its entity tag. It is stored with a line of JSON before its bytes. */
final class SeenIndex {
    final State state;
    final String etag;
    /** The checks of lines that it passed. */
    final String lineChecks;
    /** True if a manifest contradicts the summaries: then they may change without a line of the log. */
    final boolean hasWrongSummaries;
    final Withdrawals withdrawals;
    /** True if the registry sent an older index file. */
    final boolean isStale;
    private final Map<String, Object> header;
    private final byte[] bytes;

    private SeenIndex(Map<String, Object> header, byte[] bytes, State state) {
        this.etag = Values.text(header.get("etag"));
        this.lineChecks = Values.text(header.get("line_checks"));
        this.hasWrongSummaries = header.containsKey("wrong_summaries");
        this.withdrawals = Withdrawals.read(header.get("withdrawn"));
        this.isStale = header.containsKey("stale");
        this.header = header;
        this.bytes = bytes;
        this.state = state;
    }

    static SeenIndex of(byte[] bytes, State state, String etag, String lineChecks, Withdrawals withdrawals) {
        return new SeenIndex(Values.table(
                "etag", etag, "line_checks", lineChecks, "withdrawn", withdrawals.toJson()), bytes, state);
    }

    static SeenIndex read(byte[] file) {
        int end = lineEnd(file, 0);
        Map<String, Object> header = Values.mapping(JsonReader.read(Arrays.copyOfRange(file, 0, end)));
        byte[] bytes = Arrays.copyOfRange(file, end + 1, file.length);
        byte[] line = Arrays.copyOfRange(bytes, 0, lineEnd(bytes, 0));
        return new SeenIndex(header, bytes, new State(Values.mapping(JsonReader.read(line))));
    }

    /** Return a copy without an entity tag, so that the next request gets the whole file. */
    SeenIndex withWrongSummaries() {
        return with("", "wrong_summaries");
    }

    SeenIndex asStale() {
        return with(etag, "stale");
    }

    private SeenIndex with(String tag, String mark) {
        Map<String, Object> copy = new LinkedHashMap<>(header);
        copy.putAll(Values.table("etag", tag, mark, true));
        return new SeenIndex(copy, bytes, state);
    }

    byte[] write() {
        byte[] line = (JsonWriter.write(header) + "\n").getBytes(StandardCharsets.UTF_8);
        return Sha256.join(line, bytes);
    }

    /** Return the index file with its lines. */
    IndexFile index() {
        return IndexFile.read(bytes, state.name);
    }

    private static int lineEnd(byte[] bytes, int start) {
        int at = start;
        while (at < bytes.length && bytes[at] != '\n') {
            at++;
        }
        return at;
    }
}
