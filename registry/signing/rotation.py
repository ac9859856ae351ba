"""Making and checking the statement of a rotation: the old key vouches for the new one, which shows that it exists."""

from onnxreg.registry.signing.crypto import PrivateKey, is_valid
from onnxreg.schema.core.errors import Advice, InputError, IntegrityError
from onnxreg.schema.signing.dsse import PAYLOAD_TYPE, Envelope, KeyRotation, pae
from onnxreg.schema.signing.keys import PublicKey


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
