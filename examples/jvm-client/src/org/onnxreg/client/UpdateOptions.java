package org.onnxreg.client;

/** The options of an update. */
public final class UpdateOptions {
    Listener listener = new Listener() {};
    Cancellation cancellation = new Cancellation();
    SelfTest selfTest;
    boolean hasDeltas = true;

    /** Report progress. */
    public UpdateOptions listener(Listener value) {
        listener = value;
        return this;
    }

    /** Let another thread end the update. */
    public UpdateOptions cancellation(Cancellation value) {
        cancellation = value;
        return this;
    }

    /** Test a release before it becomes current. */
    public UpdateOptions selfTest(SelfTest value) {
        selfTest = value;
        return this;
    }

    /** Fetch whole files only. */
    public UpdateOptions withoutDeltas() {
        hasDeltas = false;
        return this;
    }
}
