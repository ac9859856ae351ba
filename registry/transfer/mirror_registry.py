"""A whole registry into another place: as a verbatim copy with its id, or version by version into one of its own.

A verbatim mirror takes every line as it is and every blob that the source refers to; its log is always a prefix of the
source's, and no event is made in it. Between different ids the rule of `transfer` holds for every version.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from onnxreg.registry.gates.policy_log import copy_policies
from onnxreg.registry.log import lookup
from onnxreg.registry.log.collect import CollectResult, collect
from onnxreg.registry.log.commit import load
from onnxreg.registry.log.ledger import Ledger, mirror_error
from onnxreg.registry.log.references import present_versions
from onnxreg.registry.log.transfer_rules import missing_lines
from onnxreg.registry.read.remotes import Remotes
from onnxreg.registry.store.archive.archive_reader import carried_by
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.registry.transfer import push_record, unfinished_mirror
from onnxreg.registry.transfer.copy import Progress, TransferResult, copy
from onnxreg.registry.transfer.cross_registry import BulkOptions, SkippedVersion, listing, send
from onnxreg.registry.transfer.plan import TransferRequest
from onnxreg.registry.trust.read_trust_file import load_trust
from onnxreg.registry.trust.requirements import check_copied, enforce_policies
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import (
    ConflictError,
    HostError,
    InputError,
    RemoteError,
)
from onnxreg.schema.core.ref import POLICY_LOG
from onnxreg.schema.core.version import Version
from onnxreg.schema.inputs.trust_file import Trust
from onnxreg.schema.log.events import Drop, Expire, Purge
from onnxreg.schema.log.state import VersionEntry


@dataclass
class MirrorResult:
    """What a mirroring did: the models looked at, the versions that are new there, what moved and what was deleted."""

    source: str
    destination: str
    models: int = 0
    versions: int = 0
    events: int = 0
    blobs: int = 0
    size: int = 0
    freed: CollectResult = field(default_factory=lambda: CollectResult({}, 0))
    skipped: list[SkippedVersion] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "destination": self.destination,
            "models": self.models,
            "versions": self.versions,
            "events": self.events,
            "blobs": self.blobs,
            "bytes": self.size,
            "freed": {"blobs": len(self.freed.freed), "bytes": self.freed.size},
            "skipped": [skipped.to_json() for skipped in self.skipped],
        }

    def count(self, done: TransferResult, versions: int) -> None:
        self.versions += versions
        self.events += done.events
        self.blobs += done.blobs
        self.size += done.size


def mirror(
    source: RegistryStore,
    destination: RegistryStore,
    channels: bool = False,
    progress: Progress | None = None,
    actor: str | None = None,
) -> MirrorResult:
    """Bring everything from one registry to another; what is there already is not sent again.

    ForkError, and nothing written, where both have one id and some log has forked. What cannot be had of one
    version or model is listed, and the rest goes on. `channels` makes the destination's channels those of the source, by
    events of its own; a verbatim mirror has them anyway.
    """
    report = MirrorResult(source.url, destination.url)
    watching = progress or Progress()
    with _unfinished(destination):
        if source.registry_id == destination.registry_id:
            _verbatim(source, destination, report, watching)
        else:
            if destination.is_mirror:
                raise mirror_error(destination.registry_id)
            _by_version(source, destination, report, watching, channels, actor)
    return report


@contextmanager
def _unfinished(destination: RegistryStore) -> Iterator[None]:
    """Where a place or this machine fails, the hint says that the copy is not whole, and how to finish it."""
    try:
        yield
    except (HostError, RemoteError) as error:
        rest = f"{destination.url} has only what arrived: run `reg mirror` again, it goes on there"
        error.hint = "; ".join(filter(None, (error.hint, rest)))
        raise


def open_both(
    known: Remotes, source: str, destination: str, new_id: bool = False
) -> tuple[RegistryStore, RegistryStore]:
    """The two registries, each a name, URL or path; the destination is made where there is none.

    It is made as a mirror, or with `new_id` as a registry of its own. InputError where that cannot be.
    """
    if known.url_of(source) == known.url_of(destination):
        raise InputError("source and destination are the same registry", "name another place")
    ours = known.open(source)
    _ = list(ours.names())  # what cannot be listed is found out before anything is made there
    theirs = known.open(destination, create=True, mirror_of=None if new_id else ours.registry_id)
    if new_id and theirs.registry_id == ours.registry_id:
        raise InputError(
            f"{theirs.url} has the id of {ours.url}", "leave --new-id away, or name another place"
        )
    return ours, theirs


def _verbatim(
    source: RegistryStore, destination: RegistryStore, report: MirrorResult, progress: Progress
) -> None:
    trust = load_trust()
    _check_policies(source, trust)
    copy_policies(source, destination)
    plans: list[_Plan] = []
    buried: set[Digest] = set()
    for name in list(source.names()):
        report.models += 1
        with listing(name, report.skipped):
            buried.update(lookup.read_state(source, name).tombstones)
            plans += _plan(source, destination, name, trust)
    if plans:
        unfinished_mirror.begin(destination, source.url)
    for plan in plans:
        with listing(plan.name, report.skipped):
            done = copy(
                source, destination, TransferRequest(plan.name, plan.versions), progress, known=plan.checked
            )
            report.count(done, len(plan.versions) - plan.held)
    if not report.skipped:
        unfinished_mirror.end(destination)
    if any(plan.gives_up for plan in plans) or destination.has(buried):
        report.freed = _clear(destination, None if destination.is_mirror else buried)


@dataclass(frozen=True)
class _Plan:
    """A model of which lines are missing there: the versions it will have, how many of them are there by now.

    `checked` is its ledger, if the trust file was asked about it: no other one is copied then.
    """

    name: str
    versions: list[Version]
    held: int
    gives_up: bool
    checked: Ledger | None = None


def _check_policies(source: RegistryStore, trust: Trust) -> None:
    """IntegrityError if the log of policies is not signed as the trust file demands."""
    index = source.read_index(POLICY_LOG) if trust.required(source.registry_id, POLICY_LOG) else None
    if index is not None:
        enforce_policies(trust, source.registry_id, index)


def _plan(source: RegistryStore, destination: RegistryStore, name: str, trust: Trust) -> Iterator[_Plan]:
    """Nothing where the copy is whole, or ahead. ForkError where neither log is the beginning of the other; IntegrityError as
    `check_copied`."""
    indexes = [place.read_index(name) for place in (source, destination)]
    if indexes[0] is not None and indexes[1] is not None and indexes[0].data == indexes[1].data:
        return
    ours, theirs = load(source, name)[0], load(destination, name, source)[0]
    lines = missing_lines(ours, theirs, ())
    if lines:
        check_copied(ours, trust)
        versions = [version for version, _ in present_versions(ours)]
        held = sum(version in theirs.entries and theirs.entries[version].gone is None for version in versions)
        gives_up = any(isinstance(line.event, Expire | Purge | Drop) for line in lines) or any(
            _holds_less(ours.entries[version], theirs.entries.get(version)) for version in versions
        )
        checked = ours if trust.concerns(ours.registry, name) else None
        yield _Plan(name, versions, held, gives_up, checked)


def _holds_less(ours: VersionEntry, theirs: VersionEntry | None) -> bool:
    """Whether the copy holds artifacts of a version that the source no longer holds."""
    if ours.held is None or theirs is None or theirs.gone is not None:
        return False
    return theirs.held is None or not set(theirs.held) <= set(ours.held)


def _clear(mirror: RegistryStore, only: Collection[Digest] | None) -> CollectResult:
    """Delete what was given up. Another mirroring is waited for, since no event can make it start over."""
    try:
        return collect(mirror, only)
    except ConflictError as error:
        raise ConflictError(
            f"another mirroring into {mirror.url} did not end: what was given up is not deleted yet",
            "run it again when that one has ended; `reg doctor` names what a dead one left",
        ) from error


def _by_version(
    source: RegistryStore,
    destination: RegistryStore,
    report: MirrorResult,
    progress: Progress,
    channels: bool,
    actor: str | None,
) -> None:
    def remember(ours: Ledger, versions: Collection[Version]) -> None:
        """These versions are known elsewhere from now on, so that `reg drop` refuses; a place that we cannot write never drops."""
        if isinstance(source, DirectoryRegistry):
            with suppress(HostError):
                push_record.record_all(source, ours, versions, destination.registry_id)

    carried, trust = carried_by(source), load_trust()

    def choose(ours: Ledger) -> Collection[Version]:
        check_copied(ours, trust)
        return ours.entries if carried is None else sorted(carried.get(ours.name, ()))

    order = BulkOptions(
        choose,
        lambda ours: sorted(ours.channels) if channels else (),
        remember,
        actor,
    )
    for name in list(source.names()):
        report.models += 1
        sent = send(source, destination, name, order, progress)
        report.skipped += sent.skipped
        if sent.moved is not None:
            report.count(sent.moved, sent.new)
