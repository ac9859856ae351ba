package org.onnxreg.client;

import java.util.function.Supplier;

/** The first requirement that an artifact does not meet: requirements are tested in their order. */
final class Miss {
    /** For programs: docs/resolve.md; null if the artifact meets every requirement. */
    String code;
    /** For people. */
    String detail;

    void unless(boolean isMet, String code, Supplier<String> detail) {
        if (this.code == null && !isMet) {
            this.code = code;
            this.detail = detail.get();
        }
    }
}
