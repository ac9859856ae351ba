"""Public keys as values: their text, and the id by which signatures name a key. No cryptography is done here."""

import hashlib
from base64 import b64decode, b64encode
from binascii import Error
from dataclasses import dataclass

from onnxreg.schema.core.errors import InputError

SPKI = {
    "ed25519": bytes.fromhex("302a300506032b6570032100"),
    "ecdsa-p256": bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d030107034200"),
}
"""The bytes before the raw key in a key's DER SubjectPublicKeyInfo (RFC 8410, RFC 5480)."""
SIZES = {"ed25519": 32, "ecdsa-p256": 65}
"""The bytes of a raw key: an Ed25519 key (RFC 8032), or an uncompressed point of P-256 (SEC 1)."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key, written `<kind>:<base64 of the raw key>`, such as `ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=`."""

    kind: str
    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != SIZES.get(self.kind, -1) or (self.kind == "ecdsa-p256" and self.raw[0] != 4):
            raise InputError(f"not a public key of a known kind: {self.kind[:20]!r}", _HINT)

    def __str__(self) -> str:
        return f"{self.kind}:{b64encode(self.raw).decode()}"

    @property
    def spki(self) -> bytes:
        """The DER SubjectPublicKeyInfo, as `openssl pkey -pubout -outform DER` writes it."""
        return SPKI[self.kind] + self.raw

    @property
    def pem(self) -> str:
        """The SubjectPublicKeyInfo as PEM (RFC 7468)."""
        body = b64encode(self.spki).decode()
        lines = [body[start : start + 64] for start in range(0, len(body), 64)]
        return "\n".join(["-----BEGIN PUBLIC KEY-----", *lines, "-----END PUBLIC KEY-----", ""])

    @property
    def id(self) -> str:
        """The SHA-256 of `spki`, as 64 hex digits."""
        return hashlib.sha256(self.spki).hexdigest()

    @classmethod
    def parse(cls, text: str) -> "PublicKey":
        """Read the text form of a key. Raise InputError for other text."""
        kind, _, encoded = text.strip().partition(":")
        try:
            return cls(kind, decode_base64(encoded, "the public key"))
        except InputError as error:
            raise InputError(error.message, _HINT) from error


_HINT = "a public key is written ed25519:<base64> or ecdsa-p256:<base64>; `reg key show NAME` prints one"


def decode_base64(text: object, label: str) -> bytes:
    """Decode canonical base64 (RFC 4648, 3.5 and 4). Raise InputError, naming `label`, for other text."""
    try:
        data = b64decode(text, validate=True) if isinstance(text, str) else None
    except (Error, ValueError):
        data = None
    if data is not None and b64encode(data).decode() == text:
        return data
    raise InputError(f"{label} is not base64")
