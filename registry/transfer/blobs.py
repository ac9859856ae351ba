"""Blobs on their way from one registry to another: several at a time, verified while they stream, by deltas if possible."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from onnxreg.registry.log.contents import Reference
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.net.requests import reading
from onnxreg.registry.store.protocol import BlobReader, IncomingBlob, Push
from onnxreg.registry.store.streams import Sink, check, metered, pump
from onnxreg.registry.support.parallel import run_parallel
from onnxreg.schema.core.digest import Descriptor, Digest, Piece
from onnxreg.schema.core.errors import IntegrityError
from onnxreg.schema.core.progress import Advance, Progress
from onnxreg.schema.core.ref import Version

if TYPE_CHECKING:
    from onnxreg.registry.delta import DeltaPlan
    from onnxreg.schema.delta.delta_format import Delta


@dataclass(frozen=True)
class Arrival:
    """The arrival of a file: its bytes, those that moved, the version from whose file a delta made it, and why so."""

    path: str
    digest: Digest
    size: int
    moved: int
    since: Version | None = None
    reason: str = ""
    is_doubt: bool = False
    """True if a delta was there, and could not be used or gave wrong bytes."""


@dataclass
class BlobMover:
    """Moves blobs, several at a time, the large ones first.

    Bytes may be garbled on their way: a blob that does not match its digest is fetched once more.
    """

    source: BlobReader
    progress: Progress
    deltas: "DeltaPlan | None" = None
    arrivals: list[Arrival] = field(default_factory=list)
    """The arrival of each blob so far."""

    def move(self, push: Push, moving: Mapping[Digest, Reference]) -> None:
        """Stream blobs into a push. The first failure stops the rest."""
        files = sorted(moving.values(), key=lambda file: (-(file.size or 0), file.digest))
        self.progress.plan(len(files), sum(file.size or 0 for file in files))
        self.arrivals += run_parallel(lambda file: self._fetch(push, file), files)

    def _fetch(self, push: Push, file: Reference) -> Arrival:
        """Fetch a blob by a delta, or else whole."""
        with self.progress.file(file.path, file.size) as advance, reading():
            blob = BlobTransfer(self.source, file, advance)
            since, delta, reason, is_doubt = None, None, "", False
            if (plan := self.deltas) is not None:
                delta, reason, is_doubt = plan.chosen.get(file.digest), plan.reason, plan.is_doubt
            if delta is not None:
                blob.make = blob.maker(delta, push)
                try:
                    _store(push, blob)
                    since, is_doubt = delta.since, blob.is_whole
                    reason = f"{delta.size / blob.size:.1%} of the file"
                    if is_doubt:
                        reason = (
                            f"parts of {file.path} were fetched whole: the delta or an old file is damaged"
                        )
                except IntegrityError as error:
                    reason, is_doubt = f"{file.path} was fetched whole: {error.message}", True
                    blob.make = None
            if since is None:
                try:
                    _store(push, blob)
                except IntegrityError:
                    _store(push, blob)
            return Arrival(file.path, file.digest, blob.size, blob.moved, since, reason, is_doubt)


def _store(push: Push, blob: IncomingBlob) -> None:
    """Store a blob. IntegrityError if it has another digest or size than its manifest says."""
    size = push.fetch(blob)
    if size != blob.size:
        raise IntegrityError(f"blob {blob.digest} has {size} bytes, its manifest says {blob.size}")


@dataclass
class BlobTransfer:
    """A blob at its source that counts its bytes as they arrive, including those before the offset of the first read.

    `make` opens the bytes that a delta makes, from an offset on. They are read once: if they are wrong, the next bytes
    come from the source's file, and `is_whole` is True. `moved` are the bytes that the source sent.
    """

    source: BlobReader
    file: Reference
    advance: Advance
    make: Callable[[int], BinaryIO] | None = None
    is_whole: bool = False
    counted: int = 0
    moved: int = 0

    @property
    def digest(self) -> Digest:
        return self.file.digest

    @property
    def size(self) -> int:
        return self.file.size or 0

    @property
    def path(self) -> Path | None:
        if self.make is None and isinstance(self.source, DirectoryRegistry):
            return self.source.blob_path(self.digest)
        return None

    def pieces(self) -> Sequence[Piece]:
        return self.file.pieces

    def open(self, start: int) -> BinaryIO:
        self._count(start - self.counted)
        if self.make is not None:
            stream, self.make = self.make(start), None
            return metered(stream, self._count, self._action(self.digest), self.size - start)
        self.is_whole = True
        stream = self.source.open_blob(self.digest, start)
        return metered(stream, self._receive, self._action(self.digest), self.size - start)

    def maker(self, delta: "Delta", push: Push) -> Callable[[int], BinaryIO]:
        """A function that opens the bytes of this blob from an offset on, as a delta makes them of files that are here."""

        from onnxreg.registry.delta import open_made

        def open_delta() -> BinaryIO:
            stream = self.source.open_blob(delta.digest)
            return metered(stream, self._arrive, self._action(delta.digest), delta.size)

        return partial(open_made, Descriptor(self.digest, self.size), delta, open_delta, push.local_file)

    def _action(self, digest: Digest) -> str:
        return f"reading blob {digest} from {self.source.url}"

    def _arrive(self, count: int) -> None:
        self.moved += count

    def _receive(self, count: int) -> None:
        self._arrive(count)
        self._count(count)

    def _count(self, count: int) -> None:
        self.counted += count
        self.advance(count)


def copy_verified(
    stream: BinaryIO, sink: Sink, digest: Digest, size: int, label: str, progress: Progress
) -> None:
    """Copy a stream into a sink, and close it. IntegrityError if it has another digest or size; `label` names it."""
    with progress.file(label, size) as advance, metered(stream, advance, f"reading {label}", size) as source:
        actual, count = pump(source, sink)
    check(actual, digest, f"{label} (blob {digest})")
    if count != size:
        raise IntegrityError(f"{label} has {count} bytes, its manifest or log says {size}")
