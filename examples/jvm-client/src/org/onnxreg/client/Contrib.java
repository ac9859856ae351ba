package org.onnxreg.client;

import java.util.List;

/** Contrib operators and the releases that run them: docs/resolve.md, "Contrib operators". */
final class Contrib {
    static final String DOMAIN = "com.microsoft";

    private Contrib() {}

    /** Return true if a release has every need. */
    static boolean meets(RuntimeRelease release, List<String> needs) {
        for (String need : needs) {
            RuntimeRelease first = ContribReleases.first(need);
            if (first == null || first.compareTo(release) > 0) {
                return false;
            }
        }
        return true;
    }
}
