package org.onnxreg.client;

import java.io.ByteArrayOutputStream;

/** Base64 (RFC 4648, section 4), which the platform has only from API level 26 on. */
final class Base64 {
    private static final String DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    private Base64() {}

    static byte[] decode(String text) {
        int end = text.length();
        while (end > 0 && end > text.length() - 2 && text.charAt(end - 1) == '=') {
            end--;
        }
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        int bits = 0;
        int count = 0;
        for (int i = 0; i < end; i++) {
            int digit = DIGITS.indexOf(text.charAt(i));
            if (digit < 0) {
                throw new InputException("not base64");
            }
            bits = (bits << 6) | digit;
            count += 6;
            if (count >= 8) {
                count -= 8;
                bytes.write(bits >> count);
                bits &= (1 << count) - 1;
            }
        }
        if (text.length() % 4 != 0 || bits != 0 || count >= 6) {
            throw new InputException("not base64");
        }
        return bytes.toByteArray();
    }
}
