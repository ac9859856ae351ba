package org.onnxreg.client;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The state of a model: line 1 of its index file. */
final class State {
    final Map<String, Object> value;
    final String name;

    State(Map<String, Object> value) {
        this.value = value;
        name = Values.text(value.get("name"));
    }

    /** Return the state of a log without lines. */
    static State empty(State later) {
        Object none = Collections.emptyMap();
        return new State(Values.table("registry", later.registry(), "name", later.name, "seq", 0L,
                "channels", none, "versions", none, "summaries", none));
    }

    String registry() {
        return Values.text(value.get("registry"));
    }

    long seq() {
        return Values.count(value.get("seq"));
    }

    String head() {
        return Values.digest(value.get("head"));
    }

    List<String> segments() {
        return Values.digests(value.get("segments"));
    }

    Map<String, Object> channels() {
        return Values.mapping(value.get("channels"));
    }

    Map<String, Object> versions() {
        return Values.mapping(value.get("versions"));
    }

    Map<String, Object> summaries() {
        return Values.mapping(value.get("summaries"));
    }

    Map<String, Object> rollouts() {
        return Values.mappingOrEmpty(value.get("rollouts"));
    }

    /** Return the entry of a version; null if the state has none. */
    Map<String, Object> version(String version) {
        return row(versions(), version);
    }

    /** Return the summary of a version; null if the state has none. */
    Map<String, Object> summary(String version) {
        return row(summaries(), version);
    }

    /** Return the version of a channel; null if there is no such channel. */
    String channel(String tag) {
        Map<String, Object> channel = row(channels(), tag);
        return channel == null ? null : Values.text(channel.get("version"));
    }

    /** Return the rollout of a channel; null if there is none. */
    Rollout rollout(String tag) {
        Map<String, Object> rollout = row(rollouts(), tag);
        return rollout == null ? null : new Rollout(rollout);
    }

    private static Map<String, Object> row(Map<String, Object> table, String key) {
        Object row = table.get(key);
        return row == null ? null : Values.mapping(row);
    }

    /** Return why a version's files are not offered: yanked, expired, purged or dropped. Null means offered. */
    String withdrawal(String version) {
        Map<String, Object> entry = version(version);
        if (entry.get("gone") != null) {
            return Values.text(Values.mapping(entry.get("gone")).get("how"));
        }
        return entry.get("yanks") == null ? null : "yanked";
    }

    boolean isRefused(String version, String digest) {
        return "refused".equals(Values.mappingOrEmpty(version(version).get("attested")).get(digest))
                || Values.textsOrEmpty(value.get("refused")).contains(digest);
    }

    /** Return the summary of a version's artifact, with the speeds that the log has for it. */
    Map<String, Object> timed(String version, Map<String, Object> artifact) {
        Object table = Values.mappingOrEmpty(value.get("speeds")).get(version(version).get("manifest"));
        Object speeds = Values.mappingOrEmpty(table).get(artifact.get("digest"));
        return speeds == null ? artifact : plus(artifact, "speeds", speeds);
    }

    /** Return this state with one more version, which the index file does not summarise. */
    State with(String version, Map<String, Object> entry, Map<String, Object> summary) {
        Map<String, Object> copy = new LinkedHashMap<>(value);
        copy.put("versions", plus(versions(), version, entry));
        if (summary != null) {
            copy.put("summaries", plus(summaries(), version, summary));
        }
        return new State(copy);
    }

    private static Map<String, Object> plus(Map<String, Object> table, String key, Object item) {
        Map<String, Object> copy = new LinkedHashMap<>(table);
        copy.put(key, item);
        return copy;
    }

    /** Check the parts that resolving relies on. An input error names what is malformed. */
    void check(String model) {
        registry();
        seq();
        head();
        segments();
        for (String tag : channels().keySet()) {
            Version.parse(channel(tag));
        }
        for (String version : versions().keySet()) {
            Version.parse(version);
            Map<String, Object> entry = version(version);
            Values.digest(entry.get("manifest"));
            Values.count(entry.get("seq"));
            Values.textsOrEmpty(entry.get("yanks"));
            Values.textsOrEmpty(entry.get("held"));
            Values.mappingOrEmpty(entry.get("attested"));
            withdrawal(version);
        }
        for (Object summary : summaries().values()) {
            checkSummary(Values.mapping(summary));
        }
        for (String tag : rollouts().keySet()) {
            rollout(tag).check();
        }
        Values.textsOrEmpty(value.get("refused"));
        for (Object table : Values.mappingOrEmpty(value.get("speeds")).values()) {
            Values.mapping(table).values().forEach(State::checkSpeeds);
        }
        if (!name.equals(model)) {
            throw RegException.input("it is the index file of " + name);
        }
    }

    private static void checkSummary(Map<String, Object> summary) {
        Values.digest(summary.get("manifest"));
        List<Map<String, Object>> shared = Values.mappings(summary.get("files"));
        shared.forEach(State::checkFile);
        for (Map<String, Object> item : Values.mappings(summary.get("artifacts"))) {
            checkFile(item);
            Artifact artifact = new Artifact(item, shared, false);
            artifact.files().forEach(State::checkFile);
            for (String key : Values.keys("providers domains contrib")) {
                artifact.texts(key);
            }
            for (String key : Values.keys("opset ort_format ir_version")) {
                artifact.number(key, 0);
            }
            artifact.mapping("recall").values().forEach(Values::number);
            artifact.mapping("metrics").values().forEach(Values::number);
            if (item.get("kv_cache") != null) {
                Values.count(artifact.mapping("kv_cache").get("bytes_per_token"));
                Values.count(artifact.mapping("kv_cache").get("max_tokens"));
            }
            artifact.text("member");
            artifact.text("operators");
            if (artifact.text("contract") != null) {
                Values.digest(artifact.text("contract"));
            }
        }
    }

    private static void checkSpeeds(Object speeds) {
        for (Map<String, Object> speed : Values.mappings(speeds)) {
            Values.keys("isa runtime").forEach(key -> Values.text(speed.get(key)));
            Values.keys("ratio low").forEach(key -> Values.positive(speed.get(key)));
        }
    }

    private static void checkFile(Map<String, Object> file) {
        Values.text(file.get("path"));
        Values.digest(file.get("digest"));
        Values.count(file.get("size"));
    }
}
