"""Streams on the way from one store to another: hashed and checked as they are copied, metered when read and when sent.

Bytes are read once on their way in and once on their way out.

A client may read the body of a request more than once: to sign it, and again for every try. So nothing counts before
`UploadBody.begin`, which the client is made to call when it starts to send; going back takes back what counted.
"""

import hashlib
import io
import mmap
import os
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol, cast

from onnxreg.registry.store.protocol import CHUNK_BYTES, BlockStream, BufferReader, Hasher, ReportingStream
from onnxreg.registry.support.disk import host_errors, open_regular
from onnxreg.registry.support.parallel import check_stop
from onnxreg.schema.core.descriptor import PIECE_BYTES, Descriptor, Piece, Pieces, piece_size
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import GOOD_COPY, VERIFY_ADVICE, IntegrityError
from onnxreg.schema.core.progress import Advance

SEND_BLOCK_BYTES = 2**18


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


def metered(stream: BinaryIO, advance: Advance, action: str, size: int | None = None) -> BinaryIO:
    """Meter a stream; see `MeteredReader`."""
    kind = MeteredBlocks if isinstance(stream, BlockStream) else MeteredReader
    return cast(BinaryIO, kind(stream, advance, action, size))


class MeteredReader(io.RawIOBase):
    """A stream that reports the bytes read from it, names its side if reading fails, and ends with the work.

    With a `size` it gives no more bytes than that: IntegrityError if there are more.
    """

    def __init__(self, stream: BinaryIO, advance: Advance, action: str, size: int | None = None) -> None:
        self._stream = cast(Any, stream)
        self._left = sys.maxsize if size is None else size
        self._advance = advance
        self._action = action

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._stream.close()
        super().close()

    def hand_over(self) -> Advance:
        advance, self._advance = self._advance, lambda count: None
        return advance

    def readinto(self, block: Any, /) -> int:
        check_stop()
        with host_errors(self._action):
            count: int = self._stream.readinto(block)
        self._count(count)
        return count

    def _count(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise IntegrityError(f"{self._action}: it is longer than its manifest says", VERIFY_ADVICE)
        self._advance(count)


class MeteredBlocks(MeteredReader):
    """A metered stream that hands out the memory of the stream behind it."""

    def take(self, limit: int) -> memoryview:
        check_stop()
        with host_errors(self._action):
            data: memoryview = self._stream.take(limit)
        self._count(len(data))
        return data


class CheckedStream(io.RawIOBase):
    """The source's bytes, hashed as they pass. Reading at the end raises IntegrityError if the digest differs.

    `pieces` are their stated parts, which are not checked here; `path` is a file with the same bytes, if there is one.
    """

    def __init__(
        self, source: BinaryIO, expected: Digest, pieces: Sequence[Piece] = (), path: Path | None = None
    ) -> None:
        self._source = source
        self._readinto = reader_into(source)
        self._expected = expected
        self.pieces = pieces
        self.path = path
        self._hasher = hashlib.sha256()
        self.size = 0

    def readable(self) -> bool:
        return True

    def hand_over(self) -> Advance:
        return hand_over(self._source)

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer)
        count = self._readinto(view)
        if not count:
            actual = Digest(self._hasher.hexdigest())
            check(actual, self._expected, f"blob {self._expected}")
        self._hasher.update(view[:count])
        self.size += count
        return count

    def pass_over(self, count: int) -> int:
        """Read so many bytes, fewer only at the end, for their digest alone; returns how many came."""
        block = memoryview(bytearray(SEND_BLOCK_BYTES))
        remaining = count
        while remaining and (size := self.readinto(block[:remaining])):
            remaining -= size
        return count - remaining


def hand_over(source: BinaryIO) -> Advance:
    """Take over the progress reports of a stream, if it has any."""
    return source.hand_over() if isinstance(source, ReportingStream) else lambda count: None


class UnownedFile(io.RawIOBase):
    """A file that somebody else closes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


class FileRegion(io.RawIOBase):
    """The bytes of a file from `start` up to `stop`, as a stream of their own.

    Reading raises IntegrityError if the file has become shorter: a server would wait for the missing bytes.
    """

    def __init__(self, path: Path, start: int, stop: int) -> None:
        self._path = path
        self._file = open_regular(path)
        self._written = self._last_write()
        self._readinto = reader_into(self._file)
        self._start = start
        self._size = stop - start
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, block: Any, /) -> int:
        self._file.seek(self._start + self._at)
        target = memoryview(block)[: self._size - self._at]
        count = self._readinto(target)
        if target and not count:
            raise self._shorter()
        self._at += count
        return count

    def blocks(self) -> Iterator["FileBlock"]:
        """The bytes from here on, in blocks."""
        start = self._at
        while size := min(SEND_BLOCK_BYTES, self._size - start):
            yield FileBlock(self, start, size)
            start += size

    def send(self, sock: socket.socket, start: int, size: int) -> None:
        """Send bytes of the region. A plain socket gets them from the kernel, without a copy."""
        if type(sock) is socket.socket and hasattr(os, "sendfile"):
            if sock.sendfile(self._file, self._start + start, size) != size:
                raise self._shorter()
            return
        self.seek(start)
        data = memoryview(bytearray(size))
        while data and (count := self.readinto(data)):
            sock.sendall(data[:count])
            data = data[count:]

    def check_unchanged(self) -> None:
        """Raise IntegrityError if somebody wrote to the file since it was opened."""
        if self._last_write() != self._written:
            raise IntegrityError(f"{self._path} changed while it was sent", VERIFY_ADVICE)

    def _shorter(self) -> IntegrityError:
        return IntegrityError(f"{self._path} became shorter while it was sent", VERIFY_ADVICE)

    def _last_write(self) -> tuple[int, int]:
        status = os.fstat(self._file.fileno())
        return status.st_mtime_ns, status.st_size

    def close(self) -> None:
        self._file.close()
        super().close()


class FileBlock(NamedTuple):
    """Bytes of a file on their way to a socket: where they begin in a region of it, and how many they are."""

    region: FileRegion
    start: int
    size: int

    def send(self, sock: socket.socket) -> None:
        self.region.send(sock, self.start, self.size)


class UploadBody(UnownedFile):
    """A request body whose bytes are reported to `advance`: as they are read, or once a block of a file was sent.

    Closing it leaves the file open.
    """

    def __init__(self, file: BinaryIO, advance: Advance) -> None:
        super().__init__(file)
        self._advance = advance
        self._sending = False
        self._counted = 0

    def begin(self) -> None:
        """Count from now on: bytes that are read are sent."""
        self._sending = True

    def read(self, size: int = -1, /) -> bytes:
        check_stop()
        data = self._file.read(size)
        if self._sending:
            self._count(len(data))
        return data

    def _count(self, size: int) -> None:
        self._counted += size
        self._advance(size)

    def rewind(self) -> int:
        """Go to the beginning; returns the size in bytes."""
        size = self._file.seek(0, io.SEEK_END)
        self._file.seek(0)
        return size

    def blocks(self) -> Iterator[bytes | FileBlock]:
        """Yield the bytes to send from here on, in blocks larger than a client would ask for."""
        self.begin()
        if isinstance(self._file, FileRegion):
            for block in self._file.blocks():
                check_stop()
                yield block
                self._count(block.size)
            return
        while data := self.read(SEND_BLOCK_BYTES):
            yield data

    def seek(self, offset: int, whence: int = 0, /) -> int:
        if self._sending:
            self._sending = False
            self._advance(-self._counted)
            self._counted = 0
        return super().seek(offset, whence)
