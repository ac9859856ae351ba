"""Signing notes and checking their signatures."""

from collections.abc import Collection

from onnxreg.registry.signing import PrivateKey, is_valid
from onnxreg.schema.core.errors import IntegrityError
from onnxreg.schema.signing.keys import PublicKey
from onnxreg.schema.witness.note import (
    COSIGNATURE,
    ED25519,
    NoteSignature,
    SignedNote,
    TreeHead,
    VerifierKey,
    signature_line,
    signature_parts,
    signed_message,
)


def sign_head(head: TreeHead, key: PrivateKey) -> SignedNote:
    """The checkpoint of a log, signed by the log's key."""
    verifier = VerifierKey.of(head.origin, ED25519, key.public)
    signature = key.sign(signed_message(head.text)).sig
    return SignedNote(head.text, (signature_line(verifier, signature),))


def cosign_text(text: str, name: str, key: PrivateKey, time: int) -> NoteSignature:
    """A witness's cosignature over the text of a checkpoint, at a time in seconds since the epoch."""
    verifier = VerifierKey.of(name, COSIGNATURE, key.public)
    return signature_line(verifier, key.sign(signed_message(text, time)).sig, time)


def valid_signatures(note: SignedNote, key: VerifierKey) -> Collection[NoteSignature]:
    """The signatures of a key on a note. IntegrityError if one that claims to be by this key is not."""
    signatures = note.by(key)
    for signature in signatures:
        message, raw = signature_parts(key, signature, note.text)
        if not is_valid(key.public, raw, message):
            raise IntegrityError(f"the signature of {key.name} on the checkpoint is wrong")
    return signatures


def is_signed_by_log(note: SignedNote, public: PublicKey) -> bool:
    """True if a key is the log's own: a checkpoint has its signature under the name of the log."""
    return bool(note.by(VerifierKey.of(TreeHead.parse(note.text).origin, ED25519, public)))


def require_signature(note: SignedNote, key: VerifierKey) -> None:
    """Raise IntegrityError if a key did not sign a note."""
    if not valid_signatures(note, key):
        raise IntegrityError(f"the checkpoint of {note.text.partition(chr(10))[0]} is not signed by {key}")
