"""The text of a checkpoint (c2sp.org/tlog-checkpoint): the origin of a log, its size and its root."""

import re
from base64 import b64encode
from dataclasses import dataclass

from onnxreg.schema.core.errors import InputError
from onnxreg.schema.signing.keys import decode_base64
from onnxreg.schema.witness.merkle_tree import HASH_BYTES

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
