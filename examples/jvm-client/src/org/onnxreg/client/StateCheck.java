package org.onnxreg.client;

import java.util.Map;

/** Checks the parts of a state line that resolving relies on. */
final class StateCheck {
    private StateCheck() {}

    static State check(Map<String, Object> value, String name) {
        try {
            State state = new State(value);
            state.registry();
            state.seq();
            state.head();
            state.segments();
            checkChannels(state);
            checkVersions(state);
            for (Object summary : state.summaries().values()) {
                checkSummary(Values.mapping(summary));
            }
            for (Object rollout : state.rollouts().values()) {
                Rollout.check(rollout);
            }
            Values.textsOrEmpty(value.get("refused"));
            if (!state.name.equals(name)) {
                throw new InputException("it is the index file of " + state.name);
            }
            return state;
        } catch (InputException error) {
            throw new IntegrityException("the state of " + name + ": " + error.getMessage());
        }
    }

    private static void checkChannels(State state) {
        for (String tag : state.channels().keySet()) {
            Version.parse(state.channel(tag));
        }
    }

    private static void checkVersions(State state) {
        for (String version : state.versions().keySet()) {
            Version.parse(version);
            Map<String, Object> entry = Values.mapping(state.versions().get(version));
            Values.digest(entry.get("manifest"));
            Values.count(entry.get("seq"));
            Values.textsOrEmpty(entry.get("yanks"));
            Values.textsOrEmpty(entry.get("held"));
            Values.mappingOrEmpty(entry.get("attested"));
            state.withdrawal(version);
        }
    }

    /** Check a summary; a file or artifact of it needs path, digest and size. */
    static void checkSummary(Map<String, Object> summary) {
        Values.digest(summary.get("manifest"));
        for (Map<String, Object> file : Values.mappings(summary.get("files"))) {
            checkFile(file);
        }
        for (Map<String, Object> item : Values.mappings(summary.get("artifacts"))) {
            checkFile(item);
            for (Map<String, Object> file : Values.mappingsOrEmpty(item.get("files"))) {
                checkFile(file);
            }
            Artifact artifact = new Artifact(item, Values.mappings(summary.get("files")), false);
            for (String key : Values.keys("providers domains contrib")) {
                artifact.texts(key);
            }
            for (String key : Values.keys("opset ort_format ir_version")) {
                artifact.number(key, 0);
            }
            checkNumbers(artifact.mapping("recall"));
            checkNumbers(artifact.mapping("metrics"));
            if (item.get("kv_cache") != null) {
                checkCache(artifact.mapping("kv_cache"));
            }
            artifact.text("member");
            artifact.text("operators");
            if (artifact.text("contract") != null) {
                Values.digest(artifact.text("contract"));
            }
        }
    }

    private static void checkFile(Map<String, Object> file) {
        Values.text(file.get("path"));
        Values.digest(file.get("digest"));
        Values.count(file.get("size"));
    }

    private static void checkCache(Map<String, Object> cache) {
        Values.count(cache.get("bytes_per_token"));
        Values.count(cache.get("max_tokens"));
    }

    private static void checkNumbers(Map<String, Object> numbers) {
        for (Object number : numbers.values()) {
            Values.number(number);
        }
    }
}
