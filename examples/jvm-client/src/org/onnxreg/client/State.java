package org.onnxreg.client;

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
        Map<String, Object> value = new LinkedHashMap<String, Object>();
        value.put("registry", later.registry());
        value.put("name", later.name);
        value.put("seq", 0L);
        for (String key : Values.keys("channels versions summaries")) {
            value.put(key, new LinkedHashMap<String, Object>());
        }
        return new State(value);
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

    /** Return the entry of a version; null if the state has none. */
    Map<String, Object> version(String version) {
        Object entry = versions().get(version);
        return entry == null ? null : Values.mapping(entry);
    }

    /** Return the version of a channel; null if there is no such channel. */
    String channel(String tag) {
        Object channel = channels().get(tag);
        return channel == null ? null : Values.text(Values.mapping(channel).get("version"));
    }

    Map<String, Object> rollouts() {
        return Values.mappingOrEmpty(value.get("rollouts"));
    }

    /** Return the rollout of a channel; null if there is none. */
    Rollout rollout(String tag) {
        Object rollout = rollouts().get(tag);
        return rollout == null ? null : Rollout.read(rollout);
    }

    Map<String, Object> summary(String version) {
        Object summary = summaries().get(version);
        return summary == null ? null : Values.mapping(summary);
    }

    /**
     * Return why the files of a version are not offered: yanked, expired, purged or dropped; null if they
     * are.
     */
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

    /** Return this state with one more version, which the index file does not summarise. */
    State with(String version, Map<String, Object> entry, Map<String, Object> summary) {
        Map<String, Object> copy = new LinkedHashMap<String, Object>(value);
        copy.put("versions", plus(versions(), version, entry));
        if (summary != null) {
            copy.put("summaries", plus(summaries(), version, summary));
        }
        return new State(copy);
    }

    private static Map<String, Object> plus(Map<String, Object> table, String key, Object item) {
        Map<String, Object> copy = new LinkedHashMap<String, Object>(table);
        copy.put(key, item);
        return copy;
    }
}
