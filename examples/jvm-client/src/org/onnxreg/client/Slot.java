package org.onnxreg.client;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;

/** The current release of a model and the previous one. */
public final class Slot {
    private static final int MAX_REFUSED = 100;

    /** The current release; null before the first update. */
    public final Release current;
    /** The previous release; null if there is none. */
    public final Release previous;
    /** Digests of artifacts that failed here, and of artifacts and manifests that were rolled back. */
    final List<String> refused;

    private Slot(Release current, Release previous, List<String> refused) {
        this.current = current;
        this.previous = previous;
        this.refused = refused;
    }

    static Slot empty() {
        return new Slot(null, null, Collections.emptyList());
    }

    static Slot read(byte[] bytes) {
        Map<String, Object> value = Values.mapping(JsonReader.read(bytes));
        return new Slot(release(value.get("current")), release(value.get("previous")),
                Values.texts(value.get("refused")));
    }

    String write() {
        return JsonWriter.write(Values.table("current", current == null ? null : current.toJson(),
                "previous", previous == null ? null : previous.toJson(), "refused", refused));
    }

    boolean isCurrent(Release release) {
        return release.isSame(current);
    }

    Slot with(Release release) {
        return new Slot(release, isCurrent(release) ? previous : current, refused);
    }

    Slot refusing(String digest) {
        List<String> list = new ArrayList<>(refused);
        list.remove(digest);
        list.add(digest);
        return new Slot(current, previous, list.subList(Math.max(0, list.size() - MAX_REFUSED), list.size()));
    }

    /** Return this slot with the previous release as its current one. Throw a not-found error if it has none. */
    Slot rolledBack(String name, Withdrawals withdrawals) {
        if (current == null || previous == null) {
            throw RegException.notFound(name + " has no previous release");
        }
        String how = withdrawals.of(previous);
        if (how != null) {
            throw RegException.notFound(previous + " was " + how);
        }
        Slot slot = refusing(current.manifest);
        if (!current.artifact.digest.equals(previous.artifact.digest)) {
            slot = slot.refusing(current.artifact.digest);
        }
        return new Slot(previous, null, slot.refused);
    }

    Slot withoutReleases() {
        return new Slot(null, null, refused);
    }

    Slot withoutPrevious() {
        return new Slot(current, null, refused);
    }

    Slot withoutRefusals() {
        return new Slot(current, previous, Collections.emptyList());
    }

    /** Return the releases whose files are kept. */
    List<Release> releases() {
        List<Release> releases = new ArrayList<>(Arrays.asList(current, previous));
        releases.removeIf(release -> release == null);
        return releases;
    }

    private static Release release(Object value) {
        return value == null ? null : new Release(Values.mapping(value));
    }
}
