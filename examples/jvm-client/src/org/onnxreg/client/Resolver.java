package org.onnxreg.client;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * From the state of a model to one artifact, as docs/resolve.md specifies.
 *
 * <p>Everything is decided here, on the device. Nothing about it is sent anywhere.
 */
final class Resolver {
    private static final int MAX_RELEASES = 4;

    private final State state;
    private final QueryRules query;
    private final DeviceRules device;
    private final Object deviceDocument;
    private final String seed;
    private final Collection<String> failed;
    private final OperatorSets operatorSets;
    private final List<Rejection> rejected = new ArrayList<Rejection>();

    /**
     * @param seed of this device, by which it takes part in rollouts; null if it does not
     * @param failed digests of artifacts and manifests that failed on this device
     */
    Resolver(State state, Object query, Object device, String seed, Collection<String> failed,
            OperatorSets operatorSets) {
        this.state = state;
        this.query = new QueryRules(query == null ? Collections.emptyMap() : query);
        this.device = device == null ? null : new DeviceRules(device);
        this.deviceDocument = device;
        this.seed = seed;
        this.failed = failed;
        this.operatorSets = operatorSets;
    }

    /** @param tag a version or a channel; null for the newest release that matches */
    Answer resolve(String tag) {
        List<String> versions = tag == null ? releases() : versions(tag);
        Artifact best = null;
        String answer = null;
        for (String version : versions) {
            best = judge(version);
            answer = version;
            if (best != null) {
                break;
            }
        }
        if (tag == null) {
            rejectAbove(answer);
        }
        Collections.sort(rejected, new NewestFirst());
        return new Answer(best == null ? null : answer, best, rejected);
    }

    /** Return the versions that a name without a tag may mean, newest first. */
    private List<String> releases() {
        List<Version> releases = new ArrayList<Version>();
        for (String text : state.versions().keySet()) {
            Version version = Version.parse(text);
            if (state.withdrawal(text) == null && !version.isPrerelease()) {
                releases.add(version);
            }
        }
        Collections.sort(releases, new NewestRelease());
        List<String> newest = new ArrayList<String>();
        for (Version version : releases.subList(0, Math.min(MAX_RELEASES, releases.size()))) {
            newest.add(version.text);
        }
        return newest;
    }

    /** Return the version of a tag; the one of a rollout comes first for a device that takes part. */
    private List<String> versions(String tag) {
        List<String> versions = new ArrayList<String>(Collections.singletonList(usable(tag)));
        Rollout rollout = state.rollout(tag);
        if (rollout != null && rollout.admits(seed, deviceDocument)) {
            versions.add(0, usable(rollout.version));
        }
        return versions;
    }

    /** Return the version of a tag, whose files are there. */
    private String usable(String tag) {
        String version = Version.isVersion(tag) ? tag : state.channel(tag);
        if (version == null || state.version(version) == null) {
            throw new NotFoundException(state.name + " has no " + tag + "; its channels: "
                    + state.channels().keySet());
        }
        String withdrawal = state.withdrawal(version);
        if (withdrawal != null) {
            throw new WithdrawnException(state.name + ":" + version + " is " + withdrawal);
        }
        return version;
    }

    /** Reject the versions above the last one that was considered. */
    private void rejectAbove(String lowest) {
        for (String text : state.versions().keySet()) {
            Version version = Version.parse(text);
            String withdrawal = state.withdrawal(text);
            String code = withdrawal != null ? withdrawal : version.isPrerelease() ? "prerelease" : null;
            boolean isAbove = lowest == null || version.compareTo(Version.parse(lowest)) > 0;
            if (code != null && !code.equals("dropped") && isAbove) {
                rejected.add(new Rejection(text, null, code));
            }
        }
    }

    /**
     * Return the best artifact of a version, and reject the others; null if none meets every requirement. If
     * one failed on this device, only certified ones may take its place.
     */
    private Artifact judge(String version) {
        Map<String, Object> summary = state.summary(version);
        if (summary == null) {
            throw new NotFoundException("the state line of " + state.name + " has no summary of " + version);
        }
        List<Map<String, Object>> shared = Values.mappings(summary.get("files"));
        List<Artifact> artifacts = new ArrayList<Artifact>();
        List<String> codes = new ArrayList<String>();
        int best = -1;
        boolean isManifestFailed = failed.contains(Values.digest(state.version(version).get("manifest")));
        boolean isOnlyCertified = false;
        for (Map<String, Object> item : Values.mappings(summary.get("artifacts"))) {
            isOnlyCertified |= failed.contains(Values.digest(item.get("digest")));
        }
        for (Map<String, Object> item : Values.mappings(summary.get("artifacts"))) {
            boolean isRefused = state.isRefused(version, Values.digest(item.get("digest")));
            Artifact artifact = new Artifact(item, shared, isRefused);
            String code = isManifestFailed || failed.contains(artifact.digest) ? "failed"
                    : isOnlyCertified && !artifact.state.equals("certified") ? "not-certified"
                    : unmet(version, summary, artifact);
            if (code == null && (best < 0 || query.compare(artifact, artifacts.get(best)) < 0)) {
                best = artifacts.size();
            }
            artifacts.add(artifact);
            codes.add(code);
        }
        for (int i = 0; i < artifacts.size(); i++) {
            if (i != best) {
                String code = codes.get(i) == null ? "ranked-lower" : codes.get(i);
                rejected.add(new Rejection(version, artifacts.get(i).path, code));
            }
        }
        return best < 0 ? null : artifacts.get(best);
    }

    /** Return the code of the first requirement that an artifact does not meet; null if it meets all. */
    private String unmet(String version, Map<String, Object> summary, Artifact artifact) {
        String code = query.unmet(artifact);
        if (code != null) {
            return code;
        }
        if (query.hasExpression() && !query.matches(candidate(version, summary, artifact))) {
            return "where";
        }
        Object held = state.version(version).get("held");
        if (held != null && !Values.texts(held).contains(artifact.path)) {
            return "not-held";
        }
        return device == null ? null : device.unmet(artifact, query.context, operatorSets);
    }

    private Map<String, Object> candidate(String version, Map<String, Object> summary, Artifact artifact) {
        Map<String, Object> entry = state.version(version);
        Map<String, Object> candidate = new LinkedHashMap<String, Object>(artifact.value);
        for (String key : Values.keys("task family license profile")) {
            candidate.put(key, summary.get(key));
        }
        candidate.put("state", artifact.state);
        candidate.put("certified", artifact.state.equals("certified"));
        candidate.put("download_size", artifact.download);
        candidate.put("providers", artifact.texts("providers"));
        candidate.put("min_recall", lowest(artifact.mapping("recall")));
        candidate.put("metric", artifact.mapping("metrics"));
        candidate.put("name", state.name);
        candidate.put("version", version);
        candidate.put("manifest", entry.get("manifest"));
        candidate.put("channels", channels(version));
        candidate.put("newest", version.equals(releases().isEmpty() ? null : releases().get(0)));
        candidate.put("prerelease", Version.parse(version).isPrerelease());
        candidate.put("yanked", entry.get("yanks") != null);
        candidate.put("pinned", Boolean.TRUE.equals(entry.get("pinned")));
        return candidate;
    }

    private List<Object> channels(String version) {
        List<Object> tags = new ArrayList<Object>();
        for (String tag : state.channels().keySet()) {
            if (version.equals(state.channel(tag))) {
                tags.add(tag);
            }
        }
        return tags;
    }

    private static Double lowest(Map<String, Object> recall) {
        Double lowest = null;
        for (Object value : recall.values()) {
            double share = Values.number(value);
            lowest = lowest == null ? share : Math.min(lowest, share);
        }
        return lowest;
    }

    private final class NewestRelease implements Comparator<Version> {
        @Override
        public int compare(Version one, Version other) {
            int order = other.compareTo(one);
            return order != 0 ? order : Long.compare(line(other), line(one));
        }

        private long line(Version version) {
            return Values.count(state.version(version.text).get("seq"));
        }
    }

    private static final class NewestFirst implements Comparator<Rejection> {
        @Override
        public int compare(Rejection one, Rejection other) {
            return Version.parse(other.version).compareTo(Version.parse(one.version));
        }
    }
}
