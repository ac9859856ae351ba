package org.onnxreg.client;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/**
 * The index file of a model: line 1 is the state, then come the latest lines of its log (docs/format.md).
 *
 * <p>The lines form a chain of digests, and the state names the last one. So a client that remembers the last
 * line notices a registry that goes back or has another history.
 */
final class IndexFile {
    final State state;
    final List<LogLine> lines;

    private IndexFile(State state, List<LogLine> lines) {
        this.state = state;
        this.lines = lines;
    }

    /** Read an index file, whose lines must form a chain that ends in the head of the state. */
    static IndexFile read(byte[] bytes, String name) {
        List<byte[]> lines = split(bytes);
        State state = RegException.reading("the state of " + name, () -> {
            State read = new State(document(lines.get(0)));
            read.check(name);
            return read;
        });
        List<LogLine> chain = read(lines.subList(1, lines.size()));
        checkChain(chain);
        LogLine last = chain.isEmpty() ? null : chain.get(chain.size() - 1);
        if (last == null || last.seq != state.seq() || !last.head.equals(state.head())) {
            throw RegException.integrity("the index file of " + name
                    + ": the state is not that of its last line");
        }
        return new IndexFile(state, chain);
    }

    /** Read a JSON object that the registry sent. */
    static Map<String, Object> document(byte[] bytes) {
        return RegException.reading("the registry sent something that is not JSON",
                () -> Values.mapping(JsonReader.read(bytes)));
    }

    /** Return the lines from the segment with this line on, or the lines of the index file if no segment has it. */
    List<LogLine> linesFrom(long seq, Documents documents) {
        List<LogLine> all = new ArrayList<>();
        List<String> segments = state.segments();
        int first = (int) Math.min((seq - 1) / LogLine.SEGMENT_LINES, segments.size());
        for (String segment : segments.subList(first, segments.size())) {
            all.addAll(read(split(documents.read(segment))));
        }
        all.addAll(lines);
        if (all.get(0).seq > seq) {
            throw RegException.integrity("line " + seq + " of the log of " + state.name + " is not there");
        }
        checkChain(all);
        return all;
    }

    private static List<LogLine> read(List<byte[]> lines) {
        return lines.stream().map(LogLine::read).collect(Collectors.toList());
    }

    private static void checkChain(List<LogLine> lines) {
        for (int i = 1; i < lines.size(); i++) {
            lines.get(i).checkFollows(lines.get(i - 1));
        }
    }

    private static List<byte[]> split(byte[] bytes) {
        List<byte[]> lines = new ArrayList<>();
        int start = 0;
        for (int at = 0; at < bytes.length; at++) {
            if (bytes[at] == '\n') {
                lines.add(Arrays.copyOfRange(bytes, start, at));
                start = at + 1;
            }
        }
        if (lines.isEmpty() || start < bytes.length) {
            throw RegException.integrity("the last line of a log has no end");
        }
        return lines;
    }
}
