package org.onnxreg.client;

/** The answer that a device takes, or what it does without one: docs/resolve.md, "On a device". */
final class Decision {
    /** The answer; null if there is none. */
    final Answer answer;
    /** True if the device stays on its current release: the answer failed here, or is withdrawn. */
    final boolean isStaying;
    /** True if the device leaves its current release, which is withdrawn. */
    final boolean isLeaving;
    /** Why there is no answer. */
    final NotFoundException error;

    /** Asks the question of an update. */
    interface Asker {
        /** @param tag of the question, or another one; then no rollout counts */
        Answer ask(String tag, boolean isOther);

        /** Return the releases that are withdrawn, after the question was asked. */
        Withdrawals withdrawals();
    }

    private Decision(Answer answer, boolean isStaying, boolean isLeaving, NotFoundException error) {
        this.answer = answer;
        this.isStaying = isStaying;
        this.isLeaving = isLeaving;
        this.error = error;
    }

    static Decision of(String name, Slot slot, String tag, Asker asker) {
        NotFoundException error;
        boolean hasFailed = false;
        try {
            Answer answer = asker.ask(tag, false);
            if (answer.matches()) {
                return new Decision(answer, false, false, null);
            }
            for (Rejection rejection : answer.rejected) {
                hasFailed |= rejection.code.equals("failed");
            }
            error = new NothingFitsException(name, answer.rejected);
        } catch (NotFoundException failure) {
            hasFailed = failure instanceof WithdrawnException;
            error = failure;
        }
        if (slot.current == null) {
            return new Decision(null, false, false, error);
        }
        Withdrawals withdrawals = asker.withdrawals();
        if (withdrawals.of(slot.current) == null) {
            return new Decision(null, hasFailed, false, error);
        }
        if (slot.previous != null && withdrawals.of(slot.previous) == null) {
            try {
                Answer answer = asker.ask(slot.previous.version, true);
                if (answer.matches()) {
                    return new Decision(answer, false, false, null);
                }
            } catch (NotFoundException failure) {
                // The previous release is not offered any more.
            }
        }
        return new Decision(null, false, true, error);
    }
}
