package org.onnxreg.client;

import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Compares a state with the one that was seen before: it must be that one, as the new lines of the log
 * changed it.
 *
 * <p>Channels are where the lines moved them, a version differs only if a line is about it, a yank that no
 * line takes back stays, and so does a verdict.
 */
final class History {
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
    private final Iterable<LogLine> lines;

    private History(State seen, State state, Iterable<LogLine> lines) {
        this.seen = seen;
        this.state = state;
        this.lines = lines;
    }

    /**
     * Throw IntegrityException if the state of an index file that has all lines is not their result.
     * Summaries are compared with the manifests later; a longer log is believed at the first contact.
     */
    static void checkFirst(IndexFile index) {
        if (index.lines.get(0).seq == 1) {
            new History(State.empty(index.state), index.state, index.lines).check();
        }
    }

    /**
     * Return the lines after those that were seen. IntegrityException if an index file does not continue the
     * state that was seen last.
     *
     * @param hasWrongSummaries true if a manifest contradicted the summaries that were seen: these may change
     */
    static List<LogLine> checkContinues(State seen, boolean hasWrongSummaries, IndexFile index, Documents documents) {
        State state = index.state;
        if (!state.registry().equals(seen.registry())) {
            throw new IntegrityException(
                    state.name + ": this is registry " + state.registry() + ", it was " + seen.registry()
                            + " before");
        }
        List<LogLine> lines = index.linesFrom(seen.seq(), documents);
        int place = 0;
        while (place < lines.size() && lines.get(place).seq != seen.seq()) {
            place++;
        }
        if (place == lines.size() || !lines.get(place).head.equals(seen.head())) {
            throw new IntegrityException(
                    state.name + ": line " + seen.seq() + " is not the one that was there before");
        }
        boolean isSame = isSame(seen, state) && (hasWrongSummaries || haveSameSummaries(seen, state));
        if (state.seq() == seen.seq() && !isSame) {
            throw new IntegrityException(state.name + ": the log is as it was, and its state is not");
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
        Map<String, Object> expected = new LinkedHashMap<String, Object>(seen.channels());
        for (LogLine line : lines) {
            if (line.kind().equals("untag")) {
                expected.remove(line.text("tag"));
            } else if (line.kind().equals("tag")) {
                Map<String, Object> channel = new HashMap<String, Object>(line.event);
                channel.put("seq", line.seq);
                expected.put(line.text("tag"), channel);
            }
        }
        if (!agreeInEach(expected, state.channels(), CHANNEL)) {
            throw new IntegrityException("a channel of " + state.name
                    + " was moved without an event in the log");
        }
    }

    private void checkRollouts() {
        Map<String, Object> expected = new LinkedHashMap<String, Object>(seen.rollouts());
        for (LogLine line : lines) {
            boolean isStep = line.kind().equals("rollout");
            if (isStep && !line.text("version").isEmpty()) {
                Map<String, Object> rollout = new HashMap<String, Object>(line.event);
                rollout.put("to", line.text("version"));
                rollout.put("seq", line.seq);
                expected.put(line.text("tag"), rollout);
            } else if (isStep || line.kind().equals("tag") || line.kind().equals("untag")) {
                expected.remove(line.text("tag"));
            } else if (WITHDRAWALS.contains(line.kind())) {
                boolean isWide = line.kind().equals("yank");
                removeRollouts(isWide ? "manifest" : "to", line.text(isWide ? "manifest" : "version"),
                        expected);
            }
        }
        if (!agreeInEach(expected, state.rollouts(), ROLLOUT)) {
            throw new IntegrityException("a rollout of " + state.name + " is not what its log says");
        }
    }

    private static void removeRollouts(String key, String value, Map<String, Object> rollouts) {
        for (Iterator<Object> entries = rollouts.values().iterator(); entries.hasNext();) {
            if (value.equals(Values.mapping(entries.next()).get(key))) {
                entries.remove();
            }
        }
    }

    private void checkVersions() {
        Map<String, String> manifests = new HashMap<String, String>();
        for (String version : seen.versions().keySet()) {
            manifests.put(version, manifestOf(seen, version));
        }
        Set<String> touched = touchedVersions(manifests);
        for (String version : state.versions().keySet()) {
            Map<String, Object> entry = state.version(version);
            String manifest = manifests.get(version);
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
    private Set<String> touchedVersions(Map<String, String> manifests) {
        Set<String> touched = new HashSet<String>();
        for (LogLine line : lines) {
            if (line.kind().equals("publish")) {
                manifests.put(line.text("version"), line.text("manifest"));
            }
            boolean isVerdict = line.kind().equals("attest");
            if (isVerdict || line.kind().equals("yank") || line.kind().equals("unyank")) {
                boolean isChange = !isVerdict || !line.text("state").isEmpty();
                for (Map.Entry<String, String> entry : manifests.entrySet()) {
                    if (isChange && entry.getValue().equals(line.text("manifest"))) {
                        touched.add(entry.getKey());
                    }
                }
            } else if (!line.kind().equals("tag") && !Boolean.TRUE.equals(line.event.get("optional"))) {
                touched.add(line.text("version"));
            }
        }
        return touched;
    }

    /**
     * Each version has the yanks that it had, those of earlier versions with its manifest if it is new, and
     * those of the lines, but for those that a line takes back.
     */
    private void checkYanks() {
        Set<String> published = new HashSet<String>();
        Set<String> undone = new HashSet<String>();
        for (LogLine line : lines) {
            if (line.kind().equals("publish")) {
                published.add(line.text("version"));
            } else if (line.kind().equals("unyank")) {
                undone.add(line.text("yank"));
            }
        }
        for (String version : state.versions().keySet()) {
            Map<String, Object> entry = state.version(version);
            boolean isDropped = "dropped".equals(Values.mappingOrEmpty(entry.get("gone")).get("how"));
            Set<String> missing = yanksOf(version, entry.get("manifest"), published.contains(version));
            missing.removeAll(undone);
            missing.removeAll(Values.textsOrEmpty(entry.get("yanks")));
            if (!isDropped && !missing.isEmpty()) {
                throw changed(version, "was yanked, and its state does not say so");
            }
        }
    }

    private Set<String> yanksOf(String version, Object manifest, boolean isNew) {
        Set<String> yanks = new HashSet<String>();
        for (String earlier : seen.versions().keySet()) {
            Map<String, Object> entry = seen.version(earlier);
            if ((isNew || earlier.equals(version)) && entry.get("manifest").equals(manifest)) {
                yanks.addAll(Values.textsOrEmpty(entry.get("yanks")));
            }
        }
        for (LogLine line : lines) {
            if (line.kind().equals("yank") && line.text("manifest").equals(manifest)) {
                yanks.add(Sha256.of(JsonWriter.write(line.event)));
            }
        }
        return yanks;
    }

    private void checkVerdicts() {
        for (LogLine line : lines) {
            boolean isVerdict = !line.text("artifact").isEmpty() && !line.text("state").isEmpty();
            if (line.kind().equals("attest") && isVerdict) {
                for (String version : state.versions().keySet()) {
                    checkVerdict(line, version);
                }
            }
        }
    }

    private void checkVerdict(LogLine line, String version) {
        Map<String, Object> entry = state.version(version);
        boolean isDropped = "dropped".equals(Values.mappingOrEmpty(entry.get("gone")).get("how"));
        if (isDropped || !line.text("manifest").equals(entry.get("manifest"))) {
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

    private IntegrityException changed(String version, String difference) {
        return new IntegrityException(state.name + ":" + version + " " + difference);
    }

    /** Compare the keys that every build of onnxreg writes; a newer build may add keys for the same log. */
    private static boolean isSame(State one, State other) {
        return Values.agree(one.value, other.value, Values.keys("registry name seq head segments checkpoint"))
                && Values.textsOrEmpty(one.value.get("tombstones")).equals(
                        Values.textsOrEmpty(other.value.get("tombstones")))
                && Values.textsOrEmpty(one.value.get("refused")).equals(
                        Values.textsOrEmpty(other.value.get("refused")))
                && one.rollouts().equals(other.rollouts())
                && agreeInEach(one.channels(), other.channels(), CHANNEL)
                && agreeInEach(one.versions(), other.versions(), ENTRY);
    }

    private static boolean haveSameSummaries(State one, State other) {
        if (!agreeInEach(one.summaries(), other.summaries(), SUMMARY)) {
            return false;
        }
        for (String version : one.summaries().keySet()) {
            Iterator<Map<String, Object>> left = artifacts(one, version);
            Iterator<Map<String, Object>> right = artifacts(other, version);
            while (left.hasNext() && right.hasNext()) {
                if (!Values.agree(left.next(), right.next(), ARTIFACT)) {
                    return false;
                }
            }
            if (left.hasNext() || right.hasNext()) {
                return false;
            }
        }
        return true;
    }

    private static Iterator<Map<String, Object>> artifacts(State state, String version) {
        return Values.mappings(state.summary(version).get("artifacts")).iterator();
    }

    /** Return true if two tables have the same rows, which agree in these keys. */
    private static boolean agreeInEach(Map<String, Object> one, Map<String, Object> other,
            List<String> keys) {
        if (!one.keySet().equals(other.keySet())) {
            return false;
        }
        for (Map.Entry<String, Object> row : one.entrySet()) {
            if (!Values.agree(Values.mapping(row.getValue()), Values.mapping(other.get(row.getKey())),
                    keys)) {
                return false;
            }
        }
        return true;
    }

    private static String manifestOf(State state, String version) {
        return Values.digest(state.version(version).get("manifest"));
    }
}
