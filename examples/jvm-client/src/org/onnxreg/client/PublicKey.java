package org.onnxreg.client;

import java.math.BigInteger;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.NoSuchAlgorithmException;
import java.security.Signature;
import java.util.Base64;
import java.security.spec.X509EncodedKeySpec;

/** A public key, written {@code ecdsa-p256:BASE64} or {@code ed25519:BASE64} as {@code reg key show} prints it. */
final class PublicKey {
    private static final String ED25519 = "ed25519";
    private static final String ECDSA = "ecdsa-p256";
    /** What comes before the bytes of a key in DER. */
    private static final String ED25519_PREFIX = "302a300506032b6570032100";
    private static final String ECDSA_PREFIX = "3059301306072a8648ce3d020106082a8648ce3d030107034200";

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
        byte[] raw;
        try {
            raw = Base64.getDecoder().decode(text.substring(colon + 1).trim());
        } catch (IllegalArgumentException error) {
            throw RegException.input("not base64: " + Values.brief(text));
        }
        boolean isEcdsa = kind.equals(ECDSA) && raw.length == 65 && raw[0] == 4;
        if (isEcdsa || (kind.equals(ED25519) && raw.length == 32)) {
            byte[] prefix = new BigInteger(isEcdsa ? ECDSA_PREFIX : ED25519_PREFIX, 16).toByteArray();
            return new PublicKey(kind, Sha256.join(prefix, raw));
        }
        throw RegException.input("not a public key of a known kind: " + Values.brief(text));
    }

    /** Return true if a signature over some bytes is valid. Throw an input error if this platform has no Ed25519. */
    boolean verifies(byte[] signature, byte[] bytes) {
        try {
            boolean isEcdsa = kind.equals(ECDSA);
            KeyFactory factory = KeyFactory.getInstance(isEcdsa ? "EC" : "Ed25519");
            Signature verifier = Signature.getInstance(isEcdsa ? "SHA256withECDSA" : "Ed25519");
            verifier.initVerify(factory.generatePublic(new X509EncodedKeySpec(spki)));
            verifier.update(bytes);
            return verifier.verify(signature);
        } catch (NoSuchAlgorithmException error) {
            throw RegException.input("this platform cannot check " + kind + ": sign with a key of the kind "
                    + ECDSA);
        } catch (GeneralSecurityException error) {
            return false;
        }
    }
}
