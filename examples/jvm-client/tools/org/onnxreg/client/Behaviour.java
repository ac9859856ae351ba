package org.onnxreg.client;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.File;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Plays a script of behaviour.json: a client of its own, and a server whose registry changes and which fails. */
final class Behaviour {
    private static final String NAME = "acme/pii";
    private final Map<String, Object> trees;
    private final Map<String, Object> documents;
    private Map<String, Object> step;

    Behaviour(Map<String, Object> document) {
        trees = Values.mapping(document.get("trees"));
        documents = Values.mapping(document.get("documents"));
    }

    /** Return the answer to each step, in the shape of its {@code expect}. */
    List<Object> play(Object steps) throws IOException {
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.createContext("/", this::serve);
        server.start();
        File directory = Files.createTempDirectory("behaviour").toFile();
        List<Object> answers = new ArrayList<>();
        try {
            String url = "http://127.0.0.1:" + server.getAddress().getPort();
            for (Map<String, Object> each : Values.mappings(steps)) {
                step = each;
                Registry registry = new Registry(url, directory, new Settings().delays());
                Map<String, Object> answer = new LinkedHashMap<>();
                try {
                    call(registry, answer);
                } catch (RegException error) {
                    answer.put("error", RunVectors.family(error));
                }
                Slot slot = registry.slot(NAME);
                answer.put("current", slot.current == null ? null : slot.current.version);
                answer.put("previous", slot.previous == null ? null : slot.previous.version);
                for (Release release : slot.releases()) {
                    release.files.forEach(file -> registry.file(release, file.path));
                }
                answer.keySet().retainAll(Values.mapping(step.get("expect")).keySet());
                answers.add(answer);
            }
        } finally {
            server.stop(0);
            Files.walk(directory.toPath()).sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
        }
        return answers;
    }

    private void call(Registry registry, Map<String, Object> answer) {
        Map<String, Object> asked = Values.mapping(step.get("question"));
        Question question = new Question().tag((String) asked.get("tag"));
        if (asked.containsKey("query")) {
            question.query(JsonWriter.write(asked.get("query")));
        }
        if (asked.containsKey("device")) {
            question.device(Device.parse(JsonWriter.write(asked.get("device"))));
        }
        if (asked.containsKey("seed")) {
            question.withoutRollouts();
        }
        switch ((String) step.get("call")) {
            case "update":
                List<Object> ran = new ArrayList<>();
                answer.put("ran", ran);
                Update update = registry.update(NAME, question, new UpdateOptions().selfTest(
                        (where, release) -> passes(release, ran)));
                show(answer, update.release.version, update.release.artifact.path);
                answer.putAll(Values.table("changed", update.isChanged, "offline", update.isOffline));
                break;
            case "resolve":
                Answer found = registry.resolve(NAME, question);
                show(answer, found.version, found.artifact);
                List<Object> codes = new ArrayList<>();
                found.rejected.forEach(rejection -> codes.add(rejection.code));
                answer.putAll(Values.table("offline", found.isOffline, "stale", found.isStale, "codes", codes));
                break;
            case "rollback":
                Release release = registry.rollback(NAME);
                show(answer, release.version, release.artifact.path);
                break;
            default:
                registry.clearRefusals(NAME);
        }
    }

    private boolean passes(Release release, List<Object> ran) throws IOException {
        ran.add(release.artifact.path);
        if (step.containsKey("throws")) {
            throw new IOException("the model cannot be loaded");
        }
        List<String> bad = Values.textsOrEmpty(step.get("bad"));
        return !bad.contains(release.version) && !bad.contains(release.artifact.path);
    }

    private static void show(Map<String, Object> answer, String version, String artifact) {
        answer.putAll(Values.table("version", version, "artifact", artifact));
    }

    private void serve(HttpExchange exchange) throws IOException {
        String path = exchange.getRequestURI().getPath();
        Object fault = step.get("fault");
        boolean isCached = step.containsKey("cached") && exchange.getRequestURI().getQuery() == null;
        Map<String, Object> tree = Values.mapping(trees.get(step.get(isCached ? "cached" : "tree")));
        boolean isBlob = path.startsWith("/blobs/") && !"absent".equals(fault);
        Object text = isBlob ? documents.get(path.substring(path.lastIndexOf('/') + 1))
                : path.equals("/registry.json") ? tree.get("registry")
                : path.equals("/index/" + NAME + ".jsonl") ? tree.get("index") : null;
        byte[] bytes = text == null ? new byte[0] : ((String) text).getBytes(StandardCharsets.ISO_8859_1);
        if (isBlob && "garbled".equals(fault) && bytes.length > 0) {
            bytes[0] ^= 1;
        }
        if (!"down".equals(fault)) {
            exchange.sendResponseHeaders(text == null ? 404 : 200, bytes.length == 0 ? -1 : bytes.length);
            exchange.getResponseBody().write(bytes);
        }
        exchange.close();
    }
}
