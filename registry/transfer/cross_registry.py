"""Versions of a model into a registry with another id: what may travel goes, what may not is listed."""

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
from onnxreg.registry.transfer.copy import Progress, TransferResult, copy
from onnxreg.registry.transfer.plan import MakeRestore, TransferRequest, make_plan
from onnxreg.schema.core.errors import (
    ConflictError,
    ForkError,
    HostError,
    IntegrityError,
    NotFoundError,
    RegError,
    RemoteError,
)
from onnxreg.schema.core.version import Version
from onnxreg.schema.log.state import VersionEntry

BAD = (IntegrityError, ConflictError, NotFoundError)
"""The worst first."""


@dataclass(frozen=True)
class SkippedVersion:
    """A version, channel or (with neither) model that did not travel, and why. `error` where somebody must act."""

    name: str
    tag: str | None
    reason: str
    error: RegError | None = None

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "tag": self.tag, "reason": self.reason}


@dataclass
class BulkResult:
    """What became of one model: the versions that are there now, how many of them are new, and what moved."""

    name: str
    versions: list[Version] = field(default_factory=list)
    new: int = 0
    moved: TransferResult | None = None
    skipped: list[SkippedVersion] = field(default_factory=list)

    @property
    def is_current(self) -> bool:
        """Whether there was nothing left to do, and nothing was wrong."""
        failed = any(item.tag is None or item.error is not None for item in self.skipped)
        return self.moved is None and bool(self.versions) and not failed


def worst(skipped: Iterable[SkippedVersion]) -> RegError | None:
    """The error that matters most, where somebody must act."""
    errors = [item.error for item in skipped if item.error is not None]
    return min(errors, key=_rank, default=None)


def _rank(error: RegError) -> int:
    return next((rank for rank, kind in enumerate(BAD) if isinstance(error, kind)), len(BAD))


@contextmanager
def listing(name: str, skipped: list[SkippedVersion]) -> Iterator[None]:
    """What is wrong with one model is listed; what is wrong with a place or with this machine is raised."""
    try:
        yield
    except (ForkError, HostError, RemoteError):
        raise
    except RegError as error:
        skipped.append(SkippedVersion(name, None, error.message, error))


@dataclass(frozen=True)
class BulkOptions:
    """What to send of each model: which versions and channels it is given a log, `remember` before they are sent which
    versions another registry is going to know, `restore` to make the event that brings an expired one back there, `heal`
    to bring again what was lost there."""

    versions: Callable[[Ledger], Collection[Version]]
    channels: Callable[[Ledger], Collection[str]]
    remember: Callable[[Ledger, Collection[Version]], None]
    actor: str | None = None
    restore: MakeRestore | None = None
    heal: bool = False


def send(
    source: RegistryStore, destination: RegistryStore, name: str, order: BulkOptions, progress: Progress
) -> BulkResult:
    """Send the versions of a model that may travel, and channels, in one swap.

    Where no event is missing there, no blob is asked for. A channel stays where its version does not travel.
    """
    sent = BulkResult(name)
    with listing(name, sent.skipped):
        ours, theirs = load(source, name)[0], load(destination, name, source)[0]
        chosen = order.versions(ours)
        back = order.restore is not None
        sent.versions = [version for version in chosen if _travels(ours, theirs, version, back, sent)]
        tags = [tag for tag in order.channels(ours) if _may_move(ours, tag, sent)]
        channels = Channels(tags, order.actor)
        wish = TransferRequest(
            name, sent.versions, EVERYTHING, channels, order.restore, order.heal, order.actor
        )
        if order.heal or make_plan(wish, ours, theirs).changes:
            order.remember(ours, sent.versions)
            sent.moved = copy(source, destination, wish, progress, known=ours)
            sent.new = sum(version not in theirs.entries for version in sent.versions)
    return sent


def _travels(ours: Ledger, theirs: Ledger, version: Version, back: bool, sent: BulkResult) -> bool:
    """Whether the destination may have a version (`back`: one that expired there too); if not, it is listed."""
    entry, held = ours.entries[version], theirs.entries.get(version)
    try:
        check_versions(ours, theirs, [version], back)
        if held is None and theirs.tombstones:
            _check_buried(ours, theirs, version, entry)
    except (ConflictError, IntegrityError, NotFoundError) as error:
        absent = entry.gone is not None or entry.held is not None
        decided = absent or (held is not None and held.manifest == entry.manifest)
        sent.skipped.append(
            SkippedVersion(ours.name, str(version), error.message, None if decided else error)
        )
        return False
    return True


def _check_buried(ours: Ledger, theirs: Ledger, version: Version, entry: VersionEntry) -> None:
    """ConflictError where the destination took some of the files down. Reads the manifest."""
    digests = {entry.manifest, *(file.digest for file in files(ours, version, entry))}
    if digests.intersection(theirs.tombstones):
        raise ConflictError(
            f"files of {ours.name}:{version} were taken down there", "`reg log` there says why"
        )


def _may_move(ours: Ledger, tag: str, sent: BulkResult) -> bool:
    version = ours.channels[tag].version
    if version not in sent.versions:
        error = ConflictError(f"channel {tag} of {ours.name} holds {version}, which does not travel")
        sent.skipped.append(SkippedVersion(ours.name, tag, error.message, error))
    return version in sent.versions
