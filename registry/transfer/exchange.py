"""One exchange: versions of a model, with their events, go from a source to a destination in one swap of the index.

Blobs move first, several at a time, by deltas if possible, and verified on the way; then the documents move; then the
index file is swapped. Nothing is visible at the destination before all of it has arrived.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from onnxreg.registry.log.commit import commit, load_own
from onnxreg.registry.log.contents import ArtifactPaths, Reference
from onnxreg.registry.log.log import LocatedVersion, Log
from onnxreg.registry.log.lookup import load
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import BlobReader, Push, RegistryReader, RegistryStore, innermost
from onnxreg.registry.store.streams import metered
from onnxreg.registry.support.parallel import run_parallel
from onnxreg.registry.transfer.merge import ExchangeRequest, Merge, merge, refused_versions
from onnxreg.schema.core.digest import Descriptor, Digest
from onnxreg.schema.core.errors import (
    ConflictError,
    ForkError,
    HostError,
    IntegrityError,
    NotFoundError,
    RegError,
    RemoteError,
)
from onnxreg.schema.core.progress import SILENT, Progress
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.events import Tag, Yank

if TYPE_CHECKING:
    from onnxreg.registry.delta import DeltaPlan


@dataclass(frozen=True)
class Arrival:
    """A file that arrived: its size and the bytes moved, the version `since` whose file a delta started from, the `reason`
    for or against a delta. `is_doubt` is True if a delta existed, but could not be used or gave wrong bytes.
    """

    path: str
    digest: Digest
    size: int
    moved: int
    since: Version | None = None
    reason: str = ""
    is_doubt: bool = False


@dataclass
class BlobMover:
    """Moves blobs, several at a time, large ones first, a damaged one once more. `arrivals` has one entry for each."""

    source: BlobReader
    progress: Progress
    deltas: "DeltaPlan | None" = None
    arrivals: list[Arrival] = field(default_factory=list)

    def move(self, push: Push, moving: Mapping[Digest, Reference]) -> None:
        """Move blobs into a push. The first failure stops the other transfers."""
        files = sorted(moving.values(), key=lambda file: (-(file.size or 0), file.digest))
        self.progress.plan(len(files), sum(file.size or 0 for file in files))
        self.arrivals += run_parallel(lambda file: self._fetch(push, file), files)

    def _fetch(self, push: Push, file: Reference) -> Arrival:
        """Fetch a blob: make it by a delta if possible, else fetch all of it."""
        digest, size, source = file.digest, file.size or 0, self.source
        moved = position = 0

        def receive(count: int) -> None:
            nonlocal moved
            moved += count

        def advance(count: int) -> None:
            nonlocal position
            position += count
            show(count)

        def read(blob: Digest, blob_size: int, start: int = 0) -> BinaryIO:
            stream, action = source.open_blob(blob, start), f"reading blob {blob} from {source.url}"
            return metered(stream, receive, action, blob_size - start)

        def store(open_at: Callable[[int], BinaryIO], path: Path | None = None) -> None:
            def opened(start: int) -> BinaryIO:
                advance(start - position)
                return metered(open_at(start), advance, f"reading blob {digest}", size - start)

            count = push.fetch(digest, size, opened, path)
            if count != size:
                raise IntegrityError(f"blob {digest} has {count} bytes, its manifest says {size}")

        with self.progress.file(file.path, file.size) as show:
            plan = self.deltas
            reason, is_doubt = ("", False) if plan is None else (plan.reason, plan.is_doubt)
            if plan is not None and (made_by := plan.chosen.get(digest)) is not None:
                from onnxreg.registry import delta

                def make(start: int) -> BinaryIO:
                    new = Descriptor(digest, size)
                    return delta.open_made(
                        new, made_by, lambda: read(made_by.digest, made_by.size), push.local_file, start
                    )

                try:
                    store(make)
                    reason = f"{made_by.size / size:.1%} of the file"
                    return Arrival(file.path, digest, size, moved, made_by.since, reason)
                except IntegrityError as error:
                    reason, is_doubt = f"{file.path} was fetched whole: {error.message}", True
            path = source.blob_path(digest) if isinstance(source, DirectoryRegistry) else None
            try:
                store(partial(read, digest, size), path)
            except IntegrityError:
                store(partial(read, digest, size), path)
            return Arrival(file.path, digest, size, moved, None, reason, is_doubt)


SEVERITY = (IntegrityError, ConflictError, NotFoundError)
"""Error families by severity, the worst first; other errors rank after these."""
SMALL_TRANSFER_BYTES = 2**20
"""Blobs of at most this many bytes in total move within the commit, to ask the destination only once for missing blobs."""


@dataclass(frozen=True)
class SkippedVersion:
    """A version or channel (`tag`) that was not copied, or a model if `tag` is None. `error` is set if a user must act."""

    name: str
    tag: str | None
    reason: str
    error: RegError | None = None

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "tag": self.tag, "reason": self.reason}


@dataclass(frozen=True)
class TransferResult:
    """The outcome for one model: the requested `versions`, the count of `new` ones, and what moved. `has_copied` is False if
    no exchange was necessary or possible. `log` is the destination's log (None: unreadable), `artifacts` the paths there
    for each version, `channels` the moves of channels, `yanks` the yanks of versions that are yanked there.
    """

    name: str
    versions: tuple[Version, ...] = ()
    new: int = 0
    events: int = 0
    blobs: int = 0
    size: int = 0
    log: Log | None = None
    artifacts: Mapping[Version, ArtifactPaths] = field(default_factory=dict)
    channels: tuple[Tag, ...] = ()
    skipped: list[SkippedVersion] = field(default_factory=list)
    has_copied: bool = False
    arrivals: tuple[Arrival, ...] = ()
    yanks: Mapping[Version, Yank] = field(default_factory=dict)

    @property
    def is_current(self) -> bool:
        """True if the destination had everything already, without errors."""
        failed = any(item.tag is None or item.error is not None for item in self.skipped)
        return not self.has_copied and bool(self.versions) and not failed


def exchange(
    source: RegistryReader,
    destination: RegistryStore,
    request: ExchangeRequest,
    progress: Progress = SILENT,
    *,
    log: Log | None = None,
    own: Log | None = None,
    plan: Merge | None = None,
    near: Collection[BlobReader] = (),
) -> TransferResult:
    """Copy the versions and channels of a request to the destination. A second run transfers nothing.

    Raises the errors of `merge` and both registries; GateError if the destination governs a channel to move. Logs that the
    caller has read: `log` of the source, `own` of the destination (`load_own`); `plan` is their merge. `near` are other
    readers that may have documents of the destination.
    """
    name = request.name
    source_log = log or load(source, name, destination)
    own = own or load_own(destination, name, source, *near)
    result_log, merged = own, plan or merge(request, source_log, own)
    before = {version for version, entry in result_log.versions.items() if entry.gone is None}
    channels_before = dict(result_log.channels)
    if merged.moves:
        from onnxreg.registry.gates import check_free

        for channel in merged.moves:
            check_free(destination, name, channel.tag)
    present = destination.has(merged.blobs) if merged.blobs else set()
    moving = {digest: file for digest, file in merged.blobs.items() if digest not in present}
    sizes = {digest: file.size or 0 for digest, file in moving.items()}
    deltas = None
    if request.deltas and isinstance(destination, DirectoryRegistry):
        from onnxreg.registry.delta import plan_deltas

        deltas = plan_deltas(source, source_log, request.versions, sizes, destination.has)
    mover, events = BlobMover(source, progress, deltas), 0

    def change(log: Log) -> Collection[Digest]:
        """Add the missing lines to the destination's log, and merge again if the log has changed."""
        nonlocal merged, events
        if log.head != merged.head:
            merged = merge(request, source_log, log, channels_before)
        events = merged.apply(log)
        return merged.blobs.keys()

    if merged.is_change or moving:
        with destination.push() as push:

            def bring(missing: Collection[Digest]) -> None:
                mover.move(push, {digest: merged.blobs[digest] for digest in missing})

            if sum(sizes.values()) > SMALL_TRANSFER_BYTES:
                mover.move(push, moving)
            progress.step(f"committing {name}")
            result_log = commit(destination, push, name, change, source, *near, bring=bring, first=own)
    else:
        destination.confirm(name)
    arrived = [version for version in request.versions if version in result_log.versions]
    return TransferResult(
        name,
        tuple(request.versions),
        new=len(set(request.versions) - before),
        events=events,
        blobs=len(moving),
        size=sum(sizes.values()),
        log=result_log,
        artifacts={version: result_log.versions[version].held for version in arrived},
        channels=tuple(merged.moves),
        has_copied=True,
        arrivals=tuple(mover.arrivals),
        yanks=result_log.yanks_of(arrived),
    )


def exchange_possible(
    source: RegistryReader,
    destination: RegistryStore,
    name: str,
    choose: Callable[[Log], ExchangeRequest],
    progress: Progress,
) -> TransferResult:
    """Exchange the part of the request from `choose` that can be copied; list the rest and the model's errors in `skipped`. A
    channel moves only with its version. If the destination has all events, blobs are not checked.
    """
    result = TransferResult(name)
    with list_errors(name, result.skipped):
        log, own = load(source, name), load_own(destination, name, source)
        request = choose(log)
        refused = refused_versions(request, log, own)
        for version, error in refused.items():
            entry, present = log.versions[version], own.versions.get(version)
            is_decided = entry.gone is not None or entry.held is not None
            is_decided = is_decided or (present is not None and present.manifest == entry.manifest)
            cause = None if is_decided else error
            result.skipped.append(SkippedVersion(name, str(version), error.message, cause))
        versions = [version for version in request.versions if version not in refused]
        for tag in request.channels:
            if (version := log.channels[tag].version) not in versions:
                stuck = ConflictError(f"channel {tag} of {name} holds {version}, which does not travel")
                result.skipped.append(SkippedVersion(name, tag, stuck.message, stuck))
        channels = [tag for tag in request.channels if log.channels[tag].version in versions]
        request = replace(request, versions=versions, channels=channels)
        result = replace(result, versions=tuple(versions), log=own)
        plan = merge(request, log, own)
        if request.heal or plan.is_change:
            if isinstance(store := innermost(source), DirectoryRegistry):
                record_push(store, log, versions, destination.registry_id)
            copied = exchange(source, destination, request, progress, log=log, own=own, plan=plan)
            result = replace(copied, skipped=result.skipped)
    return result


@contextmanager
def list_errors(name: str, skipped: list[SkippedVersion]) -> Iterator[None]:
    """Add errors of one model to `skipped`; raise errors of a registry or of this machine."""
    try:
        yield
    except (ForkError, HostError, RemoteError):
        raise
    except RegError as error:
        skipped.append(SkippedVersion(name, None, error.message, error))


def worst(skipped: Iterable[SkippedVersion]) -> RegError | None:
    """Return the most severe error in the list; None if no user must act."""
    errors = [item.error for item in skipped]
    return next(
        (error for kind in (*SEVERITY, RegError) for error in errors if isinstance(error, kind)), None
    )


def record_push(store: DirectoryRegistry, log: Log, versions: Iterable[Version], registry_id: str) -> None:
    """Record locally, before a push begins, that another registry may get these versions: `reg drop` then refuses them.
    A user who may not write to the registry, and so cannot drop versions either, records nothing.
    """
    for version in versions if os.access(store.root, os.W_OK) else ():
        path = f"pushed/{log.name}/{log.versions[version].manifest.hex}"
        if store.read_local(path) is None:
            store.write_local(path, f"{registry_id}\n".encode())


def was_pushed(store: DirectoryRegistry, located: LocatedVersion) -> bool:
    """True if a push of the version was ever begun."""
    return store.read_local(f"pushed/{located.name}/{located.entry.manifest.hex}") is not None
