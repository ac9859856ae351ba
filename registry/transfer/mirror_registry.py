"""Mirror a whole registry: as a verbatim copy with its id, or version by version into a registry with its own
id.

A verbatim mirror takes every line as it is and every blob that the source refers to; its log is always a
prefix of the source's, and it never creates an event. Between different ids, `plan.missing_lines` decides for
every version.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from onnxreg.registry.gates.policy_log import copy_policies
from onnxreg.registry.log import lookup
from onnxreg.registry.log.collect import CollectResult, collect
from onnxreg.registry.log.commit import load, read_ledger
from onnxreg.registry.log.contents import present_versions
from onnxreg.registry.log.ledger import Ledger, mirror_error
from onnxreg.registry.read.remotes import Remotes
from onnxreg.registry.store.layout import CATALOG, index_path
from onnxreg.registry.store.object_store import ListingStore, ObjectRegistry
from onnxreg.registry.store.protocol import (
    IndexFile,
    IndexLister,
    LocalStore,
    PathReader,
    PathStore,
    RegistryReader,
    RegistryStore,
    carried_by,
    innermost,
)
from onnxreg.registry.transfer.copy import SkippedVersion, TransferResult, copy, skip_on_error
from onnxreg.registry.transfer.exchange import record_pushes, send
from onnxreg.registry.transfer.plan import TransferRequest, missing_lines
from onnxreg.registry.trust.checked_reader import load_trust
from onnxreg.registry.trust.requirements import check_copied, enforce_policies
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import (
    Advice,
    ConflictError,
    HostError,
    InputError,
    RemoteError,
)
from onnxreg.schema.core.progress import SILENT, Progress
from onnxreg.schema.core.ref import POLICY_LOG, Version
from onnxreg.schema.inputs.trust_file import Trust
from onnxreg.schema.log.events import Drop, Expire, Purge
from onnxreg.schema.log.state import VersionEntry

UNFINISHED = "unfinished"
"""The file in `local/` of a directory that marks a mirror as not complete."""


@dataclass
class MirrorResult:
    """Outcome of mirroring: models read, versions new at the destination, blobs and bytes moved, and blobs deleted."""

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

    def add(self, result: TransferResult) -> None:
        """Add the outcome for one model."""
        self.versions += result.new
        self.events += result.events
        self.blobs += result.blobs
        self.size += result.size
        self.skipped += result.skipped


def mirror(
    source: RegistryStore,
    destination: RegistryStore,
    channels: bool = False,
    progress: Progress = SILENT,
    actor: str | None = None,
) -> MirrorResult:
    """Copy everything from one registry to another; versions and blobs that are there already are not sent
    again.

    ForkError, before anything is written, if both have one id and a log has forked. A version or model that
    cannot be copied is listed, and the others go on. `channels` sets the destination's channels to those of
    the source, by events of its own; a verbatim mirror has them anyway.
    """
    report = MirrorResult(source.url, destination.url)
    with _unfinished(destination):
        if source.registry_id == destination.registry_id:
            _verbatim(source, destination, report, progress)
        else:
            if destination.is_mirror:
                raise mirror_error(destination.registry_id)
            _by_version(source, destination, report, progress, channels, actor)
    return report


@contextmanager
def _unfinished(destination: RegistryStore) -> Iterator[None]:
    """If a registry or this machine fails, add to the hint that the copy is not complete, and how to finish
    it.
    """
    try:
        yield
    except (HostError, RemoteError) as error:
        error.advice = Advice("finish-mirroring", mirror=destination.url, first=error.advice)
        raise


def open_both(
    remotes: Remotes, source: str, destination: str, new_id: bool = False
) -> tuple[RegistryStore, RegistryStore]:
    """Open two registries, each a name, URL or path; create the destination if it does not exist.

    It becomes a mirror, or with `new_id` a registry of its own. InputError if both are the same registry.
    """
    if remotes.url_of(source) == remotes.url_of(destination):
        raise InputError("source and destination are the same registry", "name another place")
    source_store = remotes.open(source)
    _ = list(source_store.names())  # fail before anything is created at the destination
    destination_store = remotes.open(
        destination, create=True, mirror_of=None if new_id else source_store.registry_id
    )
    if new_id and destination_store.registry_id == source_store.registry_id:
        raise InputError(
            f"{destination_store.url} has the id of {source_store.url}",
            Advice("omit-new-id"),
        )
    return source_store, destination_store


def _verbatim(
    source: RegistryStore,
    destination: RegistryStore,
    report: MirrorResult,
    progress: Progress,
) -> None:
    trust = load_trust()
    _check_policies(source, trust)
    catalog = _catalog(source)
    copy_policies(source, destination)
    requests: list[tuple[TransferRequest, Ledger | None]] = []
    frees_blobs = False
    tombstones: set[Digest] = set()
    copies = _Copies(destination)
    for name in list(source.names()):
        report.models += 1
        with skip_on_error(name, report.skipped):
            index = source.read_index(name)
            if index is None:
                raise lookup.unknown_model(name, source)
            tombstones.update(lookup.state_of(source, name, index).tombstones)
            ledgers = _ledgers_behind(source, index, copies, name, trust)
            if ledgers is not None:
                requests.append(_request(ledgers[0], trust))
                frees_blobs = frees_blobs or _frees_blobs(*ledgers)
    if requests:
        begin(destination, source.url)
    target = copies.target([request.name for request, _ in requests])
    for request, checked in requests:
        with skip_on_error(request.name, report.skipped):
            report.add(copy(source, target, request, progress, source_ledger=checked))
    if catalog is not None and not report.skipped and isinstance(files := innermost(destination), PathStore):
        files.write_files({CATALOG: catalog})
    if not report.skipped:
        end(destination)
    if frees_blobs or destination.has(tombstones):
        report.freed = _clear(destination, None if destination.is_mirror else tombstones)


def _catalog(source: RegistryReader) -> bytes | None:
    """Read the published catalog: before the models, so that the copy has every version that it names."""
    files = innermost(source)
    stored = files.read_file(CATALOG) if isinstance(files, PathReader) else None
    return None if stored is None else stored[0]


def _check_policies(source: RegistryReader, trust: Trust) -> None:
    """IntegrityError if the log of policies is not signed as the trust file demands."""
    index = source.read_index(POLICY_LOG) if trust.required(source.registry_id, POLICY_LOG) else None
    if index is not None:
        enforce_policies(trust, source.registry_id, index)


class _Copies:
    """The models of a destination, listed once: most are equal, or absent, without a request for each."""

    def __init__(self, destination: RegistryStore) -> None:
        self.destination = destination

    @cached_property
    def _tokens(self) -> dict[str, str] | None:
        return self.destination.index_tokens() if isinstance(self.destination, IndexLister) else None

    def read(self, name: str, index: IndexFile) -> IndexFile | None:
        """The index file of a model, None if it is absent; `index` is that of the source."""
        token = "" if self._tokens is None else self._tokens.get(name)
        if token is None:
            return None
        if isinstance(self.destination, IndexLister) and self.destination.is_token_of(token, index.data):
            return index
        return self.destination.read_index(name)

    def target(self, names: Collection[str]) -> RegistryStore:
        """The destination, which is asked for no model that is absent.

        Nor for absent blobs, if it lacks more of the models `names` than it has models: then a listing of all blobs
        takes few requests.
        """
        if not isinstance(self.destination, ObjectRegistry) or self._tokens is None:
            return self.destination
        store, prefixes = self.destination.store, ["index/"]
        present = set(map(index_path, self._tokens))
        if len(set(names) - self._tokens.keys()) > len(self._tokens):
            prefixes.append("blobs/")
            present.update(key for key, _ in store.list("blobs/"))
        return self.destination.through(ListingStore(store, prefixes, present))


def _ledgers_behind(
    source: RegistryReader, index: IndexFile, copies: _Copies, name: str, trust: Trust
) -> tuple[Ledger, Ledger] | None:
    """The ledgers of a model whose log lacks lines at the destination; None if the copy is complete or ahead.

    ForkError if neither log is a prefix of the other; IntegrityError as `check_copied`.
    """
    destination_index = copies.read(name, index)
    if destination_index and index.data == destination_index.data:
        return None
    source_ledger = load(source, name, first=index)[0]
    if destination_index is None:
        destination_ledger = read_ledger(copies.destination, name, None, source)
    else:
        destination_ledger = load(copies.destination, name, source, first=destination_index)[0]
    if not missing_lines(source_ledger, destination_ledger, ()):
        return None
    check_copied(source_ledger, trust)
    return source_ledger, destination_ledger


def _request(ledger: Ledger, trust: Trust) -> tuple[TransferRequest, Ledger | None]:
    """The request for all versions of a model. If the trust file accepted the ledger, only that one may be copied."""
    versions = [version for version, _ in present_versions(ledger)]
    checked = ledger if trust.concerns(ledger.registry, ledger.name) else None
    return TransferRequest(ledger.name, versions), checked


def _frees_blobs(source: Ledger, destination: Ledger) -> bool:
    """Check if the lines that the destination lacks give up files."""
    lines = missing_lines(source, destination, ())
    return any(isinstance(line.event, Expire | Purge | Drop) for line in lines) or any(
        _holds_less(source.entries[version], destination.entries.get(version))
        for version, _ in present_versions(source)
    )


def _holds_less(source: VersionEntry, destination: VersionEntry | None) -> bool:
    """Check if the copy holds artifacts of a version that the source no longer holds."""
    if source.held is None or destination is None or destination.gone is not None:
        return False
    return destination.held is None or not set(destination.held) <= set(source.held)


def _clear(mirror: RegistryStore, only: Collection[Digest] | None) -> CollectResult:
    """Delete the blobs that were given up. Waits for another mirroring, since no event can make that one
    start over.
    """
    try:
        return collect(mirror, only)
    except ConflictError as error:
        raise ConflictError(
            f"another mirroring into {mirror.url} did not end: what was given up is not deleted yet",
            Advice("mirror-again-later"),
        ) from error


def _by_version(
    source: RegistryReader,
    destination: RegistryStore,
    report: MirrorResult,
    progress: Progress,
    channels: bool,
    actor: str | None,
) -> None:
    def remember(ledger: Ledger, versions: Collection[Version]) -> None:
        """Record that another registry knows these versions, so that `reg drop` refuses. A read-only source
        never drops.
        """
        if isinstance(store := innermost(source), LocalStore):
            with suppress(HostError):
                record_pushes(store, ledger, versions, destination.registry_id)

    carried, trust = carried_by(innermost(source)), load_trust()

    def choose(ledger: Ledger) -> TransferRequest:
        check_copied(ledger, trust)
        versions = ledger.entries if carried is None else sorted(carried.get(ledger.name, ()))
        tags = sorted(ledger.channels) if channels else ()
        return TransferRequest(ledger.name, versions, channels=tags, heal=False, actor=actor)

    names = list(source.names())
    target = _Copies(destination).target(names)
    for name in names:
        report.models += 1
        report.add(send(source, target, name, choose, remember, progress))


def begin(destination: RegistryStore, source: str) -> None:
    """Mark a mirror as not complete, from before the first model until after the last."""
    if isinstance(destination, LocalStore):
        destination.write_local(UNFINISHED, source.encode())


def end(destination: RegistryStore) -> None:
    """Remove the mark."""
    if isinstance(destination, LocalStore) and destination.read_local(UNFINISHED) is not None:
        destination.remove_local(UNFINISHED)


def unfinished_warning(reader: RegistryReader) -> Advice | None:
    """The warning for readers of a mirror that may lack models, or None."""
    directory = innermost(reader)
    if not isinstance(directory, LocalStore) or not directory.is_mirror:
        return None
    source = directory.read_local(UNFINISHED)
    if source is None:
        return None
    return Advice("mirror-lacks-models", source=source.decode(errors="replace"), mirror=directory.url)
