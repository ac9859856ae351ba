package org.onnxreg.client;

import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.regex.Pattern;

/** A staged rollout (docs/rollouts.md): each device decides by its own random seed whether it takes part. */
final class Rollout {
    private static final int PARTS = 10000;
    private static final Pattern SALT = Pattern.compile("[0-9a-f]{32}");
    private static final Pattern SEED = Pattern.compile("[0-9a-f]{64}");

    /** The version that the devices in the rollout get. */
    final String version;
    private final String salt;
    private final double percent;
    private final String where;

    private Rollout(Map<String, Object> value) {
        version = value.get("to") == null ? null : Values.text(value.get("to"));
        salt = Values.text(value.get("salt"));
        percent = Values.number(value.get("percent"));
        where = value.get("where") == null ? null : Values.text(value.get("where"));
    }

    static Rollout read(Object value) {
        return new Rollout(Values.mapping(value));
    }

    /** Check a rollout of a state line. */
    static void check(Object value) {
        Map<String, Object> entry = Values.mapping(value);
        Rollout rollout = new Rollout(entry);
        Version.parse(rollout.version);
        Values.digest(entry.get("manifest"));
        Values.count(entry.get("seq"));
        boolean isShare = rollout.percent > 0 && rollout.percent <= 100;
        if (!isShare || !SALT.matcher(rollout.salt).matches()) {
            throw new InputException("a rollout is malformed");
        }
    }

    /** Return a new seed. It never leaves the device. */
    static String newSeed() {
        byte[] bytes = new byte[32];
        new SecureRandom().nextBytes(bytes);
        return Sha256.hex(bytes);
    }

    /** Return true if the device with this seed takes part; without a seed it does not. */
    boolean admits(String seed, Object device) {
        if (seed == null) {
            return false;
        }
        if (!SEED.matcher(seed).matches()) {
            throw new InputException("a seed is not 64 lower-case hex digits");
        }
        byte[] hash = Sha256.start().digest((salt + seed).getBytes(StandardCharsets.US_ASCII));
        long number = 0;
        for (int i = 0; i < 4; i++) {
            number = number << 8 | (hash[i] & 0xFF);
        }
        if (number * PARTS >= Math.round(percent * 100) << 32) {
            return false;
        }
        return where == null || (device != null && isInCohort(device));
    }

    private boolean isInCohort(Object device) {
        Map<String, Object> fields = new LinkedHashMap<String, Object>(Values.mapping(device));
        new DeviceRules(device).complete(fields);
        return Expression.parse(where, Vocabulary.DEVICE).matches(fields);
    }
}
