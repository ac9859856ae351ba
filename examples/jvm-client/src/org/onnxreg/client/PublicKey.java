package org.onnxreg.client;

import java.io.ByteArrayOutputStream;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.NoSuchAlgorithmException;
import java.security.Signature;
import java.security.spec.X509EncodedKeySpec;

/**
 * A public key, written {@code ecdsa-p256:BASE64} or {@code ed25519:BASE64} as {@code reg key show} prints
 * it.
 */
final class PublicKey {
    private static final String ED25519 = "ed25519";
    private static final String ECDSA = "ecdsa-p256";
    private static final int[] ED25519_PREFIX =
            {0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0};
    private static final int[] ECDSA_PREFIX = {
        0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01,
        0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0
    };

    /** The SHA-256 of {@link #spki} in hex. */
    final String id;
    private final String kind;
    /** DER SubjectPublicKeyInfo. */
    private final byte[] spki;

    private PublicKey(String kind, byte[] spki) {
        this.kind = kind;
        this.spki = spki;
        id = Sha256.hex(Sha256.start().digest(spki));
    }

    static PublicKey parse(String text) {
        int colon = text.indexOf(':');
        String kind = colon < 0 ? "" : text.substring(0, colon);
        byte[] raw = Base64.decode(text.substring(colon + 1).trim());
        if (kind.equals(ED25519) && raw.length == 32) {
            return new PublicKey(kind, join(ED25519_PREFIX, raw));
        }
        if (kind.equals(ECDSA) && raw.length == 65 && raw[0] == 4) {
            return new PublicKey(kind, join(ECDSA_PREFIX, raw));
        }
        throw new InputException("not a public key of a known kind: " + Values.brief(text));
    }

    /**
     * Return true if a signature over some bytes is valid. InputException if this platform has no Ed25519.
     */
    boolean verifies(byte[] signature, byte[] bytes) {
        try {
            boolean isEcdsa = kind.equals(ECDSA);
            KeyFactory factory = KeyFactory.getInstance(isEcdsa ? "EC" : "Ed25519");
            Signature verifier = Signature.getInstance(isEcdsa ? "SHA256withECDSA" : "Ed25519");
            verifier.initVerify(factory.generatePublic(new X509EncodedKeySpec(spki)));
            verifier.update(bytes);
            return verifier.verify(signature);
        } catch (NoSuchAlgorithmException error) {
            throw new InputException("this platform cannot check " + kind + ": sign with a key of the kind "
                    + ECDSA);
        } catch (GeneralSecurityException error) {
            return false;
        }
    }

    private static byte[] join(int[] prefix, byte[] raw) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        for (int item : prefix) {
            bytes.write(item);
        }
        bytes.write(raw, 0, raw.length);
        return bytes.toByteArray();
    }
}
