package org.onnxreg.client;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Calls of the client, each with a registry object of its own: a line of JSON in, a line of JSON out. */
public final class JvmClient {
    private final List<Object> words;
    private final String name;
    private final Map<String, Object> options;
    private final Registry registry;
    private final Map<String, Object> outcome;

    private JvmClient(Map<String, Object> request, Map<String, Object> outcome) {
        this.outcome = outcome;
        words = Values.list(request.get("words"));
        name = words.isEmpty() ? null : (String) words.get(0);
        options = Values.mappingOrEmpty(words.size() > 2 ? words.get(2) : null);
        Settings settings = new Settings().delays(1, 1, 1).patience(500).trust(trust());
        if (request.get("token") != null) {
            settings.token((String) request.get("token"));
        }
        registry = new Registry((String) request.get("url"), new File((String) request.get("directory")), settings);
    }

    public static void main(String[] arguments) throws IOException {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            System.out.println(JsonWriter.write(answer(Values.mapping(JsonReader.read(line)))));
        }
    }

    private static Map<String, Object> answer(Map<String, Object> request) {
        Map<String, Object> outcome = new LinkedHashMap<>();
        try {
            new JvmClient(request, outcome).call((String) request.get("call"));
        } catch (RegException error) {
            outcome.putAll(row("rejected", rejected(error.rejected), "error", RunVectors.family(error), "message",
                    error.getMessage()));
        }
        return outcome;
    }

    private void call(String call) {
        switch (call) {
            case "update":
                Update update = registry.update(name, question(), updateOptions());
                outcome.putAll(row("changed", update.isChanged, "offline", update.isOffline));
                show(update.release);
                break;
            case "resolve":
                Answer answer = registry.resolve(name, question());
                outcome.putAll(row("version", answer.version, "artifact", answer.artifact, "rejected",
                        rejected(answer.rejected), "offline", answer.isOffline, "stale", answer.isStale));
                break;
            case "present":
                Slot slot = registry.slot(name);
                outcome.put("previous", slot.previous == null ? null : slot.previous.version);
                if (slot.current != null) {
                    show(slot.current);
                }
                break;
            case "rollback":
                show(registry.rollback(name));
                break;
            case "tidy":
                registry.tidy(words.size() > 1 ? (Long) words.get(1) : Long.MAX_VALUE);
                break;
            case "extract":
                registry.extract(registry.slot(name).current, new File((String) words.get(1)));
                break;
            case "role":
                byte[] file = registry.readRole(registry.slot(name).current, (String) words.get(1));
                outcome.put("text", new String(file, StandardCharsets.UTF_8));
                break;
            case "benchmark":
                outcome.put("document", benchmark());
                break;
            default:
                throw new IllegalArgumentException(call);
        }
    }

    /** Time a model that takes half as long as in full precision. */
    private String benchmark() {
        Registry other = new Registry((String) words.get(1), new File((String) options.get("directory")));
        Release full = other.update(name, new Question().precision("float32")).release;
        Release release = registry.update(name, new Question()).release;
        Benchmark benchmark = new Benchmark("test", "arm64-v8a", "onnxruntime-android 1.23.2", 2);
        try {
            for (String input : Values.keys("short long")) {
                benchmark.time(release, full, input, () -> Thread.sleep(2), () -> Thread.sleep(4));
            }
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
        return benchmark.toJson();
    }

    private Question question() {
        Map<String, Object> value = Values.mappingOrEmpty(words.size() > 1 ? words.get(1) : null);
        Question question = new Question().tag((String) value.get("tag"));
        if (value.get("query") != null) {
            question.query(JsonWriter.write(value.get("query")));
        }
        if (value.get("device") != null) {
            question.device(Device.parse(JsonWriter.write(value.get("device"))));
        }
        return value.containsKey("seed") ? question.withoutRollouts() : question;
    }

    private Trust trust() {
        Trust trust = new Trust();
        Values.textsOrEmpty(options.get("keys")).forEach(trust::key);
        if (options.get("releases") != null) {
            trust.requireReleases();
        }
        if (options.get("lines") != null) {
            trust.requireLines((Long) options.get("lines"));
        }
        return trust;
    }

    private UpdateOptions updateOptions() {
        Cancellation cancellation = new Cancellation();
        List<Object> progress = new ArrayList<>();
        List<Object> arrivals = new ArrayList<>();
        outcome.put("progress", progress);
        outcome.put("arrivals", arrivals);
        Object limit = options.get("cancel_at");
        return new UpdateOptions().cancellation(cancellation).listener(new Listener() {
            @Override
            public void onProgress(long done, long total) {
                progress.add(Arrays.<Object>asList(done, total));
                if (limit != null && done >= (Long) limit) {
                    cancellation.cancel();
                }
            }

            @Override
            public void onArrival(Listener.Arrival arrival) {
                arrivals.add(row("path", arrival.path, "size", arrival.size, "deltas", (long) arrival.deltas,
                        "reason", arrival.reason));
            }
        });
    }

    private void show(Release release) {
        Map<String, Object> files = new LinkedHashMap<>();
        for (ReleaseFile file : release.files) {
            files.put(file.path, new Storage(null).digest(registry.file(release, file.path)));
        }
        outcome.putAll(row("version", release.version, "artifact", release.artifact.path, "files", files));
    }

    private static List<Object> rejected(List<Rejection> rejections) {
        List<Object> rows = new ArrayList<>();
        rejections.forEach(each -> rows.add(
                row("version", each.version, "artifact", each.artifact, "code", each.code,
                        "detail", each.detail)));
        return rows;
    }

    private static Map<String, Object> row(Object... pairs) {
        Map<String, Object> row = new LinkedHashMap<>();
        for (int at = 0; at < pairs.length; at += 2) {
            row.put((String) pairs[at], pairs[at + 1]);
        }
        return row;
    }
}
