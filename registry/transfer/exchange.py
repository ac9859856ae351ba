"""One exchange: versions of a model go from a source to a destination, with their events, in one swap.

Push, pull and mirror are calls of `exchange`. Blobs move first, in parallel and verified while they stream, then
the documents, then the index file is swapped. Nothing is visible at the destination before everything arrived.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from onnxreg.registry.log.commit import commit, load_own
from onnxreg.registry.log.contents import ArtifactPaths, files
from onnxreg.registry.log.log import LocatedVersion, Log
from onnxreg.registry.log.lookup import load
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import BlobReader, RegistryReader, RegistryStore
from onnxreg.registry.transfer.blobs import Arrival, BlobMover
from onnxreg.registry.transfer.merge import ExchangeRequest, Merge, check_versions, merge
from onnxreg.schema.core.digest import Digest
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

    `log` is the destination's log now, None if it could not be read; `artifacts` are the artifacts of each version that the
    destination has now, `channels` the moves of channels, `yanks` those of versions that are yanked there. `has_copied`
    is False if no copy was necessary or possible. `arrivals`: how each blob came.
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

    Raises what `merge` and the two registries raise; GateError if the destination governs a channel to move.

    Args:
        log: the model's log at the source, if it was read before.
        own: the destination's, of `load_own`; `plan` is the merge of both.
        near: more readers that may have documents of the destination.
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
    remember: Callable[[Log, Collection[Version]], None],
    progress: Progress,
) -> TransferResult:
    """Exchange the versions and channels of a model that `choose` names and that may travel; the others are listed.

    `remember` records the versions that the destination will know, before they are sent. If the destination lacks no
    event, no blob is looked up. A channel does not move if its version does not travel. Errors of the model are listed;
    errors of a registry or of this machine are raised.
    """
    result = TransferResult(name)
    with list_errors(name, result.skipped):
        log, own = load(source, name), load_own(destination, name, source)
        request = choose(log)
        versions = []
        for version in request.versions:
            try:
                _check_travels(request, log, own, version)
                versions.append(version)
            except (ConflictError, IntegrityError, NotFoundError) as error:
                entry, present = log.versions[version], own.versions.get(version)
                is_decided = entry.gone is not None or entry.held is not None
                is_decided = is_decided or (present is not None and present.manifest == entry.manifest)
                tag, cause = str(version), None if is_decided else error
                result.skipped.append(SkippedVersion(name, tag, error.message, cause))
        for tag in request.channels:
            if (version := log.channels[tag].version) not in versions:
                stuck = ConflictError(f"channel {tag} of {name} holds {version}, which does not travel")
                result.skipped.append(SkippedVersion(name, tag, stuck.message, stuck))
        channels = [tag for tag in request.channels if log.channels[tag].version in versions]
        request = replace(request, versions=versions, channels=channels)
        result = replace(result, versions=tuple(versions), log=own)
        plan = merge(request, log, own)
        if request.heal or plan.is_change:
            remember(log, versions)
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


def _check_travels(request: ExchangeRequest, source: Log, destination: Log, version: Version) -> None:
    """Raise ConflictError, IntegrityError or NotFoundError if the destination may not have a version."""
    check_versions(source, destination, [version], request.restore is not None)
    if version not in destination.versions and destination.tombstones:
        entry = source.versions[version]
        digests = {entry.manifest, *(file.digest for file in files(source, version, entry))}
        if digests.intersection(destination.tombstones):
            raise ConflictError(
                f"files of {source.name}:{version} were taken down there", "`reg log` there says why"
            )


def worst(skipped: Iterable[SkippedVersion]) -> RegError | None:
    """The most severe error, if somebody must act."""
    errors = [item.error for item in skipped if item.error is not None]
    ranked = (error for family in ERRORS_BY_SEVERITY for error in errors if isinstance(error, family))
    return next(ranked, errors[0] if errors else None)


def record_push(store: DirectoryRegistry, log: Log, versions: Iterable[Version], registry_id: str) -> None:
    """Record on this machine, before a push begins, that another registry will know these versions: `reg drop` then refuses."""
    for version in versions:
        path = f"pushed/{log.name}/{log.versions[version].manifest.hex}"
        if store.read_local(path) is None:
            store.write_local(path, f"{registry_id}\n".encode())


def was_pushed(store: DirectoryRegistry, located: LocatedVersion) -> bool:
    """True if a push of the version ever began."""
    return store.read_local(f"pushed/{located.name}/{located.entry.manifest.hex}") is not None
