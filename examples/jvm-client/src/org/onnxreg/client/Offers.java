package org.onnxreg.client;

import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** The deltas that a version offers, and the choice among them: docs/delta.md, "Choosing". */
final class Offers {
    private Offers() {}

    /** Return the deltas of a version; none if their table cannot be read, since they are hints. */
    static List<Delta> read(State state, String version, Documents documents) {
        try {
            Map<String, Object> entry = state.version(version);
            Object table = entry == null ? null : entry.get("deltas");
            return table == null ? Collections.<Delta>emptyList()
                    : Delta.readAll(IndexFile.document(documents.read(Values.digest(table))).get("deltas"));
        } catch (InputException error) {
            return Collections.emptyList();
        } catch (IntegrityException error) {
            return Collections.emptyList();
        } catch (NotFoundException error) {
            return Collections.emptyList();
        } catch (RemoteException error) {
            return Collections.emptyList();
        }
    }

    /**
     * Return the smallest delta of each file to get whose old files are here, if it has less than half of the
     * file's bytes.
     *
     * @param sizes bytes of the files to get, by digest
     * @param present digests of the files that are here
     */
    static Map<String, Delta> choose(List<Delta> offered, Map<String, Long> sizes, Set<String> present) {
        Map<String, Delta> chosen = new HashMap<String, Delta>();
        for (Delta delta : offered) {
            Long size = sizes.get(delta.newDigest);
            Delta other = chosen.get(delta.newDigest);
            if (size != null && delta.size < size - delta.size && present.containsAll(delta.oldDigests)
                    && (other == null || delta.isBefore(other))) {
                chosen.put(delta.newDigest, delta);
            }
        }
        return chosen;
    }
}
