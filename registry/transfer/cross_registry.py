"""Send versions of a model to a registry with another id: those that may travel go, the others are listed."""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from onnxreg.registry.log.channels import Channels
from onnxreg.registry.log.commit import load
from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.log.references import files
from onnxreg.registry.log.selection import EVERYTHING
from onnxreg.registry.log.transfer_rules import check_versions
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.registry.transfer.copy import TransferResult, copy
from onnxreg.registry.transfer.plan import MakeRestore, TransferRequest, make_plan
from onnxreg.schema.core.errors import (
    Advice,
    ConflictError,
    ForkError,
    HostError,
    IntegrityError,
    NotFoundError,
    RegError,
    RemoteError,
)
from onnxreg.schema.core.progress import Progress
from onnxreg.schema.core.version import Version
from onnxreg.schema.log.state import VersionEntry

ERRORS_BY_SEVERITY = (IntegrityError, ConflictError, NotFoundError)
"""Error families, the worst first."""


@dataclass(frozen=True)
class SkippedVersion:
    """A version, channel or (with neither) model that did not travel, and why. `error` is set if somebody
    must act.
    """

    name: str
    tag: str | None
    reason: str
    error: RegError | None = None

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "tag": self.tag, "reason": self.reason}


@dataclass
class BulkResult:
    """Outcome for one model: the versions at the destination now, how many of them are new, and the copy, if
    any.
    """

    name: str
    versions: list[Version] = field(default_factory=list)
    new: int = 0
    moved: TransferResult | None = None
    skipped: list[SkippedVersion] = field(default_factory=list)

    @property
    def is_current(self) -> bool:
        """True if there was nothing left to do, and no error."""
        failed = any(item.tag is None or item.error is not None for item in self.skipped)
        return self.moved is None and bool(self.versions) and not failed


def worst(skipped: Iterable[SkippedVersion]) -> RegError | None:
    """The most severe error, if somebody must act."""
    errors = [item.error for item in skipped if item.error is not None]
    return min(errors, key=_rank, default=None)


def _rank(error: RegError) -> int:
    return next(
        (rank for rank, kind in enumerate(ERRORS_BY_SEVERITY) if isinstance(error, kind)),
        len(ERRORS_BY_SEVERITY),
    )


@contextmanager
def listing(name: str, skipped: list[SkippedVersion]) -> Iterator[None]:
    """Collect the errors of one model in `skipped`; errors of a registry or of this machine are raised."""
    try:
        yield
    except (ForkError, HostError, RemoteError):
        raise
    except RegError as error:
        skipped.append(SkippedVersion(name, None, error.message, error))


@dataclass(frozen=True)
class BulkOptions:
    """Options of a bulk transfer.

    `versions` and `channels` choose from a log; `remember` records the versions that another registry will
    know, before they are sent; `restore` makes the event that brings an expired version back; `heal` sends
    lost files again.
    """

    versions: Callable[[Ledger], Collection[Version]]
    channels: Callable[[Ledger], Collection[str]]
    remember: Callable[[Ledger, Collection[Version]], None]
    actor: str | None = None
    restore: MakeRestore | None = None
    heal: bool = False


def send(
    source: RegistryStore, destination: RegistryStore, name: str, options: BulkOptions, progress: Progress
) -> BulkResult:
    """Send the versions of a model that may travel, and channels, in one swap.

    If the destination lacks no event, no blob is looked up. A channel does not move if its version does not
    travel.
    """
    result = BulkResult(name)
    with listing(name, result.skipped):
        source_ledger, destination_ledger = load(source, name)[0], load(destination, name, source)[0]
        chosen = options.versions(source_ledger)
        restores = options.restore is not None
        result.versions = [
            version
            for version in chosen
            if _travels(source_ledger, destination_ledger, version, restores, result)
        ]
        tags = [tag for tag in options.channels(source_ledger) if _may_move(source_ledger, tag, result)]
        channels = Channels(tags, options.actor)
        request = TransferRequest(
            name, result.versions, EVERYTHING, channels, options.restore, options.heal, options.actor
        )
        if options.heal or make_plan(request, source_ledger, destination_ledger).changes:
            options.remember(source_ledger, result.versions)
            result.moved = copy(source, destination, request, progress, source_ledger=source_ledger)
            result.new = sum(version not in destination_ledger.entries for version in result.versions)
    return result


def _travels(
    source: Ledger, destination: Ledger, version: Version, restores: bool, result: BulkResult
) -> bool:
    """Decide if the destination may have a version (`restores`: also one that expired there); if not, list
    it.
    """
    entry, destination_entry = source.entries[version], destination.entries.get(version)
    try:
        check_versions(source, destination, [version], restores)
        if destination_entry is None and destination.tombstones:
            _check_tombstones(source, destination, version, entry)
    except (ConflictError, IntegrityError, NotFoundError) as error:
        absent = entry.gone is not None or entry.held is not None
        decided = absent or (destination_entry is not None and destination_entry.manifest == entry.manifest)
        result.skipped.append(
            SkippedVersion(source.name, str(version), error.message, None if decided else error)
        )
        return False
    return True


def _check_tombstones(source: Ledger, destination: Ledger, version: Version, entry: VersionEntry) -> None:
    """ConflictError if the destination took some of the files down. Reads the manifest."""
    digests = {entry.manifest, *(file.digest for file in files(source, version, entry))}
    if digests.intersection(destination.tombstones):
        raise ConflictError(f"files of {source.name}:{version} were taken down there", Advice("log-of-other"))


def _may_move(ledger: Ledger, tag: str, result: BulkResult) -> bool:
    version = ledger.channels[tag].version
    if version not in result.versions:
        error = ConflictError(f"channel {tag} of {ledger.name} holds {version}, which does not travel")
        result.skipped.append(SkippedVersion(ledger.name, tag, error.message, error))
    return version in result.versions
