"""Blobs on their way from one registry to another: several at a time, verified while they stream, by deltas if possible."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from onnxreg.registry.log.contents import Reference
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import BlobReader, Push
from onnxreg.registry.store.streams import Sink, check, metered, pump
from onnxreg.registry.support.parallel import run_parallel
from onnxreg.schema.core.digest import Descriptor, Digest
from onnxreg.schema.core.errors import IntegrityError
from onnxreg.schema.core.progress import Progress
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
        digest, size, source = file.digest, file.size or 0, self.source
        arrived_bytes = position = 0

        def receive(count: int) -> None:
            nonlocal arrived_bytes
            arrived_bytes += count

        def advance(count: int) -> None:
            nonlocal position
            position += count
            show(count)

        def receive_and_advance(count: int) -> None:
            receive(count)
            advance(count)

        def open_whole(start: int) -> BinaryIO:
            advance(start - position)
            stream = source.open_blob(digest, start)
            return metered(
                stream, receive_and_advance, f"reading blob {digest} from {source.url}", size - start
            )

        def open_made(start: int) -> BinaryIO:
            from onnxreg.registry import delta

            advance(start - position)
            new = Descriptor(digest, size)
            stream = delta.open_made(new, cast("Delta", delta_file), open_delta, push.local_file, start)
            return metered(stream, advance, f"making blob {digest}", size - start)

        def open_delta() -> BinaryIO:
            made_by = cast("Delta", delta_file)
            stream = source.open_blob(made_by.digest)
            return metered(stream, receive, f"reading blob {made_by.digest} from {source.url}", made_by.size)

        def store(open_at: Callable[[int], BinaryIO], path: Path | None = None) -> None:
            count = push.fetch(digest, size, open_at, path)
            if count != size:
                raise IntegrityError(f"blob {digest} has {count} bytes, its manifest says {size}")

        with self.progress.file(file.path, file.size) as show:
            delta_file, reason, is_doubt = None, "", False
            if (plan := self.deltas) is not None:
                delta_file, reason, is_doubt = plan.chosen.get(digest), plan.reason, plan.is_doubt
            if delta_file is not None:
                try:
                    store(open_made)
                    reason = f"{delta_file.size / size:.1%} of the file"
                    return Arrival(file.path, digest, size, arrived_bytes, delta_file.since, reason)
                except IntegrityError as error:
                    reason, is_doubt = f"{file.path} was fetched whole: {error.message}", True
            path = source.blob_path(digest) if isinstance(source, DirectoryRegistry) else None
            try:
                store(open_whole, path)
            except IntegrityError:
                store(open_whole, path)
            return Arrival(file.path, digest, size, arrived_bytes, None, reason, is_doubt)


def copy_verified(
    stream: BinaryIO, sink: Sink, digest: Digest, size: int, label: str, progress: Progress
) -> None:
    """Copy a stream into a sink, and close it. IntegrityError if it has another digest or size; `label` names it."""
    with progress.file(label, size) as advance, metered(stream, advance, f"reading {label}", size) as source:
        actual, count = pump(source, sink)
    check(actual, digest, f"{label} (blob {digest})")
    if count != size:
        raise IntegrityError(f"{label} has {count} bytes, its manifest or log says {size}")
