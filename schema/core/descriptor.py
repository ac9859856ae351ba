"""Descriptors: the facts that are needed to fetch and check some bytes."""

from typing import NamedTuple

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.record import Count, Record

PIECE_BYTES = 8 * 2**20
"""A file with more bytes than this has digests of its pieces."""
MAX_PIECES = 256
"""No file has more pieces; those of very large files are larger."""


class Piece(NamedTuple):
    """A part of a blob, from one offset up to another."""

    start: int
    stop: int
    digest: Digest


class Pieces(Record, frozen=True, forbid_unknown_fields=True):
    """The digests of a file's consecutive parts, `size` bytes each, the last one shorter.

    With them a download is checked, resumed and repaired part by part, also if SHA-256 cannot be computed as the bytes
    arrive (as in a browser).
    """

    size: Count
    digests: tuple[Digest, ...]

    def spans(self, total: int) -> tuple[Piece, ...]:
        """The pieces of a file with this many bytes, in order."""
        starts = range(0, total, self.size)
        return tuple(
            Piece(start, min(start + self.size, total), digest)
            for start, digest in zip(starts, self.digests, strict=True)
        )


def piece_size(total: int) -> int:
    """The size of a file's pieces in bytes: `PIECE_BYTES`, doubled until there are at most `MAX_PIECES`."""
    size = PIECE_BYTES
    while size * MAX_PIECES < total:
        size *= 2
    return size


class Descriptor(Record, frozen=True, forbid_unknown_fields=True):
    """The facts to fetch and check some bytes: digest, size in bytes, and the pieces of large files."""

    digest: Digest
    size: Count
    pieces: Pieces | None = None
