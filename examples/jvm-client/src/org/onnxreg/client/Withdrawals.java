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

    /** How, and the manifest; a manifest that was yanked twice is here twice. */
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

    /** Return what is withdrawn after some more lines of the log. */
    Withdrawals after(State seen, List<LogLine> lines) {
        List<List<String>> now = new ArrayList<>(entries);
        Map<String, String> rollouts = new HashMap<>();
        seen.rollouts().forEach((tag, rollout) ->
                rollouts.put(tag, Values.text(Values.mapping(rollout).get("manifest"))));
        for (LogLine line : lines) {
            String manifest = line.text("manifest");
            switch (line.kind) {
                case "yank":
                    now.add(Arrays.asList("yanked", manifest));
                    break;
                case "unyank":
                    now.remove(Arrays.asList("yanked", manifest));
                    break;
                case "purge":
                    now.add(Arrays.asList("purged", manifest));
                    break;
                case "drop":
                    now.add(Arrays.asList("dropped", manifest));
                    break;
                case "publish":
                    now.remove(Arrays.asList("dropped", manifest));
                    break;
                case "tag":
                    now.remove(Arrays.asList("halted", manifest));
                    break;
                case "rollout":
                    String before = manifest.isEmpty() ? rollouts.remove(line.text("tag"))
                            : rollouts.put(line.text("tag"), manifest);
                    if (!manifest.isEmpty()) {
                        now.remove(Arrays.asList("halted", manifest));
                    } else if (before != null) {
                        now.add(Arrays.asList("halted", before));
                    }
                    break;
                default:
            }
        }
        return new Withdrawals(now);
    }
}
