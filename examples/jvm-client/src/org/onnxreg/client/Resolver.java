package org.onnxreg.client;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.function.ToLongFunction;
import java.util.stream.Collectors;

/**
 * Chooses one artifact by the state of a model, as docs/resolve.md specifies.
 *
 * <p>Everything is decided here, on the device. Nothing about it is sent anywhere.
 */
final class Resolver {
    private static final int MAX_RELEASES = 4;
    private static final Map<String, Object> WITHHELD = Values.table(
            "yanked", "is yanked", "expired", "has expired: its files are no longer here",
            "purged", "was taken down", "dropped", "was dropped",
            "prerelease", "is a pre-release, which only its own tag or a channel means");
    private final State state;
    private final QueryRules query;
    private final DeviceRules device;
    private final Object deviceDocument;
    private final String seed;
    private final Collection<String> failed;
    private final Function<String, Object> operatorSets;
    /** The bytes of a digest that are on this device. */
    ToLongFunction<String> here = digest -> 0;
    private final List<Rejection> rejected = new ArrayList<>();

    /** A tag names a version that is not offered any more. */
    static final class Withdrawn extends RegException {
        private static final long serialVersionUID = 1;

        Withdrawn(String message) {
            super(Family.NOT_FOUND, message);
        }
    }

    /**
     * @param seed of this device, by which it takes part in rollouts; null if it does not
     * @param failed digests of artifacts and manifests that failed on this device
     * @param operatorSets the operator sets by their digests, as JSON
     */
    Resolver(State state, Object query, Object device, String seed, Collection<String> failed,
            Function<String, Object> operatorSets) {
        this.state = state;
        this.query = new QueryRules(query == null ? Collections.emptyMap() : query);
        this.device = device == null ? null : new DeviceRules(device);
        this.deviceDocument = device;
        this.seed = seed;
        this.failed = failed;
        this.operatorSets = operatorSets;
    }

    /**
     * @param tag a version or a channel; null for the newest release that matches
     * @param isOffline true if the registry could not be reached for the state
     * @param isStale true if the registry answered with an older state
     */
    Answer resolve(String tag, boolean isOffline, boolean isStale) {
        List<String> versions = tag == null ? releases() : versions(tag);
        Artifact best = null;
        String answer = null;
        for (int i = 0; best == null && i < versions.size(); i++) {
            answer = tag == null ? versions.get(i) : usable(versions.get(i));
            best = judge(answer);
        }
        if (tag == null) {
            rejectAbove(answer);
        }
        Comparator<Rejection> byVersion = Comparator.comparing(rejection -> Version.parse(rejection.version));
        rejected.sort(byVersion.reversed());
        return new Answer(best == null ? null : answer, best, rejected, state, isOffline, isStale);
    }

    /** Return the versions that a name without a tag may mean, newest first. */
    private List<String> releases() {
        List<Version> releases = new ArrayList<>();
        for (String text : state.versions().keySet()) {
            Version version = Version.parse(text);
            if (state.withdrawal(text) == null && !version.isPrerelease()) {
                releases.add(version);
            }
        }
        Comparator<Version> oldestFirst = Comparator.<Version>naturalOrder().thenComparingLong(
                version -> Values.count(state.version(version.text).get("seq")));
        releases.sort(oldestFirst.reversed());
        return releases.stream().limit(MAX_RELEASES).map(version -> version.text)
                .collect(Collectors.toList());
    }

    /** Return a tag and, before it, the version of its rollout if the device takes part. */
    private List<String> versions(String tag) {
        Rollout rollout = state.rollout(tag);
        boolean isIn = rollout != null && rollout.admits(seed, deviceDocument);
        return isIn ? Arrays.asList(rollout.version, tag) : Collections.singletonList(tag);
    }

    /** Return the version of a tag. Throw an error if the version does not exist or is withdrawn. */
    private String usable(String tag) {
        String version = Version.isVersion(tag) ? tag : state.channel(tag);
        if (version == null || state.version(version) == null) {
            throw RegException.notFound(state.name + " has no " + tag + "; its channels: "
                    + state.channels().keySet());
        }
        String withdrawal = state.withdrawal(version);
        if (withdrawal != null) {
            throw new Withdrawn(state.name + ":" + version + " " + WITHHELD.get(withdrawal));
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
                rejected.add(new Rejection(text, null, code, (String) WITHHELD.get(code)));
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
            throw RegException.notFound("the state line of " + state.name + " has no summary of " + version);
        }
        List<Map<String, Object>> shared = Values.mappings(summary.get("files"));
        List<Map<String, Object>> items = Values.mappings(summary.get("artifacts"));
        boolean isManifestFailed = failed.contains(Values.digest(state.version(version).get("manifest")));
        boolean isOnlyCertified = items.stream().anyMatch(item -> failed.contains(item.get("digest")));
        Object held = state.version(version).get("held");
        Map<Artifact, Miss> misses = new LinkedHashMap<>();
        Artifact best = null;
        for (Map<String, Object> item : items) {
            boolean isRefused = state.isRefused(version, Values.digest(item.get("digest")));
            Artifact artifact = new Artifact(state.timed(version, item), shared, isRefused);
            Miss miss = new Miss();
            miss.unless(!isManifestFailed && !failed.contains(artifact.digest), "failed", () ->
                    "failed on this device, or was rolled back");
            miss.unless(!isOnlyCertified || artifact.isCertified(), "not-certified",
                    artifact::whyNotCertified);
            query.test(artifact, miss);
            miss.unless(query.where == null || query.where.matches(candidate(version, summary, artifact)),
                    "where", () -> "does not meet " + query.source);
            miss.unless(held == null || Values.texts(held).contains(artifact.path), "not-held", () ->
                    "is not held here");
            if (device != null) {
                device.test(artifact, artifact.missing(here), query.context, operatorSets, miss);
            }
            if (miss.code == null && (best == null || query.compare(artifact, best, device) < 0)) {
                best = artifact;
            }
            misses.put(artifact, miss);
        }
        Artifact chosen = best;
        misses.remove(chosen);
        misses.forEach((artifact, miss) -> {
            miss.unless(false, "ranked-lower", () -> chosen.path + " ranks higher");
            rejected.add(new Rejection(version, artifact.path, miss.code, miss.detail));
        });
        return best;
    }

    private Map<String, Object> candidate(String version, Map<String, Object> summary, Artifact artifact) {
        Map<String, Object> entry = state.version(version);
        Map<String, Object> candidate = new LinkedHashMap<>(artifact.value);
        for (String key : Values.keys("task family license profile")) {
            candidate.put(key, summary.get(key));
        }
        candidate.put("min_recall", artifact.mapping("recall").values().stream()
                .map(Values::number).min(Comparator.naturalOrder()).orElse(null));
        candidate.put("latency", artifact.speeds().stream().map(speed -> Values.number(speed.get("ratio")))
                .max(Comparator.naturalOrder()).orElse(null));
        List<String> channels = new ArrayList<>(state.channels().keySet());
        channels.removeIf(tag -> !version.equals(state.channel(tag)));
        candidate.putAll(Values.table("state", artifact.state, "certified", artifact.state.equals("certified"),
                "download_size", artifact.download, "providers", artifact.texts("providers"),
                "metric", artifact.mapping("metrics"), "name", state.name, "version", version,
                "manifest", entry.get("manifest"), "channels", channels,
                "newest", releases().indexOf(version) == 0, "yanked", entry.get("yanks") != null,
                "prerelease", Version.parse(version).isPrerelease(),
                "pinned", Boolean.TRUE.equals(entry.get("pinned"))));
        return candidate;
    }
}
