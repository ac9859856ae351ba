"""A blob that arrives by deltas: it reads like any other, and its bytes are made on the way, a few blocks in memory."""

import io
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from onnxreg.registry.store.protocol import IncomingBlob
from onnxreg.schema.core.descriptor import Piece
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, NotFoundError, RemoteError
from onnxreg.schema.delta.choose import Route
from onnxreg.schema.delta.delta_format import (
    BLOCK_BYTES,
    COPY,
    LITERAL,
    DeltaHeader,
    inflate,
    read_spans,
)
from onnxreg.schema.delta.table import Delta

OpenDelta = Callable[[Delta], BinaryIO]
"""Opens the bytes of a delta."""
FindBlob = Callable[[Digest], Path | None]
"""The file of a blob that is here; None if it is not."""


class WholeBlob(IncomingBlob, Protocol):
    """A blob at its source, which can count bytes that come another way."""

    def follow(self, stream: BinaryIO, start: int) -> BinaryIO:
        """A stream over the blob's bytes from an offset; what is read from it counts as progress."""
        ...


MAX_GROWTH = 4
"""A file between two deltas of a chain is at most so many times as large as the last one."""


class DeltaError(IntegrityError):
    """A file could not be made by deltas. The whole file still can be fetched."""


class DeltaTransfer:
    """An incoming blob that is made by deltas; if its bytes are wrong, bad pieces come from the whole file.

    Args:
        source: the blob at its source.
        route: the deltas, in order.
        open_delta: see `OpenDelta`.
        find: see `FindBlob`, for the old files, and deltas that a mirror has.
        scratch: a directory for the files between two deltas of a chain.

    `is_patched` is True if pieces came out wrong, and were fetched from the whole file.
    """

    path = None
    is_patched = False

    def __init__(
        self, source: WholeBlob, route: Route, open_delta: OpenDelta, find: FindBlob, scratch: Path
    ) -> None:
        self.digest = source.digest
        self.size = source.size
        self._source = source
        self._route = route
        self._open_delta = open_delta
        self._find = find
        self._scratch = scratch
        self._is_open = False

    def open(self, start: int) -> BinaryIO:
        """The bytes from an offset: made by the deltas the first time, then those of the whole file."""
        if self._is_open:
            self.is_patched = True
            return self._source.open(start)
        self._is_open = True
        return self._source.follow(cast(BinaryIO, _GeneratedStream(self._make(start))), start)

    def pieces(self) -> Sequence[Piece]:
        return self._source.pieces()

    def _make(self, start: int) -> Iterator[memoryview]:
        """Apply the deltas one after another. Raise DeltaError if one does not fit or is not there."""
        with ExitStack() as stack:
            try:
                links: dict[Digest, BinaryIO] = {}
                for delta in self._route.deltas[:-1]:
                    file = stack.enter_context(tempfile.TemporaryFile(dir=self._scratch))
                    for part in self._apply(delta, links, stack):
                        file.write(part)
                    links[delta.new] = cast(BinaryIO, file)
                yield from self._apply(self._route.deltas[-1], links, stack, start)
            except (InputError, IntegrityError, NotFoundError, RemoteError) as error:
                raise DeltaError(f"the delta did not fit: {error.message}") from error

    def _apply(
        self, delta: Delta, links: dict[Digest, BinaryIO], stack: ExitStack, start: int = 0
    ) -> Iterator[memoryview]:
        here = self._find(delta.digest)
        stream = stack.enter_context(self._open_delta(delta) if here is None else here.open("rb"))
        header = DeltaHeader.read(stream)
        if (header.new.digest, tuple(old.digest for old in header.old)) != (delta.new, delta.old):
            raise InputError("it is for other files than its table says")
        if delta.new == self.digest and header.new.size != self.size:
            raise InputError("it makes a file of another size")
        if header.new.size > MAX_GROWTH * self.size:
            raise InputError(f"it makes {header.new.size} bytes on the way to a file of {self.size}")
        old = [links.get(digest) or stack.enter_context(self._open_old(digest)) for digest in delta.old]
        return apply(stream, header, old, start)

    def _open_old(self, digest: Digest) -> BinaryIO:
        path = self._find(digest)
        if path is None:
            raise NotFoundError(f"blob {digest.short}... is not here any more")
        try:
            return path.open("rb")
        except OSError as error:
            raise NotFoundError(f"blob {digest.short}... cannot be read") from error


class _GeneratedStream(io.RawIOBase):
    """A stream over parts that are made as they are read."""

    def __init__(self, parts: Iterator[memoryview]) -> None:
        self._parts = parts
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self._rest:
            part = next(self._parts, None)
            if part is None:
                return 0
            self._rest = part
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def close(self) -> None:
        cast(Any, self._parts).close()
        super().close()


def apply(
    delta: BinaryIO, header: DeltaHeader, old: Sequence[BinaryIO], start: int = 0
) -> Iterator[memoryview]:
    """The bytes of the new file from `start` on, in parts of at most a block.

    `delta` is a stream behind its header; `old` are the files that the header names, in its order, open for
    random access. InputError if the delta is malformed, or an old file is shorter than it says. The caller checks
    the digest of what comes out.
    """
    from onnxreg.schema.delta import difference

    at = 0
    for span in read_spans(delta, header):
        skip = min(span.length, max(0, start - at))
        at += span.length
        if skip == span.length:
            continue
        if span.op == COPY:
            yield from _copy(old[span.source], span.offset + skip, span.length - skip)
        elif span.op == LITERAL:
            yield memoryview(inflate(span.payload, span.length))[skip:]
        else:
            before = b"".join(_copy(old[span.source], span.offset, span.length))
            yield memoryview(difference.restore(span, before))[skip:]


def _copy(file: BinaryIO, offset: int, length: int) -> Iterator[memoryview]:
    file.seek(offset)
    while length:
        data = file.read(min(length, BLOCK_BYTES))
        if not data:
            raise InputError("an old file is shorter than the delta says")
        length -= len(data)
        yield memoryview(data)
