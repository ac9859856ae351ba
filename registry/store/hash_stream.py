"""Hash while you copy: bytes are read once on their way in and once on their way out."""

import hashlib
import mmap
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, Protocol

from onnxreg.registry.store.protocol import CHUNK_BYTES, BlockStream, BufferReader, Hasher
from onnxreg.schema.core.descriptor import PIECE_BYTES, Descriptor, Pieces, piece_size
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import GOOD_COPY, IntegrityError
from onnxreg.schema.core.progress import Advance


class Sink(Protocol):
    def write(self, data: memoryview, /) -> object: ...


class PieceHasher:
    """The SHA-256 of a stream, and of its parts of `size` bytes, in one pass."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._whole = hashlib.sha256()
        self._part, self._left = hashlib.sha256(), size
        self._done: list[Digest] = []

    def update(self, data: memoryview) -> None:
        self._whole.update(data)
        while len(data) >= self._left:
            self._part.update(data[: self._left])
            self._done.append(Digest(self._part.hexdigest()))
            data = data[self._left :]
            self._part, self._left = hashlib.sha256(), self._size
        self._part.update(data)
        self._left -= len(data)

    def hexdigest(self) -> str:
        return self._whole.hexdigest()

    def pieces(self) -> Pieces:
        tail = [Digest(self._part.hexdigest())] if self._left < self._size else []
        return Pieces(self._size, (*self._done, *tail))


def piece_hasher(size: int) -> PieceHasher | None:
    """A hasher of a file's pieces, if a file of this size has pieces."""
    return PieceHasher(piece_size(size)) if size > PIECE_BYTES else None


def describe(digest: Digest, size: int, hasher: PieceHasher | None) -> Descriptor:
    """A file that was hashed."""
    return Descriptor(digest, size, hasher.pieces() if hasher else None)


def measure(root: Path, paths: Iterable[str]) -> dict[str, Descriptor]:
    """The descriptors of files below a directory."""

    def one(path: str) -> Descriptor:
        hasher = piece_hasher((root / path).stat().st_size)
        with (root / path).open("rb") as source:
            return describe(*pump(source, None, hasher=hasher), hasher)

    return {path: one(path) for path in paths}


def pump(
    source: BinaryIO,
    sink: Sink | None,
    advance: Advance = lambda count: None,
    hasher: Hasher | None = None,
) -> tuple[Digest, int]:
    """Move a stream's bytes into a sink (None: nowhere), hashing them as they pass.

    `advance` receives the bytes moved since the last call; a `hasher` has seen the bytes before these. Returns digest and
    size. Memory: one block of 1 MiB, none if the source hands out its own. The sink receives whole blocks, which begin
    at a page of memory, and then the rest.
    """
    hasher = hasher or hashlib.sha256()
    total = 0
    for piece in _blocks(source):
        hasher.update(piece)
        if sink is not None:
            sink.write(piece)
        total += len(piece)
        advance(len(piece))
    return Digest(hasher.hexdigest()), total


def _blocks(source: BinaryIO) -> Iterator[memoryview]:
    """The bytes of a stream; each block is there until the next one is asked for."""
    if isinstance(source, BlockStream):
        yield from iter(partial(source.take, CHUNK_BYTES), b"")
        return
    readinto = reader_into(source)
    view, count = memoryview(mmap.mmap(-1, CHUNK_BYTES)), CHUNK_BYTES
    while count == CHUNK_BYTES and (count := _fill(view, readinto)):
        yield view[:count]


def _fill(view: memoryview, readinto: Callable[[memoryview], int]) -> int:
    """Read as much of a stream as there is room for; returns the bytes, fewer only at its end."""
    end = 0
    while end < len(view) and (count := readinto(view[end:])):
        end += count
    return end


def reader_into(source: BinaryIO) -> Callable[[memoryview], int]:
    """The `readinto` of a stream, also of one that only has `read`."""
    if isinstance(source, BufferReader):
        return source.readinto

    def readinto(view: memoryview) -> int:
        data = source.read(len(view))
        view[: len(data)] = data
        return len(data)

    return readinto


def check(actual: Digest, expected: Digest, label: str) -> None:
    """Compare the digest of some bytes with the expected one. IntegrityError if they differ."""
    if actual != expected:
        raise IntegrityError(
            f"{label} is damaged: its bytes have the digest {actual.short}..., not {expected.short}...",
            GOOD_COPY,
        )
