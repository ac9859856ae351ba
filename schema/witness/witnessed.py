"""The cosigned checkpoints of a witness log, for readers: each with the newest leaf and its proof.

The file is a sequence of proofs (c2sp.org/tlog-proof), the largest tree first. The extra data of each is the leaf:
the root of the map. An older checkpoint stays as long as a witness signed it that did not sign a newer one.
"""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from onnxreg.schema.core.errors import InputError
from onnxreg.schema.signing.keys import decode_base64
from onnxreg.schema.witness.merkle_tree import HASH_BYTES, leaf_hash, root_of_inclusion
from onnxreg.schema.witness.note import SignedNote, TreeHead

HEADER = "c2sp.org/tlog-proof@v1"
MAX_WITNESSED_HEADS = 16
MAX_PROOF_HASHES = 63


@dataclass(frozen=True)
class WitnessedHead:
    """A checkpoint, and the proof that its newest leaf is the map with this root."""

    note: SignedNote
    map_root: bytes
    proof: tuple[bytes, ...]

    @property
    def head(self) -> TreeHead:
        return TreeHead.parse(self.note.text)

    @property
    def cosigners(self) -> frozenset[tuple[str, bytes]]:
        """The names and key ids of those who claim to have signed, but for the log itself."""
        origin = self.head.origin
        return frozenset((line.name, line.keyid) for line in self.note.signatures if line.name != origin)

    def encode(self) -> bytes:
        lines = [HEADER, f"extra {b64encode(self.map_root).decode()}", f"index {self.head.size - 1}"]
        lines += [b64encode(digest).decode() for digest in self.proof]
        return "".join(f"{line}\n" for line in [*lines, ""]).encode() + self.note.encode()

    @classmethod
    def parse(cls, data: bytes) -> "WitnessedHead":
        """Read one proof. InputError if it is malformed, or does not lead to the checkpoint's root."""
        try:
            above, blank, note_text = data.decode().partition("\n\n")
            header, extra, index, *hashes = above.split("\n")
        except ValueError:
            raise InputError("the proof of the witness log is cut off") from None
        note = SignedNote.parse(note_text.encode())
        head, root = TreeHead.parse(note.text), decode_base64(extra.removeprefix("extra "), "the map's root")
        proof = tuple(decode_base64(line, "a hash of the proof") for line in hashes)
        if header != HEADER or not blank or len(root) != HASH_BYTES or len(proof) > MAX_PROOF_HASHES:
            raise InputError("the proof of the witness log is malformed")
        reached = root_of_inclusion(head.size - 1, head.size, leaf_hash(root), proof)
        if index != f"index {head.size - 1}" or reached != head.root:
            raise InputError(f"the proof does not lead to the checkpoint of size {head.size}")
        return cls(note, root, proof)


def decode_heads(data: bytes) -> list[WitnessedHead]:
    """Read the file. InputError if a part of it is malformed."""
    if not data:
        return []
    header, *parts = data.split(f"{HEADER}\n".encode())
    if header or not 0 < len(parts) <= MAX_WITNESSED_HEADS:
        raise InputError("the proofs of the witness log are malformed")
    return [WitnessedHead.parse(f"{HEADER}\n".encode() + part) for part in parts]


def encode_heads(heads: Iterable[WitnessedHead]) -> bytes:
    return b"".join(head.encode() for head in heads)


def merge_heads(heads: Sequence[WitnessedHead]) -> list[WitnessedHead]:
    """The largest trees first, signatures over one text together, without those whose signers all signed a larger."""
    by_text: dict[str, WitnessedHead] = {}
    for head in heads:
        other = by_text.get(head.note.text)
        note = head.note if other is None else other.note.signed_by(head.note.signatures)
        by_text[head.note.text] = replace(head, note=note)
    merged: list[WitnessedHead] = []
    for head in sorted(by_text.values(), key=lambda item: -item.head.size):
        if head.cosigners and not any(head.cosigners <= newer.cosigners for newer in merged):
            merged.append(head)
    return merged[:MAX_WITNESSED_HEADS]
