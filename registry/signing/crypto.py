"""Private keys, and what they sign: releases, and rotations, by which an old key vouches for a new one.

Ed25519 and ECDSA P-256 by `cryptography`, which is imported when a key is first used.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxreg.schema.core.errors import Advice, InputError, IntegrityError, missing_extra
from onnxreg.schema.core.ref import Version
from onnxreg.schema.signing.dsse import PAYLOAD_TYPE, Envelope, KeyRotation, Release, Signature, pae
from onnxreg.schema.signing.keys import PublicKey

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KINDS = ("ed25519", "ecdsa-p256")
_UNREADABLE = "the private key cannot be read: it is damaged, of an unknown kind, or the passphrase is wrong"


@contextmanager
def library(purpose: str) -> Iterator[None]:
    """HostError that names the extra, if `cryptography` is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "cryptography":
            raise
        raise missing_extra("cryptography", "sign", purpose) from None


@dataclass(frozen=True, repr=False)
class PrivateKey:
    """A private key. Its `repr` shows nothing of it."""

    public: PublicKey
    _key: "Ed25519PrivateKey | EllipticCurvePrivateKey"

    def sign(self, data: bytes) -> Signature:
        """Sign bytes: Ed25519 (RFC 8032), or ECDSA over SHA-256 in DER (FIPS 186-5)."""
        if self.public.kind == "ed25519":
            return Signature(self.public.id, self._key.sign(data))  # type: ignore[call-arg]
        from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
        from cryptography.hazmat.primitives.hashes import SHA256

        return Signature(self.public.id, self._key.sign(data, ECDSA(SHA256())))  # type: ignore[call-arg]

    def pem(self, passphrase: str) -> bytes:
        """PKCS #8, encrypted (PBES2 with scrypt or PBKDF2 as the library has it best)."""
        from cryptography.hazmat.primitives import serialization as form

        protection = form.BestAvailableEncryption(passphrase.encode())
        return self._key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, protection)


def generate(kind: str) -> PrivateKey:
    """A new key of a kind: `ed25519` or `ecdsa-p256`."""
    if kind not in KINDS:
        raise InputError(f"no key kind {kind[:20]!r}", f"known are {' and '.join(KINDS)}")
    with library("signing"):
        from cryptography.hazmat.primitives.asymmetric import ec, ed25519

        key = (
            ed25519.Ed25519PrivateKey.generate()
            if kind == "ed25519"
            else ec.generate_private_key(ec.SECP256R1())
        )
    return _wrap(key)


def load(pem: bytes, passphrase: str | None) -> PrivateKey:
    """Read a PKCS #8 PEM. InputError, which holds nothing of it, if that cannot be."""
    with library("signing"):
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    encrypted = b"ENCRYPTED" in pem.partition(b"\n")[0]
    try:
        key = load_pem_private_key(pem, passphrase.encode() if encrypted and passphrase is not None else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InputError(_UNREADABLE, Advice("list-keys-and-passphrase")) from None
    return _wrap(key)


def _wrap(key: object) -> PrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    if isinstance(key, ed25519.Ed25519PrivateKey):
        raw = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        return PrivateKey(PublicKey("ed25519", raw), key)
    if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1):
        raw = key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        return PrivateKey(PublicKey("ecdsa-p256", raw), key)
    raise InputError("the private key is neither Ed25519 nor ECDSA P-256", Advice("create-key"))


def is_valid(key: PublicKey, signature: bytes, data: bytes) -> bool:
    """Return True if the holder of a key made this signature over these bytes."""
    with library("checking a signature"):
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric import ec, ed25519
        from cryptography.hazmat.primitives.hashes import SHA256
    try:
        if key.kind == "ed25519":
            ed25519.Ed25519PublicKey.from_public_bytes(key.raw).verify(signature, data)
        else:
            point = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), key.raw)
            point.verify(signature, data, ec.ECDSA(SHA256()))
    except (InvalidSignature, ValueError):
        return False
    return True


def sign_release(name: str, version: Version, manifest: bytes, key: PrivateKey) -> Envelope:
    """A key states that the manifest with these bytes is this version of a model."""
    payload = Release.about(name, version, manifest).encode()
    return Envelope(PAYLOAD_TYPE, payload, (key.sign(pae(PAYLOAD_TYPE, payload)),))


def sign_rotation(old: PrivateKey, new: PrivateKey) -> Envelope:
    """The statement that a key replaces another, signed by both. InputError if they are the same key."""
    if old.public == new.public:
        raise InputError("a key cannot replace itself", "name two different keys")
    payload = KeyRotation(old.public, new.public).encode()
    return Envelope(PAYLOAD_TYPE, payload, tuple(key.sign(pae(PAYLOAD_TYPE, payload)) for key in (old, new)))


def read_rotation(data: bytes, label: str) -> KeyRotation:
    """Read a statement. InputError if it is malformed, IntegrityError unless both keys signed it."""
    try:
        envelope = Envelope.decode(data, label)
        rotation = KeyRotation.decode(envelope.payload)
    except InputError as error:
        raise InputError(f"{label} is not a rotation: {error.message}", error.advice) from error
    for key in (rotation.old, rotation.new):
        if envelope.payload_type != PAYLOAD_TYPE or not _has_signed(key, envelope):
            raise IntegrityError(
                f"{label} is not signed by {'the old' if key is rotation.old else 'the new'} key {key}",
                Advice("ask-for-rotation"),
            )
    return rotation


def _has_signed(key: PublicKey, envelope: Envelope) -> bool:
    signatures = [signature for signature in envelope.signatures if signature.keyid == key.id]
    return any(is_valid(key, signature.sig, envelope.signed) for signature in signatures)
