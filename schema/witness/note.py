"""Signed notes (c2sp.org/signed-note), with checkpoints' cosignatures (c2sp.org/tlog-cosignature)."""

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from onnxreg.schema.core.errors import Advice, InputError
from onnxreg.schema.signing.keys import PublicKey, decode_base64
from onnxreg.schema.witness.merkle_tree import HASH_BYTES

ED25519, COSIGNATURE = 1, 4
"""The types of a signature: of a note's text, and of a checkpoint's text with a time."""
MAX_NOTE_BYTES = 64 * 1024
MAX_NOTE_SIGNATURES = 64
_NAME = re.compile(r"[^\s+]{1,200}")
_KEY = re.compile(r"([^\s+]{1,200})\+([0-9a-f]{8})\+([A-Za-z0-9+/=]+)")
_TIME_BYTES, _SIGNATURE_BYTES = 8, 64


@dataclass(frozen=True, slots=True)
class VerifierKey:
    """An Ed25519 key by name and type of signature, written `<name>+<8 hex digits>+<base64>`."""

    name: str
    kind: int
    raw: bytes

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.kind not in (ED25519, COSIGNATURE) or len(self.raw) != 32:
            raise InputError(f"not a verifier key: {self.name[:80]!r}", _HINT)

    def __str__(self) -> str:
        return f"{self.name}+{self.id.hex()}+{b64encode(bytes([self.kind]) + self.raw).decode()}"

    @property
    def id(self) -> bytes:
        """The first four bytes of the digest over name, type and key."""
        return hashlib.sha256(self.name.encode() + b"\n" + bytes([self.kind]) + self.raw).digest()[:4]

    @property
    def public(self) -> PublicKey:
        return PublicKey("ed25519", self.raw)

    @classmethod
    def of(cls, name: str, kind: int, public: PublicKey) -> "VerifierKey":
        """The verifier key of a public key. InputError if that is not Ed25519."""
        if public.kind != "ed25519":
            raise InputError(f"a witness log is signed with ed25519, not {public.kind}", _NEW)
        return cls(name, kind, public.raw)

    @classmethod
    def parse(cls, text: str, kind: int) -> "VerifierKey":
        """Read the text form of a key of this type. InputError for anything else."""
        match = _KEY.fullmatch(text)
        if match is None:
            raise InputError(f"not a verifier key: {text[:80]!r}", _HINT)
        data = decode_base64(match[3], "the verifier key")
        key = cls(match[1], data[0], data[1:])
        if key.id.hex() != match[2]:
            raise InputError(f"the verifier key {key.name[:80]} has another id: {key.id.hex()}", _HINT)
        if key.kind != kind:
            word = "cosigns checkpoints" if key.kind == COSIGNATURE else "signs notes"
            raise InputError(f"the verifier key {key.name} {word}, which is not what it is named for", _HINT)
        return key


_HINT = Advice("verifier-key-syntax")
_NEW = Advice("create-key")


class NoteSignature(NamedTuple):
    """A signature line: the claimed name and key id, and the bytes after the id."""

    name: str
    keyid: bytes
    data: bytes

    def __str__(self) -> str:
        return f"\u2014 {self.name} {b64encode(self.keyid + self.data).decode()}\n"

    @property
    def time(self) -> int:
        """The time that a cosignature claims, in seconds since the epoch."""
        return int.from_bytes(self.data[:_TIME_BYTES], "big")

    @classmethod
    def parse(cls, line: str) -> "NoteSignature":
        """Read a line without its newline. InputError if it is malformed."""
        mark, name, encoded = (*line.split(" ", 2), "", "")[:3]
        data = decode_base64(encoded, "the signature of a note")
        if mark != "\u2014" or not _NAME.fullmatch(name) or len(data) <= 4:
            raise InputError("a signature line of the note is malformed")
        return cls(name, data[:4], data[4:])


@dataclass(frozen=True)
class SignedNote:
    """A text that ends with a newline, and the signatures over it."""

    text: str
    signatures: tuple[NoteSignature, ...]

    def encode(self) -> bytes:
        return "".join([self.text, "\n", *map(str, self.signatures)]).encode()

    @classmethod
    def parse(cls, data: bytes) -> "SignedNote":
        """Read a note. InputError if it is malformed, or has no signature or too many."""
        try:
            note = data.decode()
        except UnicodeDecodeError:
            raise InputError("the note is not UTF-8") from None
        if len(data) > MAX_NOTE_BYTES or any(char < " " and char != "\n" for char in note):
            raise InputError("the note is too large, or has control characters")
        text, blank, lines = note.rpartition("\n\n")
        if not blank or not text or not lines.endswith("\n"):
            raise InputError("the note is cut off, or has no signature")
        signatures = tuple(map(NoteSignature.parse, lines.removesuffix("\n").split("\n")))
        if len(signatures) > MAX_NOTE_SIGNATURES:
            raise InputError(f"the note has more than {MAX_NOTE_SIGNATURES} signatures")
        return cls(f"{text}\n", signatures)

    def by(self, key: VerifierKey) -> list[NoteSignature]:
        """The signatures that claim to be by a key."""
        length = _SIGNATURE_BYTES + (_TIME_BYTES if key.kind == COSIGNATURE else 0)
        return [
            signature
            for signature in self.signatures
            if (signature.name, signature.keyid) == (key.name, key.id) and len(signature.data) == length
        ]

    def signed_by(self, signatures: Iterable[NoteSignature]) -> "SignedNote":
        """The same text with these signatures, each in place of an earlier one by the same key."""
        table = {(line.name, line.keyid): line for line in (*self.signatures, *signatures)}
        return replace(self, signatures=tuple(table.values()))


def signed_message(text: str, time: int | None = None) -> bytes:
    """The bytes that a signature covers: the text of a note; of a cosignature, with its time."""
    return text.encode() if time is None else f"cosignature/v1\ntime {time}\n{text}".encode()


def signature_parts(key: VerifierKey, signature: NoteSignature, text: str) -> tuple[bytes, bytes]:
    """The bytes that a signature of a key over a text must cover, and the Ed25519 signature."""
    if key.kind == COSIGNATURE:
        return signed_message(text, signature.time), signature.data[_TIME_BYTES:]
    return signed_message(text), signature.data


def signature_line(key: VerifierKey, signature: bytes, time: int | None = None) -> NoteSignature:
    """The line for an Ed25519 signature, with the time that it covers."""
    stamp = b"" if time is None else time.to_bytes(_TIME_BYTES, "big")
    return NoteSignature(key.name, key.id, stamp + signature)


_SIZE = re.compile(r"0|[1-9][0-9]{0,17}")


def origin_of(registry: str) -> str:
    """The origin of a registry's log, which is also the name of the key that signs it."""
    return f"onnxreg/{registry}"


@dataclass(frozen=True, slots=True)
class TreeHead:
    """A log at one size. `root` is the Merkle tree hash of its first `size` entries."""

    origin: str
    size: int
    root: bytes

    @property
    def text(self) -> str:
        return f"{self.origin}\n{self.size}\n{b64encode(self.root).decode()}\n"

    @classmethod
    def parse(cls, text: str) -> "TreeHead":
        """Read a text. InputError if it is malformed, or has more lines: no witness vouches for those."""
        lines = text.split("\n")
        if len(lines) != 4 or lines[3] or not lines[0] or not _SIZE.fullmatch(lines[1]):
            raise InputError("the checkpoint is not origin, size and root")
        root = decode_base64(lines[2], "the root of the checkpoint")
        if len(root) != HASH_BYTES:
            raise InputError("the root of the checkpoint is not a SHA-256")
        return cls(lines[0], int(lines[1]), root)
