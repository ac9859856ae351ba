"""One exchange: versions of a model go from a source to a destination, with their events, in one swap.

Blobs move first, several at a time, verified while they stream, by deltas if possible, then the documents, then the index file
is swapped. Nothing is visible at the destination before everything arrived.
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
    """The arrival of a file: its bytes, those that moved, the version from whose file a delta made it, and why so; a
    `doubt` if a delta was there, and could not be used or gave wrong bytes.
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
    """Moves blobs, several at a time, the large ones first. One that was garbled on its way is fetched once more."""

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
            plan, reason, is_doubt = self.deltas, "", False
            if plan is not None:
                reason, is_doubt = plan.reason, plan.is_doubt
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
"""Error families, the worst first; the others come after them."""
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
    """Outcome for one model: its versions at the destination now, how many are new, and what moved; False in `has_copied`
    if no copy was necessary or possible. `log` is the destination's, None if it could not be read, `artifacts` what it has
    of each version, `channels` the moves of channels, `yanks` those of versions that are yanked there.
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
        """True if there was nothing left to do, and no error."""
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
    """Let the destination have the versions and channels of a request. A second run transfers nothing.

    Raises what `merge` and the two registries raise; GateError if the destination governs a channel to move. `log` is the
    source's log and `own` the destination's (`load_own`), if they were read, `plan` the merge of both; `near` are more readers
    that may have documents of the destination.
    """
    name = request.name
    source_log = log or load(source, name, destination)
    own = own or load_own(destination, name, source, *near)
    result_log, merged = own, plan or merge(request, source_log, own)
    before = {version for version, entry in result_log.versions.items() if entry.gone is None}
    channels_before = dict(result_log.channels)
    if merged.moves:
        from onnxreg.registry.gates.enforce import check_free

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
        """Add the missing lines to the destination's log; after a lost race, merge again."""
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
    """Exchange what `choose` names of a model and may travel; the rest, and errors of the model, are listed. A channel does
    not move without its version. If the destination lacks no event, no blob is looked up.
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
    ranked = (error for kind in (*SEVERITY, RegError) for error in errors if isinstance(error, kind))
    return next(ranked, None)


def record_push(store: DirectoryRegistry, log: Log, versions: Iterable[Version], registry_id: str) -> None:
    """Record on this machine, before a push begins, that another registry will know these versions: `reg drop` then refuses.

    A registry that this user may not write drops nothing, and needs no record.
    """
    for version in versions if os.access(store.root, os.W_OK) else ():
        path = f"pushed/{log.name}/{log.versions[version].manifest.hex}"
        if store.read_local(path) is None:
            store.write_local(path, f"{registry_id}\n".encode())


def was_pushed(store: DirectoryRegistry, located: LocatedVersion) -> bool:
    """True if a push of the version ever began."""
    return store.read_local(f"pushed/{located.name}/{located.entry.manifest.hex}") is not None
