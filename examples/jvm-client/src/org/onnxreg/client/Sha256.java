package org.onnxreg.client;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;

/** SHA-256, and digests as they are written. */
final class Sha256 {
    private static final String DIGITS = "0123456789abcdef";

    private Sha256() {}

    static MessageDigest start() {
        try {
            return MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Return {@code sha256:<64 hex digits>}. */
    static String of(byte[] bytes) {
        return written(start().digest(bytes));
    }

    static String of(String text) {
        return of(text.getBytes(StandardCharsets.UTF_8));
    }

    static String written(byte[] digest) {
        return "sha256:" + hex(digest);
    }

    static byte[] join(byte[] first, byte[] second) {
        byte[] bytes = Arrays.copyOf(first, first.length + second.length);
        System.arraycopy(second, 0, bytes, first.length, second.length);
        return bytes;
    }

    static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder(2 * bytes.length);
        for (byte item : bytes) {
            text.append(DIGITS.charAt((item >> 4) & 15)).append(DIGITS.charAt(item & 15));
        }
        return text.toString();
    }
}
