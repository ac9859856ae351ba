package org.onnxreg.client;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeSet;

/**
 * Runs the vectors of docs/resolve.md, query.md, rollouts.md, format.md and delta.md: {@code RunVectors
 * DIRECTORY}.
 */
public final class RunVectors {
    private final Path directory;
    private int passed;
    private int failed;

    private RunVectors(Path directory) {
        this.directory = directory;
    }

    public static void main(String[] words) throws IOException {
        RunVectors run = new RunVectors(Paths.get(words[0]));
        run.numbers();
        run.resolve();
        run.where();
        run.rollouts();
        run.history();
        run.device();
        run.behaviour();
        run.deltas();
        run.choices();
        System.out.println(run.passed + " passed, " + run.failed + " failed");
        System.exit(run.failed == 0 ? 0 : 1);
    }

    private void check(String name, Object expected, Object actual) {
        if (Objects.equals(expected, actual)) {
            passed++;
        } else {
            failed++;
            System.err.println("FAILED " + name + "\nexpected " + expected + "\nactual   " + actual + "\n");
        }
    }

    private Map<String, Object> load(String path) throws IOException {
        return Values.mapping(JsonReader.read(Files.readAllBytes(directory.resolve(path))));
    }

    /** Numbers of RFC 8785, appendix B, and others at the limits of a notation. */
    private void numbers() {
        String[] written = {"333333333.3333333", "1e+30", "4.5", "0.002", "1e-27", "5e-324", "0.485",
            "-0.000001", "1.7976931348623157e+308", "295147905179352830000", "1e+21", "1e-7",
            "9007199254740992", "0.1", "-1.5e-10"};
        for (String number : written) {
            check("number " + number, "[" + number + "]",
                    JsonWriter.write(JsonReader.read("[" + number + "]")));
        }
    }

    private void resolve() throws IOException {
        TreeSet<String> names = new TreeSet<>();
        for (String name : directory.resolve("resolve").toFile().list()) {
            names.add(name);
        }
        for (String name : names) {
            Map<String, Object> document = load("resolve/" + name);
            questions(name, document);
        }
    }

    private void questions(String file, Map<String, Object> document) {
        for (Map<String, Object> vector : Values.mappings(document.get("vectors"))) {
            Map<String, Object> expected = Values.mapping(vector.get("expect"));
            Map<String, Object> actual = answer(document, vector);
            actual.keySet().retainAll(expected.keySet());
            check(file + ": " + vector.get("name"), expected, actual);
        }
    }

    private void rollouts() throws IOException {
        Map<String, Object> document = load("rollout.json");
        for (Map<String, Object> vector : Values.mappings(document.get("admissions"))) {
            boolean isIn = new Rollout(vector).admits((String) vector.get("seed"), null);
            check("admission: " + vector, vector.get("in"), isIn);
        }
        String seed = "0000000000000000000000000000000000000000000000000000000000000000";
        for (Map<String, Object> vector : Values.mappings(document.get("cohorts"))) {
            Map<String, Object> rollout = new HashMap<>(vector);
            rollout.put("salt", "0");
            rollout.put("percent", 100L);
            Object expected = vector.get("error") == null ? vector.get("in") : vector.get("error");
            Object actual;
            try {
                actual = new Rollout(rollout).admits(seed, vector.get("device"));
            } catch (RegException error) {
                actual = family(error);
            }
            check("cohort: " + vector.get("where"), expected, actual);
        }
        questions("rollout.json", document);
    }

    private static Map<String, Object> answer(Map<String, Object> document, Map<String, Object> vector) {
        Map<String, Object> sets = Values.mappingOrEmpty(document.get("operator_sets"));
        Map<String, Object> state =
                Values.mapping(Values.mapping(document.get("states")).get(vector.get("state")));
        Map<String, Object> outcome = new LinkedHashMap<>();
        try {
            String seed = (String) vector.get("seed");
            Resolver resolver = new Resolver(
                    new State(state), vector.get("query"), vector.get("device"), seed,
                    Values.textsOrEmpty(vector.get("failed")), sets::get);
            Answer answer = resolver.resolve((String) vector.get("tag"), false, false);
            List<Object> rejected = new ArrayList<>();
            for (Rejection rejection : answer.rejected) {
                Map<String, Object> row = new HashMap<>();
                row.put("version", rejection.version);
                row.put("artifact", rejection.artifact);
                row.put("code", rejection.detail.isEmpty() ? "no detail" : rejection.code);
                rejected.add(row);
            }
            outcome.put("version", answer.version);
            outcome.put("artifact", answer.artifact);
            outcome.put("size", answer.matches() ? (Object) answer.size : null);
            outcome.put("rejected", rejected);
        } catch (RegException error) {
            outcome.put("error", family(error));
        }
        return outcome;
    }

    static String family(RegException error) {
        return error.family.name().toLowerCase().replace('_', '-');
    }

    private void where() throws IOException {
        Map<String, Object> where = load("where.json");
        Map<String, Object> candidate = Values.mapping(where.get("candidate"));
        for (String expression : Values.texts(where.get("true"))) {
            check("true: " + expression, true, parse(expression).matches(candidate));
            check("not: " + expression, false,
                    parse("not (" + expression + ")").matches(candidate));
        }
        for (String expression : Values.texts(where.get("unknown"))) {
            for (Map<String, Object> each : Arrays.asList(candidate, new HashMap<String, Object>())) {
                check("unknown: " + expression, false, parse(expression).matches(each));
                check("not unknown: " + expression, true,
                        parse("not " + expression).matches(each));
            }
        }
        for (Map<String, Object> each : Values.mappings(where.get("errors"))) {
            check("error: " + each.get("expression"), each.get("span"),
                    span((String) each.get("expression")));
        }
    }

    private static Expression parse(String expression) {
        return Expression.ofCandidate(expression);
    }

    private static List<Object> span(String expression) {
        try {
            parse(expression);
            return null;
        } catch (Expression.Malformed error) {
            return Arrays.<Object>asList((long) error.start, (long) error.end);
        }
    }

    private void history() throws IOException {
        Map<String, Object> history = load("history.json");
        Map<String, Object> documents = Values.mapping(history.get("documents"));
        for (Map<String, Object> vector : Values.mappings(history.get("vectors"))) {
            IndexFile before = IndexFile.read(bytes(history.get("before")), "acme/pii");
            String error = null;
            try {
                IndexFile after = IndexFile.read(bytes(vector.get("after")), "acme/pii");
                History.checkContinues(before.state, false, after, digest -> bytes(documents.get(digest)));
            } catch (RegException failure) {
                error = family(failure);
            }
            check("history: " + vector.get("name"), vector.get("error"), error);
            if (vector.get("error") == null && !vector.get("name").equals("nothing")) {
                IndexFile after = IndexFile.read(bytes(vector.get("after")), "acme/pii");
                History.checkContinues(before.state, false, after, digest -> bytes(documents.get(digest)));
                passed++; // an edge that is behind
            }
        }
    }

    private void device() throws IOException {
        Map<String, Object> document = load("device.json");
        for (Map<String, Object> vector : Values.mappings(document.get("updates"))) {
            Object state = Values.mapping(document.get("states")).get(vector.get("state"));
            check("update: " + vector.get("name"), vector.get("expect"),
                    decided(vector, new State(Values.mapping(state))));
        }
        for (Map<String, Object> vector : Values.mappings(document.get("rollbacks"))) {
            Map<String, Object> actual = new HashMap<>();
            try {
                Slot slot = slot(vector).rolledBack("acme/pii", Withdrawals.read(vector.get("withdrawn")));
                actual.put("current", slot.previous == null ? slot.current.version : "with a previous one");
                actual.put("failed", slot.refused);
            } catch (RegException error) {
                actual.put("error", family(error));
            }
            check("rollback: " + vector.get("name"), vector.get("expect"), actual);
        }
        for (Map<String, Object> vector : Values.mappings(document.get("withdrawals"))) {
            Map<String, Object> seen = new HashMap<>();
            seen.put("name", "acme/pii");
            seen.put("rollouts", vector.get("rollouts"));
            List<LogLine> lines = new ArrayList<>();
            for (Object line : Values.list(vector.get("lines"))) {
                lines.add(LogLine.read(bytes(JsonWriter.write(line))));
            }
            Withdrawals before = Withdrawals.read(vector.get("before"));
            check("withdrawn: " + vector.get("name"), vector.get("expect"),
                    before.after(new State(seen), lines).toJson());
        }
    }

    private void behaviour() throws IOException {
        Map<String, Object> document = load("behaviour.json");
        for (Map<String, Object> vector : Values.mappings(document.get("vectors"))) {
            List<Object> expected = Values.each(vector.get("steps"), step -> Values.mapping(step).get("expect"));
            check("behaviour: " + vector.get("name"), expected,
                    new Behaviour(document).play(vector.get("steps")));
        }
    }

    private static Map<String, Object> decided(Map<String, Object> vector, State state) {
        Map<String, Object> question = Values.mapping(vector.get("question"));
        Slot slot = slot(vector);
        String tag = (String) question.get("tag");
        Decision decision = Decision.of("acme/pii", slot, tag, (asked, isOther) -> {
            String seed = isOther ? null : (String) question.get("seed");
            return new Resolver(state, question.get("query"), null, seed, slot.refused, digest -> null)
                    .resolve(asked, false, false);
        }, () -> Withdrawals.read(vector.get("withdrawn")));
        Map<String, Object> actual = new HashMap<>();
        if (decision.answer != null) {
            actual.put("version", decision.answer.version);
            actual.put("artifact", decision.answer.artifact);
        } else if (decision.isStaying) {
            actual.put("stays", true);
        } else {
            actual.put("error", family(decision.error));
        }
        if (decision.isLeaving) {
            actual.put("leaves", true);
        }
        return actual;
    }

    /** Return the slot of a vector, whose releases have one file each. */
    private static Slot slot(Map<String, Object> vector) {
        Map<String, Object> slot = new HashMap<>(Values.mapping(vector.get("slot")));
        slot.put("refused", slot.get("failed"));
        for (String key : Values.keys("current previous")) {
            if (slot.get(key) != null) {
                Map<String, Object> release = new HashMap<>(Values.mapping(slot.get(key)));
                Map<String, Object> file = new HashMap<>(Values.mapping(release.get("artifact")));
                file.put("role", "artifact");
                file.put("path", "model.onnx");
                file.put("size", 1L);
                release.put("name", "acme/pii");
                release.put("format", "onnx");
                release.put("precision", "int8");
                release.put("files", Arrays.<Object>asList(file));
                slot.put(key, release);
            }
        }
        return Slot.read(bytes(JsonWriter.write(slot)));
    }

    private void deltas() throws IOException {
        for (Map<String, Object> vector : Values.mappings(load("delta/apply.json").get("vectors"))) {
            Object actual;
            try {
                actual = applied(vector);
            } catch (RegException error) {
                check(vector.get("name") + " is an error of integrity", "integrity", family(error));
                actual = null;
            }
            check("delta: " + vector.get("name"), vector.get("new"), actual);
        }
    }

    /** Apply the delta of a vector, expecting the files that its own header names. */
    private static String applied(Map<String, Object> vector) throws IOException {
        byte[] delta = Base64.getDecoder().decode((String) vector.get("delta"));
        List<DeltaReader.OldFile> old = new ArrayList<>();
        for (String text : Values.texts(vector.get("old"))) {
            byte[] bytes = Base64.getDecoder().decode(text);
            old.add((offset, into, length) -> {
                if (offset + length > bytes.length) {
                    throw new EOFException();
                }
                System.arraycopy(bytes, (int) offset, into, 0, length);
            });
        }
        String target = "";
        List<String> sources = new ArrayList<>();
        try {
            int size = (delta[8] & 255) + ((delta[9] & 255) << 8);
            String text = new String(delta, 12, size, StandardCharsets.UTF_8);
            Map<String, Object> header = Values.mapping(JsonReader.read(text));
            target = (String) Values.mapping(header.get("new")).get("digest");
            for (Map<String, Object> file : Values.mappings(header.get("old"))) {
                sources.add((String) file.get("digest"));
            }
        } catch (RuntimeException error) {
            // The delta itself is tested.
        }
        String whole = apply(delta, target, sources, old, 0);
        if (!whole.isEmpty()) {
            String resumed = apply(delta, target, sources, old, 1);
            byte[] expected = Base64.getDecoder().decode(whole);
            byte[] rest = Arrays.copyOfRange(expected, 1, expected.length);
            if (!resumed.equals(Base64.getEncoder().encodeToString(rest))) {
                throw new IllegalStateException("a resumed delta makes other bytes");
            }
        }
        if (!Sha256.of(Base64.getDecoder().decode(whole)).equals(target)) {
            throw RegException.integrity("a delta makes other bytes");
        }
        return whole;
    }

    private static String apply(byte[] delta, String target, List<String> sources,
            List<DeltaReader.OldFile> old, long skipped) throws IOException {
        ByteArrayOutputStream made = new ByteArrayOutputStream();
        DeltaReader.apply(new ByteArrayInputStream(delta), target, sources, old, new DeltaReader.Output() {
            @Override
            public long skipped() {
                return skipped;
            }

            @Override
            public void write(byte[] bytes, int offset, int length) {
                made.write(bytes, offset, length);
            }
        });
        return Base64.getEncoder().encodeToString(made.toByteArray());
    }

    private void choices() throws IOException {
        for (Map<String, Object> vector : Values.mappings(load("delta/choose.json").get("vectors"))) {
            Map<String, Long> sizes = new LinkedHashMap<>();
            for (Map.Entry<String, Object> entry : Values.mapping(vector.get("sizes")).entrySet()) {
                sizes.put(entry.getKey(), Values.count(entry.getValue()));
            }
            Map<String, Object> actual = new HashMap<>();
            Delta.choose(Delta.readAll(vector.get("deltas")), sizes,
                    new HashSet<>(Values.texts(vector.get("present"))))
                    .forEach((file, delta) -> actual.put(file, delta.digest));
            check("choose: " + vector.get("name"), vector.get("chosen"), actual);
        }
    }

    private static byte[] bytes(Object text) {
        return ((String) text).getBytes(StandardCharsets.UTF_8);
    }
}
