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
    private final Map<String, Object> request;
    private final List<Object> words;
    private final Registry registry;
    private final Map<String, Object> outcome = new LinkedHashMap<>();

    private JvmClient(Map<String, Object> request) {
        this.request = request;
        words = Values.list(request.get("words"));
        Settings settings = new Settings().delays(1, 1, 1).patience(500);
        if (request.get("token") != null) {
            settings.token((String) request.get("token"));
        }
        settings.trust(trust(options()));
        registry = new Registry((String) request.get("url"), new File((String) request.get("directory")),
                settings);
    }

    public static void main(String[] arguments) throws IOException {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            System.out.println(JsonWriter.write(answer(Values.mapping(JsonReader.read(line)))));
        }
    }

    private static Object answer(Map<String, Object> request) {
        Map<String, Object> failure = new LinkedHashMap<>();
        try {
            JvmClient client = new JvmClient(request);
            client.call((String) request.get("call"));
            return client.outcome;
        } catch (RegException error) {
            failure.put("rejected", rejected(error.rejected));
            failure.put("error", RunVectors.family(error));
            failure.put("message", error.getMessage());
            return failure;
        }
    }

    private void call(String call) {
        String name = words.isEmpty() ? null : String.valueOf(words.get(0));
        switch (call) {
            case "judged":
                judged(name);
                break;
            case "update":
                show(registry.update(name, question(), updateOptions()));
                break;
            case "fetch":
                outcome.put("version", registry.update(name, question(), updateOptions()).version);
                outcome.remove("progress");
                break;
            case "resolve":
                resolve(registry.resolve(name, question()));
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
            case "clear":
                registry.clearRefusals(name);
                break;
            case "tidy":
                registry.tidy(words.size() > 1 ? (Long) words.get(1) : Long.MAX_VALUE);
                break;
            case "extract":
                registry.extract(registry.slot(name).current, new File((String) words.get(1)));
                break;
            case "role":
                outcome.put("text", new String(registry.readRole(registry.slot(name).current,
                        (String) words.get(1)),
                        StandardCharsets.UTF_8));
                break;
            case "loop":
                loop(name);
                break;
            default:
                throw new IllegalArgumentException(call);
        }
    }

    /**
     * Update with a self-test that fails for these paths of artifacts and versions, or throws; `ran` are those
     * that it was run on.
     */
    private void judged(String name) {
        List<Object> ran = new ArrayList<>();
        List<String> bad = Values.texts(options().get("bad"));
        outcome.put("ran", ran);
        try {
            show(registry.update(name, question(), new UpdateOptions().selfTest((where, release) -> {
                ran.add(release.artifact.path);
                if (options().get("throws") != null) {
                    throw new IOException("the model cannot be loaded");
                }
                return !bad.contains(release.version) && !bad.contains(release.artifact.path);
            })));
        } catch (RegException error) {
            outcome.put("error", RunVectors.family(error));
            outcome.put("message", error.getMessage());
            outcome.put("rejected", rejected(error.rejected));
        }
    }

    /** Time so many resolves of one question, in milliseconds. */
    private void loop(String name) {
        List<Object> times = new ArrayList<>();
        for (long i = 0; i < (Long) words.get(2); i++) {
            long begin = System.nanoTime();
            registry.resolve(name, question());
            times.add((System.nanoTime() - begin) / 1000);
        }
        outcome.put("microseconds", times);
    }

    private Question question() {
        Map<String, Object> value = words.size() > 1 ? Values.mapping(words.get(1)) : new LinkedHashMap<>();
        Question question = new Question().tag((String) value.get("tag"));
        if (value.get("query") != null) {
            question.query(JsonWriter.write(value.get("query")));
        }
        if (value.get("device") != null) {
            question.device(Device.parse(JsonWriter.write(value.get("device"))));
        }
        return value.containsKey("seed") ? question.withoutRollouts() : question;
    }

    private Map<String, Object> options() {
        return words.size() > 2 && words.get(2) instanceof Map ? Values.mapping(words.get(2))
                : new LinkedHashMap<>();
    }

    private static Trust trust(Map<String, Object> options) {
        Trust trust = new Trust();
        for (String key : Values.textsOrEmpty(options.get("keys"))) {
            trust.key(key);
        }
        if (options.get("releases") != null) {
            trust.requireReleases();
        }
        if (options.get("lines") != null) {
            trust.requireLines((Long) options.get("lines"));
        }
        return trust;
    }

    private UpdateOptions updateOptions() {
        Map<String, Object> options = options();
        Cancellation cancellation = new Cancellation();
        List<Object> progress = new ArrayList<>();
        List<Object> arrivals = new ArrayList<>();
        outcome.put("progress", progress);
        outcome.put("arrivals", arrivals);
        Object limit = options.get("cancel_at");
        UpdateOptions update = new UpdateOptions().cancellation(cancellation).listener(new Listener() {
            @Override
            public void onProgress(long done, long total) {
                progress.add(Arrays.<Object>asList(done, total));
                if (limit != null && done >= (Long) limit) {
                    cancellation.cancel();
                }
            }

            @Override
            public void onArrival(Listener.Arrival arrival) {
                Map<String, Object> row = new LinkedHashMap<>();
                row.put("path", arrival.path);
                row.put("size", arrival.size);
                row.put("deltas", (long) arrival.deltas);
                row.put("bytes", arrival.deltaBytes);
                row.put("reason", arrival.reason);
                arrivals.add(row);
            }
        });
        return options.get("deltas") == null ? update : update.withoutDeltas();
    }

    private void show(Release release) {
        Map<String, Object> files = new LinkedHashMap<>();
        for (ReleaseFile file : release.files) {
            files.put(file.path, new Storage(null).digest(registry.file(release, file.path)));
        }
        outcome.put("version", release.version);
        outcome.put("artifact", release.artifact.path);
        outcome.put("model", registry.file(release, release.artifact.path).getPath());
        outcome.put("files", files);
    }

    private void resolve(Answer answer) {
        outcome.put("version", answer.version);
        outcome.put("artifact", answer.artifact);
        outcome.put("rejected", rejected(answer.rejected));
        outcome.put("offline", answer.isOffline);
        outcome.put("stale", answer.isStale);
    }

    private static List<Object> rejected(List<Rejection> rejections) {
        List<Object> rows = new ArrayList<>();
        for (Rejection rejection : rejections) {
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("version", rejection.version);
            row.put("artifact", rejection.artifact);
            row.put("code", rejection.code);
            rows.add(row);
        }
        return rows;
    }
}
