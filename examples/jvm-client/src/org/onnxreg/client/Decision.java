package org.onnxreg.client;

import java.util.function.Supplier;

/** The decision of an update: docs/resolve.md, "On a device". */
final class Decision {
    /** The answer; null if there is none. */
    final Answer answer;
    /** True if the device stays on its current release: the answer failed here, or is withdrawn. */
    final boolean isStaying;
    /** True if the device leaves its current release, which is withdrawn. */
    final boolean isLeaving;
    /** Why there is no answer. */
    final RegException error;

    /** Asks the question of an update. */
    interface Asker {
        /** @param tag of the question, or another one; then no rollout counts */
        Answer ask(String tag, boolean isOther);
    }

    private Decision(Answer answer, boolean isStaying, boolean isLeaving, RegException error) {
        this.answer = answer;
        this.isStaying = isStaying;
        this.isLeaving = isLeaving;
        this.error = error;
    }

    /** @param latest returns the releases that are withdrawn, after the question was asked */
    static Decision of(String name, Slot slot, String tag, Asker asker, Supplier<Withdrawals> latest) {
        RegException error;
        boolean hasFailed;
        try {
            Answer answer = asker.ask(tag, false);
            if (answer.matches()) {
                return new Decision(answer, false, false, null);
            }
            hasFailed = answer.rejected.stream().anyMatch(rejection -> rejection.code.equals("failed"));
            error = new RegException(RegException.Family.NOT_FOUND,
                    name + " has no artifact for this device and query", null, answer.rejected);
        } catch (RegException failure) {
            hasFailed = failure instanceof Resolver.Withdrawn;
            error = ifNotFound(failure);
        }
        if (slot.current == null) {
            return new Decision(null, false, false, error);
        }
        Withdrawals withdrawals = latest.get();
        if (withdrawals.of(slot.current) == null) {
            return new Decision(null, hasFailed, false, error);
        }
        if (slot.previous != null && withdrawals.of(slot.previous) == null) {
            try {
                Answer answer = asker.ask(slot.previous.version, true);
                if (answer.matches()) {
                    return new Decision(answer, false, false, null);
                }
            } catch (RegException failure) {
                ifNotFound(failure); // then the previous release is not offered any more
            }
        }
        return new Decision(null, false, true, error);
    }

    private static RegException ifNotFound(RegException error) {
        if (error.family != RegException.Family.NOT_FOUND) {
            throw error;
        }
        return error;
    }
}
