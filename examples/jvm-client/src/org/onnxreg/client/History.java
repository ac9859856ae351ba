package org.onnxreg.client;

import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Compares a state with the last seen one. It may differ only by the changes that the new lines of the log make.
 *
 * <p>Channels must be where the lines moved them. A version may differ only if a line is about it. A yank stays unless
 * a line takes it back, and verdicts stay. Only keys that every build of onnxreg writes are compared.
 */
final class History {
    private static final List<String> STATE = Values.keys("registry name seq head segments checkpoint");
    private static final List<String> CHANNEL = Values.keys("version manifest seq policy evidence");
    private static final List<String> ENTRY =
            Values.keys("manifest size seq yanks pinned gone held attested");
    private static final List<String> SUMMARY = Values.keys("manifest size files task family license");
    private static final List<String> ARTIFACT = Values.keys(
            "path format precision digest size state files opset ort_format operators providers recall"
            + " member");
    private static final List<String> ROLLOUT =
            Values.keys("to manifest percent salt where seq policy evidence");
    private static final List<String> WITHDRAWALS = Values.keys("yank expire purge drop");
    private final State seen;
    private final State state;
    private final List<LogLine> lines;

    private History(State seen, State state, List<LogLine> lines) {
        this.seen = seen;
        this.state = state;
        this.lines = lines;
    }

    /**
     * Throw an integrity error if an index file has all lines of its log, but the state is not their result. Summaries
     * are compared with the manifests later. At the first contact a log that is longer than the index file is believed,
     * unless its lines must be signed.
     */
    static void checkFirst(State state, List<LogLine> lines) {
        if (lines.get(0).seq == 1) {
            new History(State.empty(state), state, lines).check();
        }
    }

    /**
     * Return the new lines. Throw an integrity error if an index file does not continue the last seen state.
     *
     * @param hasWrongSummaries true if a manifest contradicted the last seen summaries: they may change
     */
    static List<LogLine> checkContinues(
            State seen, boolean hasWrongSummaries, IndexFile index, Documents documents) {
        State state = index.state;
        if (!state.registry().equals(seen.registry())) {
            throw RegException.integrity(state.name + ": this is registry " + state.registry() + ", it was "
                    + seen.registry() + " before");
        }
        List<LogLine> lines = index.linesFrom(seen.seq(), documents);
        int place = 0;
        while (place < lines.size() && lines.get(place).seq != seen.seq()) {
            place++;
        }
        if (place == lines.size() || !lines.get(place).head.equals(seen.head())) {
            throw RegException.integrity(
                    state.name + ": line " + seen.seq() + " is not the one that was there before");
        }
        boolean isSame = isSame(seen, state) && (hasWrongSummaries || haveSameSummaries(seen, state));
        if (state.seq() == seen.seq() && !isSame) {
            throw RegException.integrity(state.name + ": the log is as it was, and its state is not");
        }
        List<LogLine> fresh = lines.subList(place + 1, lines.size());
        new History(seen, state, fresh).check();
        return fresh;
    }

    private void check() {
        checkChannels();
        checkRollouts();
        checkVersions();
        checkYanks();
        checkVerdicts();
    }

    private void checkChannels() {
        Map<String, Object> expected = new LinkedHashMap<>(seen.channels());
        for (LogLine line : lines) {
            if (line.kind.equals("untag")) {
                expected.remove(line.text("tag"));
            } else if (line.kind.equals("tag")) {
                Map<String, Object> channel = new HashMap<>(line.event);
                channel.put("seq", line.seq);
                expected.put(line.text("tag"), channel);
            }
        }
        if (!agreeInEach(expected, state.channels(), CHANNEL)) {
            throw RegException.integrity(
                    "a channel of " + state.name + " was moved without an event in the log");
        }
    }

    private void checkRollouts() {
        Map<String, Object> expected = new LinkedHashMap<>(seen.rollouts());
        for (LogLine line : lines) {
            boolean isStep = line.kind.equals("rollout");
            if (isStep && !line.text("version").isEmpty()) {
                Map<String, Object> rollout = new HashMap<>(line.event);
                rollout.put("to", line.text("version"));
                rollout.put("seq", line.seq);
                expected.put(line.text("tag"), rollout);
            } else if (isStep || line.kind.equals("tag") || line.kind.equals("untag")) {
                expected.remove(line.text("tag"));
            } else if (WITHDRAWALS.contains(line.kind)) {
                boolean isWide = line.kind.equals("yank");
                String value = line.text(isWide ? "manifest" : "version");
                expected.values().removeIf(
                        rollout -> value.equals(Values.mapping(rollout).get(isWide ? "manifest" : "to")));
            }
        }
        if (!agreeInEach(expected, state.rollouts(), ROLLOUT)) {
            throw RegException.integrity("a rollout of " + state.name + " is not what its log says");
        }
    }

    private void checkVersions() {
        Map<String, Object> manifests = new HashMap<>();
        for (String version : seen.versions().keySet()) {
            manifests.put(version, seen.version(version).get("manifest"));
        }
        Set<String> touched = touchedVersions(manifests);
        for (String version : state.versions().keySet()) {
            Map<String, Object> entry = state.version(version);
            Object manifest = manifests.get(version);
            boolean isInvented = manifest == null && Values.count(entry.get("seq")) > seen.seq();
            if (isInvented || (manifest != null && !manifest.equals(entry.get("manifest")))) {
                throw changed(version, "is not the version that the log published");
            }
            Map<String, Object> before = seen.version(version);
            if (before != null && !touched.contains(version) && !Values.agree(before, entry, ENTRY)) {
                throw changed(version, "was changed without an event in the log");
            }
        }
    }

    /** Return the versions that the new lines are about, and add the manifests that they publish. */
    private Set<String> touchedVersions(Map<String, Object> manifests) {
        Set<String> touched = new HashSet<>();
        for (LogLine line : lines) {
            if (line.kind.equals("publish")) {
                manifests.put(line.text("version"), line.text("manifest"));
            }
            boolean isVerdict = line.kind.equals("attest");
            if (isVerdict || line.kind.equals("yank") || line.kind.equals("unyank")) {
                boolean isChange = !isVerdict || !line.text("state").isEmpty();
                manifests.forEach((version, manifest) -> {
                    if (isChange && manifest.equals(line.text("manifest"))) {
                        touched.add(version);
                    }
                });
            } else if (!line.kind.equals("tag") && !Boolean.TRUE.equals(line.event.get("optional"))) {
                touched.add(line.text("version"));
            }
        }
        return touched;
    }

    /**
     * Check that each version has all its yanks: its earlier ones, those of the lines and, if it is new, those of
     * earlier versions with the same manifest. A yank that a line takes back may be missing.
     */
    private void checkYanks() {
        Set<String> published = new HashSet<>();
        Set<String> undone = new HashSet<>();
        for (LogLine line : lines) {
            if (line.kind.equals("publish")) {
                published.add(line.text("version"));
            } else if (line.kind.equals("unyank")) {
                undone.add(line.text("yank"));
            }
        }
        for (String version : state.versions().keySet()) {
            Map<String, Object> entry = state.version(version);
            Set<String> missing = yanksOf(version, entry.get("manifest"), published.contains(version));
            missing.removeAll(undone);
            missing.removeAll(Values.textsOrEmpty(entry.get("yanks")));
            if (!isDropped(entry) && !missing.isEmpty()) {
                throw changed(version, "was yanked, and its state does not say so");
            }
        }
    }

    private Set<String> yanksOf(String version, Object manifest, boolean isNew) {
        Set<String> yanks = new HashSet<>();
        for (String earlier : seen.versions().keySet()) {
            Map<String, Object> entry = seen.version(earlier);
            if ((isNew || earlier.equals(version)) && entry.get("manifest").equals(manifest)) {
                yanks.addAll(Values.textsOrEmpty(entry.get("yanks")));
            }
        }
        for (LogLine line : lines) {
            if (line.kind.equals("yank") && line.text("manifest").equals(manifest)) {
                yanks.add(Sha256.of(JsonWriter.write(line.event)));
            }
        }
        return yanks;
    }

    private void checkVerdicts() {
        for (LogLine line : lines) {
            boolean isVerdict = !line.text("artifact").isEmpty() && !line.text("state").isEmpty();
            if (line.kind.equals("attest") && isVerdict) {
                state.versions().keySet().forEach(version -> checkVerdict(line, version));
            }
        }
    }

    private void checkVerdict(LogLine line, String version) {
        Map<String, Object> entry = state.version(version);
        if (isDropped(entry) || !line.text("manifest").equals(entry.get("manifest"))) {
            return;
        }
        String artifact = line.text("artifact");
        boolean isRefusal = line.text("state").equals("refused");
        boolean isListed = isRefusal && Values.textsOrEmpty(state.value.get("refused")).contains(artifact);
        Object verdict = Values.mappingOrEmpty(entry.get("attested")).get(artifact);
        boolean isMissing = verdict == null || (isRefusal && !"refused".equals(verdict));
        if (isMissing && !(isListed && line.seq < Values.count(entry.get("seq")))) {
            throw changed(version, "was evaluated, and its state does not say so");
        }
    }

    private static boolean isDropped(Map<String, Object> entry) {
        return "dropped".equals(Values.mappingOrEmpty(entry.get("gone")).get("how"));
    }

    private RegException changed(String version, String difference) {
        return RegException.integrity(state.name + ":" + version + " " + difference);
    }

    private static boolean isSame(State one, State other) {
        return Values.keys("tombstones refused").stream().allMatch(key ->
                        Values.textsOrEmpty(one.value.get(key)).equals(Values.textsOrEmpty(other.value.get(key))))
                && Values.agree(one.value, other.value, STATE)
                && one.rollouts().equals(other.rollouts())
                && agreeInEach(one.channels(), other.channels(), CHANNEL)
                && agreeInEach(one.versions(), other.versions(), ENTRY);
    }

    private static boolean haveSameSummaries(State one, State other) {
        boolean isSame = agreeInEach(one.summaries(), other.summaries(), SUMMARY);
        return isSame && one.summaries().keySet().stream()
                .allMatch(version -> agreeInEach(artifacts(one, version), artifacts(other, version), ARTIFACT));
    }

    /** Return the artifacts of a version, by their positions in the list. */
    private static Map<String, Object> artifacts(State state, String version) {
        Map<String, Object> rows = new HashMap<>();
        for (Object artifact : Values.list(state.summary(version).get("artifacts"))) {
            rows.put(String.valueOf(rows.size()), artifact);
        }
        return rows;
    }

    /** Return true if two tables have the same rows, which agree in these keys. */
    private static boolean agreeInEach(
            Map<String, Object> one, Map<String, Object> other, List<String> keys) {
        return one.keySet().equals(other.keySet()) && one.keySet().stream().allMatch(
                key -> Values.agree(Values.mapping(one.get(key)), Values.mapping(other.get(key)), keys));
    }
}
