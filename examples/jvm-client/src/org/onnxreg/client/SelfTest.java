package org.onnxreg.client;

/** The app's own test of a release, such as its golden vectors in the app's ONNX Runtime (docs/golden.md). */
public interface SelfTest {
    /**
     * Return true if a release works on this device. Its files are here and verified; it is not current yet.
     *
     * <p>After false, or an exception that is not a RegException, its artifact is never taken again. The
     * directory is locked meanwhile: read files here, and do not update or roll back.
     */
    boolean passes(Registry registry, Release release) throws Exception;
}
