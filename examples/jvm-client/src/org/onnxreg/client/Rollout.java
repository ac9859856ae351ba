package org.onnxreg.client;

import java.nio.ByteBuffer;
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
    private final Map<String, Object> value;
    private final String salt;
    private final double percent;
    private final String where;

    Rollout(Map<String, Object> value) {
        this.value = value;
        version = value.get("to") == null ? null : Values.text(value.get("to"));
        salt = Values.text(value.get("salt"));
        percent = Values.number(value.get("percent"));
        where = value.get("where") == null ? null : Values.text(value.get("where"));
    }

    /** Check a rollout of a state line. */
    void check() {
        Version.parse(version);
        Values.digest(value.get("manifest"));
        Values.count(value.get("seq"));
        if (!(percent > 0 && percent <= 100) || !SALT.matcher(salt).matches()) {
            throw RegException.input("a rollout is malformed");
        }
    }

    /** Return a new seed. It never leaves the device. */
    static String newSeed() {
        byte[] bytes = new byte[32];
        new SecureRandom().nextBytes(bytes);
        return Sha256.hex(bytes);
    }

    /** Return true if the device with this seed takes part. A device without a seed takes no part. */
    boolean admits(String seed, Object device) {
        if (seed == null) {
            return false;
        }
        if (!SEED.matcher(seed).matches()) {
            throw RegException.input("a seed is not 64 lower-case hex digits");
        }
        byte[] hash = Sha256.start().digest((salt + seed).getBytes(StandardCharsets.US_ASCII));
        long number = ByteBuffer.wrap(hash).getInt() & 0xFFFFFFFFL;
        if (number * PARTS >= Math.round(percent * 100) << 32) {
            return false;
        }
        return where == null || (device != null && isInCohort(device));
    }

    private boolean isInCohort(Object device) {
        Map<String, Object> fields = new LinkedHashMap<>(Values.mapping(device));
        new DeviceRules(device).complete(fields);
        return Expression.ofDevice(where).matches(fields);
    }
}
