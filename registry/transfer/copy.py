"""The copy behind push, pull and mirror: blobs in parallel, verified while they stream; then manifests; then the index.

Its outcome is a `TransferResult`; a version that does not travel is a `SkippedVersion`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from onnxreg.registry.delta import NO_NUMPY, Arrival, DeltaPlan, DeltaTransfer, plan_deltas
from onnxreg.registry.log.commit import commit, load, load_own
from onnxreg.registry.log.contents import ArtifactPaths, Reference
from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.log.yanked_bytes import yanks_of
from onnxreg.registry.store.net.waits import one_file
from onnxreg.registry.store.protocol import (
    BlobReader,
    IndexFile,
    LocalPush,
    LocalStore,
    Push,
    RegistryReader,
    RegistryStore,
    local_file,
)
from onnxreg.registry.store.streams import metered
from onnxreg.registry.support.parallel import run_parallel
from onnxreg.registry.transfer.plan import TransferPlan, TransferRequest, make_plan
from onnxreg.schema.core.descriptor import Piece
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import (
    ConflictError,
    ForkError,
    HostError,
    IntegrityError,
    NotFoundError,
    RegError,
    RemoteError,
    name_registry_in_hint,
)
from onnxreg.schema.core.progress import SILENT, Advance, Progress
from onnxreg.schema.core.ref import Version
from onnxreg.schema.delta.table import Delta
from onnxreg.schema.log.events import Tag, Yank
from onnxreg.schema.log.state import Channel

ERRORS_BY_SEVERITY = (IntegrityError, ConflictError, NotFoundError)
"""Error families, the worst first."""
SMALL_TRANSFER_BYTES = 2**20
"""Blobs of so many bytes together move within the commit, after the intent: the place is asked once for them."""


@dataclass(frozen=True)
class SkippedVersion:
    """A version, channel or (with neither) model that did not travel, and why. `error` is set if somebody must act."""

    name: str
    tag: str | None
    reason: str
    error: RegError | None = None

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "tag": self.tag, "reason": self.reason}


@dataclass(frozen=True)
class TransferResult:
    """Outcome for one model: its versions at the destination now, how many of them are new, and what moved.

    `ledger` is the destination's log now, None if it could not be read; `held` are the artifacts of each version that
    the destination has now, `channels` the moves of channels, `yanks` those of versions that are yanked there. `has_copied` is False if no copy was necessary or
    possible. `arrivals`: how each blob came.
    """

    name: str
    versions: tuple[Version, ...] = ()
    new: int = 0
    events: int = 0
    blobs: int = 0
    size: int = 0
    ledger: Ledger | None = None
    held: Mapping[Version, ArtifactPaths] = field(default_factory=dict)
    channels: tuple[Tag, ...] = ()
    skipped: list[SkippedVersion] = field(default_factory=list)
    has_copied: bool = False
    arrivals: tuple[Arrival, ...] = ()
    yanks: Mapping[Version, Yank] = field(default_factory=dict)

    @property
    def is_current(self) -> bool:
        """True if there was nothing left to do, and no error."""
        failed = any(item.tag is None or item.error is not None for item in self.skipped)
        return not self.has_copied and bool(self.versions) and not failed


def copy(
    source: RegistryReader,
    destination: RegistryStore,
    request: TransferRequest,
    progress: Progress = SILENT,
    *,
    source_ledger: Ledger | None = None,
    near: Collection[BlobReader] = (),
    look: Callable[[str, IndexFile | None], None] = lambda name, index: None,
) -> TransferResult:
    """Copy versions of a model from one registry to another, with their events, in one swap.

    `source_ledger` is the model's ledger at the source, if it was read before; `near` are more readers that
    may have documents of the destination; `look` gets the destination's index file before anything is added
    to it, and may refuse it.

    Raises what `make_plan` and the two registries raise; GateError if the destination governs a channel to
    move. Nothing is visible at the destination before everything arrived; a second run transfers nothing.
    """
    ledger = source_ledger or load(source, request.name, destination)[0]
    destination_ledger, index = load_own(destination, request.name, source, *near)
    look(request.name, index)
    before = {version for version, entry in destination_ledger.entries.items() if entry.gone is None}
    plan = make_plan(request, ledger, destination_ledger)
    _check_channels(destination, plan)
    present = destination.has(plan.blobs) if plan.blobs else set()
    moving = {digest: file for digest, file in plan.blobs.items() if digest not in present}
    deltas = DeltaPlan()
    if request.deltas and isinstance(destination, LocalStore):
        sizes = {digest: file.size or 0 for digest, file in moving.items()}
        deltas = plan_deltas(source, ledger, request.versions, sizes, destination.has)
    mover = BlobMover(source, progress, deltas)
    work = _Work(mover, destination, plan, dict(destination_ledger.channels))
    if work.plan.changes or moving:
        destination_ledger = work.do(moving, near)
    else:
        destination.confirm(request.name)
    entries = destination_ledger.entries
    return TransferResult(
        request.name,
        tuple(request.versions),
        new=len(set(request.versions) - before),
        events=work.appended,
        blobs=len(moving),
        size=sum(file.size or 0 for file in moving.values()),
        ledger=destination_ledger,
        held={version: entries[version].held for version in request.versions if version in entries},
        channels=tuple(work.plan.moves),
        has_copied=True,
        arrivals=tuple(mover.arrivals),
        yanks=yanks_of(destination_ledger, [version for version in request.versions if version in entries]),
    )


def _check_channels(destination: RegistryReader, plan: TransferPlan) -> None:
    """GateError if the destination governs a channel to move."""
    if plan.moves:
        from onnxreg.registry.gates.policy_log import check_free

        for channel in plan.moves:
            check_free(destination, plan.request.name, channel.tag)


@dataclass
class _Work:
    """A copy in progress: its current plan, the destination's channels at the first look, the number of lines
    added.
    """

    mover: "BlobMover"
    destination: RegistryStore
    plan: TransferPlan
    before: Mapping[str, Channel]
    appended: int = 0

    def do(self, moving: Mapping[Digest, Reference], near: Collection[BlobReader]) -> Ledger:
        """Move blobs, the small ones within the commit; swap the index; return the destination's ledger after that."""
        is_small = sum(file.size or 0 for file in moving.values()) <= SMALL_TRANSFER_BYTES
        with self.destination.push() as push:
            self.mover.move(push, {} if is_small else moving)

            def bring(missing: Collection[Digest]) -> None:
                self.mover.move(push, {digest: self.plan.blobs[digest] for digest in missing})

            name, source = self.plan.request.name, self.mover.source
            self.mover.progress.step(f"{push.last_step} {name}")
            return commit(self.destination, push, name, self._change, source, *near, bring=bring)

    def _change(self, ledger: Ledger) -> Collection[Digest]:
        """Add the missing lines to the destination's ledger; after a lost race, plan again."""
        if ledger.head != self.plan.head:
            self.plan = make_plan(self.plan.request, self.plan.source, ledger, self.before)
        self.appended = self.plan.apply(ledger)
        return self.plan.blobs.keys()


@dataclass
class BlobMover:
    """Moves blobs, several at a time, the large ones first.

    Bytes may be garbled on their way: a blob that does not match its digest is fetched once more.
    """

    source: BlobReader
    progress: Progress
    deltas: DeltaPlan = field(default_factory=DeltaPlan)
    arrivals: list[Arrival] = field(default_factory=list)
    """The arrival of each blob so far."""

    def move(self, push: Push, moving: Mapping[Digest, Reference]) -> None:
        """Stream blobs into a push. The first failure stops the rest."""
        self.progress.plan(len(moving), sum(file.size or 0 for file in moving.values()))
        fetch = partial(self._fetch, push, moving)
        ordered = sorted(moving, key=lambda digest: (-(moving[digest].size or 0), digest))
        self.arrivals += run_parallel(fetch, ordered)

    def _fetch(self, push: Push, moving: Mapping[Digest, Reference], digest: Digest) -> Arrival:
        """Fetch a blob by deltas, or else whole."""
        file = moving[digest]
        with self.progress.file(file.path, file.size) as advance, one_file():
            blob = BlobTransfer(self.source, digest, file, advance)
            delta, reason = self.deltas.chosen.get(digest), self.deltas.reason
            is_doubt = reason.startswith(NO_NUMPY)
            if delta is not None and isinstance(push, LocalPush):
                incoming = DeltaTransfer(blob, delta, blob.open_delta, push.local_file)
                try:
                    self._check_size(blob, push.fetch(incoming))
                    reason = f"{delta.size / blob.size:.1%} of the file"
                    if incoming.is_patched:
                        reason = (
                            f"parts of {file.path} were fetched whole: the delta or an old file is damaged"
                        )
                    return Arrival(
                        file.path, digest, blob.size, blob.moved, delta.since, reason, incoming.is_patched
                    )
                except IntegrityError as error:
                    reason, is_doubt = f"{file.path} was fetched whole: {error.message}", True
            try:
                size = push.fetch(blob)
            except IntegrityError:
                with name_registry_in_hint(self.source.url):
                    size = push.fetch(blob)
            self._check_size(blob, size)
            return Arrival(file.path, digest, blob.size, blob.moved, reason=reason, is_doubt=is_doubt)

    def _check_size(self, blob: "BlobTransfer", size: int) -> None:
        if size != blob.size:
            raise IntegrityError(f"blob {blob.digest} has {size} bytes, its manifest says {blob.size}")


@dataclass
class BlobTransfer:
    """A blob at its source that counts its bytes as they arrive, including those before the offset of the
    first read. `moved` are the bytes that the source sent.
    """

    source: BlobReader
    digest: Digest
    file: Reference
    advance: Advance
    counted: int = 0
    moved: int = 0

    @property
    def size(self) -> int:
        return self.file.size or 0

    @property
    def path(self) -> Path | None:
        return local_file(self.source, self.digest)

    def open(self, start: int) -> BinaryIO:
        self._count(start - self.counted)
        stream = self.source.open_blob(self.digest, start)
        return metered(stream, self._receive, self._action(self.digest), self.size - start)

    def follow(self, stream: BinaryIO, start: int) -> BinaryIO:
        """See `delta.WholeBlob`."""
        self._count(start - self.counted)
        return metered(stream, self._count, self._action(self.digest), self.size - start)

    def open_delta(self, delta: Delta) -> BinaryIO:
        """The bytes of a delta at the source."""
        stream = self.source.open_blob(delta.digest)
        return metered(stream, self._arrive, self._action(delta.digest), delta.size)

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

    def pieces(self) -> Sequence[Piece]:
        return self.file.pieces


@contextmanager
def skip_on_error(name: str, skipped: list[SkippedVersion]) -> Iterator[None]:
    """Collect the errors of one model in `skipped`; errors of a registry or of this machine are raised."""
    try:
        yield
    except (ForkError, HostError, RemoteError):
        raise
    except RegError as error:
        skipped.append(SkippedVersion(name, None, error.message, error))


def worst(skipped: Iterable[SkippedVersion]) -> RegError | None:
    """The most severe error, if somebody must act."""
    errors = [item.error for item in skipped if item.error is not None]
    return min(errors, key=_rank, default=None)


def _rank(error: RegError) -> int:
    return next(
        (rank for rank, kind in enumerate(ERRORS_BY_SEVERITY) if isinstance(error, kind)),
        len(ERRORS_BY_SEVERITY),
    )
