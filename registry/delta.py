"""Files by deltas: a blob that arrives as its difference from blobs that are here (docs/delta.md).

`DeltaRoutes` decides how each file of a transfer arrives: whole, or by deltas. A `DeltaTransfer` makes its bytes from
old files and a delta: it reads like any other incoming blob, a few blocks in memory. If there is any doubt, the whole
file is fetched. The part of the log (which deltas a version offers) is `registry/log/delta_log.py`, the format is
`onnxreg.schema.delta`, making is `onnxreg.converters.delta`.
"""

import importlib.util
import io
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol, cast
from urllib.parse import urlsplit

from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.store.protocol import IncomingBlob, RegistryReader, innermost
from onnxreg.schema.core.descriptor import Piece
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, NotFoundError, RemoteError, pip_command
from onnxreg.schema.core.ref import Version
from onnxreg.schema.delta.delta_format import (
    BLOCK_BYTES,
    COPY,
    LITERAL,
    DeltaHeader,
    inflate,
    read_spans,
)
from onnxreg.schema.delta.table import Delta, DeltaOffers, DeltaTable, Route, RoutePlanner

DeltaPolicy = Literal["auto", "always", "never"]
"""Take deltas if they are faster; whenever there are any; never."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
LOOPBACK_BYTES_PER_SECOND = 1e9
"""The rate that is assumed for a server on this machine until it is measured."""
MIN_MEASURED_SECONDS = 0.2
"""A rate is believed after bytes arrived for so long."""
MAX_GROWTH = 4
"""A file between two deltas of a chain is at most so many times as large as the last one."""
NO_NUMPY = "deltas need numpy, which is not installed"
OpenDelta = Callable[[Delta], BinaryIO]
"""Opens the bytes of a delta."""
FindBlob = Callable[[Digest], Path | None]
"""The file of a blob that is here; None if it is not."""


@dataclass(frozen=True)
class Arrival:
    """The arrival of a file: the bytes of it that moved, by how many deltas, from which version, and why so."""

    path: str
    digest: Digest
    size: int
    moved: int
    deltas: int = 0
    since: Version | None = None
    reason: str = ""
    is_doubt: bool = False
    """True if a delta was there, and could not be used or gave wrong bytes."""


class RateMeter:
    """The rate of a transfer, over all its files together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun: float | None = None
        self._bytes = 0

    def count(self, size: int) -> None:
        with self._lock:
            if self._begun is None:
                self._begun = time.monotonic()
            else:
                self._bytes += max(0, size)

    @property
    def rate(self) -> float | None:
        """Bytes a second; None until enough arrived."""
        with self._lock:
            seconds = 0.0 if self._begun is None else time.monotonic() - self._begun
            return self._bytes / seconds if seconds >= MIN_MEASURED_SECONDS and self._bytes else None


@dataclass
class DeltaRoutes:
    """The routes of one transfer. `planned` are those that were best before any rate was measured.

    Args:
        policy: see `DeltaPolicy`.
        planned: the route of each file.
        assumed_rate: bytes a second, until a rate is measured.
        obstacle: why no file may come by a delta; empty if files may.
    """

    policy: DeltaPolicy = "never"
    planned: Mapping[Digest, Route] = field(default_factory=dict)
    assumed_rate: float | None = None
    obstacle: str = ""
    meter: RateMeter = field(default_factory=RateMeter)

    def waves(self, files: Collection[Digest]) -> list[list[Digest]]:
        """The files in groups: those of a later group may need files of an earlier one."""
        waves: list[list[Digest]] = []
        waiting = set(files)
        while waiting:
            ready = {digest for digest in waiting if (self._needs(digest) - {digest}).isdisjoint(waiting)}
            ready = ready or waiting
            waves.append(sorted(ready))
            waiting -= ready
        return waves

    def _needs(self, digest: Digest) -> frozenset[Digest]:
        """The old files of a route, and its deltas, which a mirror fetches anyway."""
        route = self.planned.get(digest)
        return route.needs | {delta.digest for delta in route.deltas} if route else frozenset()

    def choose(self, digest: Digest, size: int) -> tuple[Route | None, str]:
        """The deltas of a file (None: fetch it whole) and the reason, at the rate of this moment."""
        route = self.planned.get(digest)
        if route is None or not route.deltas:
            return None, self.obstacle or (
                "" if self.policy == "never" else "no delta from a file that is here"
            )
        share = f"{route.size / size:.1%} of the file"
        if self.policy == "always":
            return route, share
        rate = self.meter.rate or self.assumed_rate
        if rate is None:
            return route, share
        planner = RoutePlanner({digest: size}, route.needs, route.deltas, rate)
        best = planner.plan()[digest]
        speed = f"at {rate / 1e6:.1f} MB/s"
        return (best, f"{share}, {speed}") if best.deltas else (None, f"the whole file is faster {speed}")


def plan_routes(
    source: RegistryReader,
    ledger: Ledger,
    versions: Collection[Version],
    sizes: Mapping[Digest, int],
    policy: DeltaPolicy,
    has: Callable[[Collection[Digest]], set[Digest]],
) -> DeltaRoutes:
    """Plan how files arrive from a registry in a directory. `sizes` are those to fetch, `has` asks what is there.

    Reads a table of deltas only if the state line does not repeat all of it. A table that cannot be read offers nothing.
    """
    url = urlsplit(innermost(source).url)
    if policy == "never" or not sizes:
        return DeltaRoutes()
    if not url.scheme or not url.netloc:
        return DeltaRoutes(policy, obstacle="the registry is on this machine")
    offers = DeltaOffers.read(ledger.more.get("deltas"))
    manifests = {version: ledger.entries[version].manifest for version in versions}
    deltas = [
        replace(delta, size=0) if delta.digest in sizes else delta
        for delta in offered_deltas(offers, ledger.name, manifests, ledger.read_table)
    ]
    if not deltas:
        return DeltaRoutes(policy)
    if importlib.util.find_spec("numpy") is None:
        return DeltaRoutes(policy, obstacle=f"{NO_NUMPY}: {pip_command('onnx')}")
    present = has({old for delta in deltas for old in delta.old})
    planned = RoutePlanner(sizes, frozenset(present), deltas).plan()
    assumed = LOOPBACK_BYTES_PER_SECOND if url.hostname in LOOPBACK else None
    return DeltaRoutes(policy, planned, assumed)


def offered_deltas(
    offers: DeltaOffers,
    name: str,
    manifests: Mapping[Version, Digest],
    read_table: Callable[[Digest], DeltaTable],
) -> list[Delta]:
    """The deltas that a state line offers, all of those of the versions in `manifests`.

    A table is read only if the state line does not repeat all of it; one that cannot be read offers nothing more.
    """
    deltas: list[Delta] = []
    for version, offer in offers.versions.items():
        deltas += offer.deltas
        if version not in manifests:
            continue
        repeated = DeltaTable(name, version, manifests[version], offer.deltas)
        if len(repeated.encode()) < offer.table.size:
            with suppress(IntegrityError, NotFoundError):
                deltas += read_table(offer.table.digest).deltas
    return list(dict.fromkeys(deltas))


class WholeBlob(IncomingBlob, Protocol):
    """A blob at its source, which can count bytes that come another way."""

    def follow(self, stream: BinaryIO, start: int) -> BinaryIO:
        """A stream over the blob's bytes from an offset; what is read from it counts as progress."""
        ...


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
