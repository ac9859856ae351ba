"""Download deltas: a new blob arrives as its difference from a blob that this registry has (docs/delta.md).

If a delta is doubtful, `transfer.exchange` fetches the whole file. `registry/log/decisions.py` records the deltas that
a version offers, `onnxreg.schema.delta` defines their format, and `onnxreg.converters.delta` makes them.
"""

import importlib.util
import io
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit

from onnxreg.registry.log.log import Log, read_deltas
from onnxreg.registry.store.protocol import RegistryReader, innermost
from onnxreg.schema.core.digest import Descriptor, Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, NotFoundError, RemoteError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.delta.delta_format import (
    BLOCK_BYTES,
    COPY,
    LITERAL,
    Delta,
    DeltaHeader,
    choose_deltas,
    inflate,
    read_spans,
)


@dataclass(frozen=True)
class DeltaPlan:
    """The delta of each file that has one. `reason` says why other files have none; `is_doubt`: the user can change it."""

    chosen: Mapping[Digest, Delta]
    reason: str
    is_doubt: bool = False


def plan_deltas(
    source: RegistryReader,
    ledger: Log,
    versions: Collection[Version],
    sizes: Mapping[Digest, int],
    has: Callable[[Collection[Digest]], set[Digest]],
) -> DeltaPlan:
    """Choose deltas for the files to fetch of these versions; `sizes` is in bytes. `has` picks the blobs that are here."""
    url = urlsplit(innermost(source).url)
    if not url.scheme or not url.netloc:
        return DeltaPlan({}, "the registry is on this machine")
    tables = {ledger.versions[version].deltas for version in versions} if sizes else set()
    deltas = [delta for table in tables for delta in read_deltas(ledger.fetch, table)]
    if deltas and importlib.util.find_spec("numpy") is None:
        return DeltaPlan({}, "deltas need numpy, which is not installed (extra onnx)", is_doubt=True)
    present = has({old for delta in deltas for old in delta.old}) if deltas else set()
    return DeltaPlan(choose_deltas(deltas, sizes, present), "no delta from a file that is here")


def open_made(
    new: Descriptor,
    delta: Delta,
    open_delta: Callable[[], BinaryIO],
    find: Callable[[Digest], Path | None],
    start: int,
) -> BinaryIO:
    """A stream of a file that a delta makes, from byte `start` on. Reading raises IntegrityError if the delta does not fit.

    `find` returns the path of an old blob, None if the blob is not here.
    """

    def parts() -> Iterator[memoryview]:
        with ExitStack() as stack:
            try:
                stream = stack.enter_context(open_delta())
                header = DeltaHeader.read_from(stream)
                if (header.new, tuple(old.digest for old in header.old)) != (new, delta.old):
                    raise InputError("it is for other files than its table says")
                paths = [path for path in map(find, delta.old) if path is not None]
                if len(paths) < len(delta.old):
                    raise InputError("an old file is not here any more")
                old = [stack.enter_context(path.open("rb")) for path in paths]
                yield from apply(stream, header, old, start)
            except (InputError, IntegrityError, NotFoundError, RemoteError, OSError) as error:
                raise IntegrityError(f"the delta did not fit: {error}") from error

    return cast(BinaryIO, _GeneratedStream(parts()))


class _GeneratedStream(io.RawIOBase):
    """A stream that makes each part of a file when the part is read."""

    def __init__(self, parts: Iterator[memoryview]) -> None:
        self._parts, self._rest = parts, memoryview(b"")

    def readinto(self, buffer: Any, /) -> int:
        while not self._rest and (part := next(self._parts, None)) is not None:
            self._rest = part
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count

    def close(self) -> None:
        cast(Any, self._parts).close()
        super().close()


def apply(
    delta: BinaryIO, header: DeltaHeader, old: Sequence[BinaryIO], start: int = 0
) -> Iterator[memoryview]:
    """Yield the new file from byte `start` on, in parts of at most a block. The caller checks the digest of the file.

    `delta` is a stream positioned after the header; `old` are the old files in the order of the header. Raise InputError
    if the delta is malformed, or an old file is shorter than the delta says.
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
            yield memoryview(inflate(span.payload, span.length, span.length))[skip:]
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
