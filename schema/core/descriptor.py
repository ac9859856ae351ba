"""What is needed to fetch and check some bytes."""

from dataclasses import dataclass

from onnxreg.schema.core.digest import Digest

PIECE = 8 * 2**20
"""A file with more bytes than this has digests of its pieces."""
PIECES = 256
"""No file has more pieces; those of very large files are larger."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """The digests of a file's consecutive parts, `size` bytes each, the last one shorter.

    With them a download is checked, resumed and mended part by part, also where SHA-256 cannot be computed as bytes come
    (as in a browser).
    """

    size: int
    digests: tuple[Digest, ...]

    def spans(self, total: int) -> "list[tuple[int, int, Digest]]":
        """Where each piece of a file of so many bytes begins and ends, and its digest."""
        starts = range(0, total, self.size)
        return [
            (start, min(start + self.size, total), digest)
            for start, digest in zip(starts, self.digests, strict=True)
        ]


def piece_size(total: int) -> int:
    """How many bytes the pieces of a file have: `PIECE`, doubled until there are no more than `PIECES`."""
    size = PIECE
    while size * PIECES < total:
        size *= 2
    return size


@dataclass(frozen=True, slots=True)
class Descriptor:
    """What is needed to fetch and check some bytes: media type, digest, size in bytes, and of large ones the pieces."""

    media_type: str
    digest: Digest
    size: int
    pieces: Pieces | None = None
