package org.onnxreg.client;

import java.util.function.Supplier;

/** The first requirement, in the order of the tests, that an artifact does not meet. */
final class Miss {
    /** The code for programs (docs/resolve.md), or null if the artifact meets every requirement. */
    String code;
    /** The text for people. */
    String detail;

    void unless(boolean isMet, String code, Supplier<String> detail) {
        if (this.code == null && !isMet) {
            this.code = code;
            this.detail = detail.get();
        }
    }
}
