package org.onnxreg.client;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * The manifests that were yanked, purged or dropped, or whose rollout was halted. No device goes back to such
 * a release, and none stays on it: docs/resolve.md, "On a device".
 */
final class Withdrawals {
    static final Withdrawals NONE = new Withdrawals(new ArrayList<>());

    /** How events withdraw their manifest, and which withdrawals other events end. */
    private static final Map<String, Object> BEGINS =
            Values.table("yank", "yanked", "purge", "purged", "drop", "dropped");
    private static final Map<String, Object> ENDS = Values.table(
            "unyank", "yanked", "publish", "dropped", "tag", "halted", "rollout", "halted");

    /** Pairs of how and manifest. A manifest that was yanked twice has two pairs. */
    private final List<List<String>> entries;

    private Withdrawals(List<List<String>> entries) {
        this.entries = entries;
    }

    static Withdrawals read(Object value) {
        return new Withdrawals(Values.each(value, Values::texts));
    }

    Object toJson() {
        return new ArrayList<>(entries);
    }

    /** Return how a release was withdrawn; null if it is offered. */
    String of(Release release) {
        return entries.stream().filter(entry -> entry.get(1).equals(release.manifest))
                .map(entry -> entry.get(0)).findFirst().orElse(null);
    }

    /** Return the withdrawals after more lines of the log. */
    Withdrawals after(State seen, List<LogLine> lines) {
        List<List<String>> now = new ArrayList<>(entries);
        Map<String, String> rollouts = new HashMap<>();
        seen.rollouts().forEach((tag, rollout) ->
                rollouts.put(tag, Values.text(Values.mapping(rollout).get("manifest"))));
        for (LogLine line : lines) {
            String manifest = line.text("manifest");
            if (BEGINS.containsKey(line.kind)) {
                add(now, (String) BEGINS.get(line.kind), manifest);
            } else if (ENDS.containsKey(line.kind) && !manifest.isEmpty()) {
                now.remove(Arrays.asList((String) ENDS.get(line.kind), manifest));
            }
            if (line.kind.equals("rollout") && !manifest.isEmpty()) {
                rollouts.put(line.text("tag"), manifest);
            } else if (line.kind.equals("rollout") && rollouts.containsKey(line.text("tag"))) {
                add(now, "halted", rollouts.remove(line.text("tag")));
            }
        }
        return new Withdrawals(now);
    }

    private static void add(List<List<String>> entries, String how, String manifest) {
        if (how.equals("yanked") || !entries.contains(Arrays.asList(how, manifest))) {
            entries.add(Arrays.asList(how, manifest));
        }
    }
}
