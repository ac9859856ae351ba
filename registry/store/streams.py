"""Streams between stores. `pump` copies and hashes bytes. The readers count or check the bytes that pass through."""

import hashlib
import io
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Thread
from typing import Any, BinaryIO, NamedTuple, Protocol, cast

from onnxreg.registry.system import check_stop, host_errors
from onnxreg.schema.core.canonical import PIECE_BYTES, Descriptor, Digest, Pieces, piece_size
from onnxreg.schema.core.errors import VERIFY_ADVICE, IntegrityError
from onnxreg.schema.core.units import Advance, Progress

CHUNK_BYTES = 1024 * 1024
HASHED_BYTES = 512 * 1024  # a block that stays in a core's cache of level 2 between its read and its hash


class Hasher(Protocol):
    """The methods of a `hashlib.sha256()` object that this module calls."""

    def update(self, data: memoryview, /) -> None: ...

    def hexdigest(self) -> str: ...


class PieceHasher:
    """A hasher that computes the SHA-256 of a stream and, in a second thread, of each piece of `size` bytes."""

    def __init__(self, size: int) -> None:
        self._size, self._left = size, size
        self._whole, self._part = hashlib.sha256(), hashlib.sha256()
        self._done: list[Digest] = []

    def update(self, data: memoryview) -> None:
        thread = Thread(target=self._update_pieces, args=(data,))
        thread.start()
        self._whole.update(data)
        thread.join()

    def _update_pieces(self, data: memoryview) -> None:
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
    """Return a hasher for a file's pieces, or None if a file of this size is not divided into pieces."""
    return PieceHasher(piece_size(size)) if size > PIECE_BYTES else None


def measure(root: Path, paths: Iterable[str]) -> dict[str, Descriptor]:
    """Hash files below the directory `root`. Return the descriptors (digest and size) of the files by path."""
    descriptors = {}
    for path in paths:
        hasher = piece_hasher((root / path).stat().st_size)
        with (root / path).open("rb") as source:
            digest, size = pump(source, None, hasher=hasher)
        descriptors[path] = Descriptor(digest, size, hasher.pieces() if hasher else None)
    return descriptors


def pump(
    source: BinaryIO, sink: BinaryIO | None, advance: Advance = lambda _: None, hasher: Hasher | None = None
) -> tuple[Digest, int]:
    """Copy a stream into a sink (None: discard the bytes), and hash it. Return the digest, and the size in bytes.

    `advance` gets the number of bytes since its last call. If `hasher` has received other bytes before this call, the
    digest covers these bytes too.
    """
    block = memoryview(bytearray(CHUNK_BYTES if isinstance(hasher, PieceHasher) else HASHED_BYTES))
    hasher, total = hasher or hashlib.sha256(), 0
    while count := cast(io.RawIOBase, source).readinto(block):
        hasher.update(block[:count])
        if sink is not None:
            sink.write(block[:count])
        total += count
        advance(count)
    return Digest(hasher.hexdigest()), total


def check(actual: Digest, expected: Digest, label: str) -> None:
    """Raise IntegrityError if two digests differ. `label` names the bytes in the message, such as `blob sha256:...`."""
    if actual != expected:
        raise IntegrityError(
            f"{label} is damaged: its bytes have the digest {actual.short}..., not {expected.short}...",
            "fetch a good copy: reg verify --repair --from OTHER, with --remote REMOTE for a registry elsewhere",
        )


class Content(NamedTuple):
    """Bytes to copy. `label` is their name in messages. `open` opens a stream over them."""

    label: str
    size: int
    digest: Digest
    open: Callable[[], BinaryIO]

    @classmethod
    def of(cls, label: str, data: bytes) -> "Content":
        return cls(label, len(data), Digest.of(data), lambda: io.BytesIO(data))


class Readable(io.RawIOBase):
    def readable(self) -> bool:
        return True


class BlockStream(Readable):
    """A stream over blocks of bytes. `next_block` returns the next block, or an empty block at the end."""

    def __init__(self, next_block: Callable[[], bytes | memoryview], close: Callable[[], object]) -> None:
        self._next_block, self._close = next_block, close
        self._rest = memoryview(b"")

    def readinto(self, buffer: Any, /) -> int:
        self._rest = self._rest or memoryview(self._next_block())
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count

    def close(self) -> None:
        self._close()
        super().close()


class CountingReader(Readable):
    """A stream that calls `advance` with the number of bytes read.

    A read raises IntegrityError if the stream has more than `size` bytes.
    """

    def __init__(self, stream: BinaryIO, advance: Advance, action: str, size: int | None = None) -> None:
        self._stream = cast(Any, stream)
        self._advance, self._action, self._left = advance, action, sys.maxsize if size is None else size

    def close(self) -> None:
        self._stream.close()
        super().close()

    def readinto(self, block: Any, /) -> int:
        check_stop()
        try:
            count: int = self._stream.readinto(block)
        except OSError:
            with host_errors(self._action):  # entered after a failure only: it costs more than a small read
                raise
        self._left -= count
        if self._left < 0:
            raise IntegrityError(f"{self._action}: it is longer than its manifest says", VERIFY_ADVICE)
        self._advance(count)
        return count


def metered(stream: BinaryIO, advance: Advance, action: str, size: int | None = None) -> BinaryIO:
    return cast(BinaryIO, CountingReader(stream, advance, action, size))


class HashingReader(Readable):
    """A stream that hashes what it reads. At the end, it raises IntegrityError if the digest is not `expected`."""

    def __init__(self, source: BinaryIO, expected: Digest, length: int = 0) -> None:
        self._source, self._expected = cast(Any, source), expected
        self._hasher = hashlib.sha256()
        self.length, self.size = length, 0

    def readinto(self, buffer: Any, /) -> int:
        count: int = self._source.readinto(buffer)
        if not count:
            check(Digest(self._hasher.hexdigest()), self._expected, f"blob {self._expected}")
        self._hasher.update(memoryview(buffer)[:count])
        self.size += count
        return count


def copy_verified(content: Content, sink: BinaryIO, progress: Progress) -> None:
    """Copy `content` into a sink. Raises IntegrityError if the bytes have another digest or size than stated."""
    label, size, digest, opened = content
    with progress.file(label, size) as advance, opened() as stream:
        actual, count = pump(metered(stream, advance, f"reading {label}", size), sink)
    check(actual, digest, f"{label} (blob {digest})")
    if count != size:
        raise IntegrityError(f"{label} has {count} bytes, its manifest or log says {size}")
