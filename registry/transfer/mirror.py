"""Mirror a whole registry. If both registries have the same id, copy it exactly. Otherwise copy version by version."""

from typing import Any

from msgspec import Struct, field

from onnxreg.registry.gates import copy_policies, read_policies
from onnxreg.registry.log.commit import CollectResult, collect
from onnxreg.registry.log.contents import present_versions, set_pushed
from onnxreg.registry.log.log import Log, load, log_of, mirror_error, unknown_model
from onnxreg.registry.remotes import Remotes
from onnxreg.registry.store.protocol import CATALOG, RegistryReader, RegistryStore, innermost
from onnxreg.registry.transfer import exchange
from onnxreg.registry.trust.known_heads import CheckedReader, KnownHeads, load_trust
from onnxreg.registry.trust.signatures import check_copied, enforce_policies
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import ForkError, HostError, InputError, RemoteError
from onnxreg.schema.core.units import SILENT, Progress
from onnxreg.schema.log.events import GiveUp, Hold


class MirrorResult(Struct):
    """The result of `mirror`: both registries, the number of models, and what was copied, freed and skipped."""

    source: str
    destination: str
    models: int = 0
    versions: int = 0
    events: int = 0
    blobs: int = 0
    size: int = 0
    freed: CollectResult = field(default_factory=lambda: CollectResult({}, 0))
    skipped: list[exchange.SkippedVersion] = []

    def to_json(self) -> dict[str, Any]:
        keys = ("source", "destination", "models", "versions", "events", "blobs")
        freed = {"blobs": len(self.freed.freed), "bytes": self.freed.size}
        counts = {key: getattr(self, key) for key in keys} | {"bytes": self.size, "freed": freed}
        return {**counts, "skipped": [skipped.to_json() for skipped in self.skipped]}

    def add(self, result: exchange.TransferResult) -> None:
        self.versions += result.new
        self.events += result.events
        self.blobs += result.blobs
        self.size += result.size
        self.skipped += result.skipped


def open_both(
    remotes: Remotes, source: str, destination: str, new_id: bool = False
) -> tuple[RegistryStore, RegistryStore]:
    """Open the source and the destination of a mirror.

    A missing destination is created: as a mirror or, if `new_id` is set, as a registry with an id of its own. Raises
    InputError if source and destination are the same registry.
    """
    if remotes.url_of(source) == remotes.url_of(destination):
        raise InputError("source and destination are the same registry", "name another place")
    source_store = remotes.open(source)
    _ = list(source_store.names())  # fails before the destination is created
    mirror_of = None if new_id else source_store.registry_id
    destination_store = remotes.open(destination, create=True, mirror_of=mirror_of)
    if new_id and destination_store.registry_id == source_store.registry_id:
        problem = f"{destination_store.url} has the id of {source_store.url}"
        raise InputError(problem, "leave --new-id away, or name another place")
    return source_store, destination_store


def mirror(
    source: RegistryStore,
    destination: RegistryStore,
    channels: bool = False,
    progress: Progress = SILENT,
    actor: str | None = None,
    known_heads: KnownHeads | None = None,
) -> MirrorResult:
    """Copy from the source what the destination lacks. `result.skipped` lists what cannot be copied.

    The source is compared with its known heads. If source and destination have the same id, make an exact copy. If a
    log has forked, raise ForkError before any write. If the ids differ, channels move only if `channels` is set, and
    the destination is compared with its known heads too.
    """
    report, heads = MirrorResult(source.url, destination.url), known_heads or KnownHeads()
    reader = CheckedReader(source, heads)
    try:
        for name in sorted(set(heads.models(source.registry_id)).difference(source.names())):
            reader.read_index(name)  # raises if the user saw it there
        if source.registry_id == destination.registry_id:
            _copy_exactly(reader, destination, report, progress, heads)
        elif destination.is_mirror:
            raise mirror_error(destination.registry_id)
        else:
            _by_version(reader, destination, report, progress, channels, actor, heads)
    except (HostError, RemoteError) as error:
        again = f"{destination.url} has only what arrived: run `reg mirror` again, it goes on there"
        error.hint = "; ".join(filter(None, (error.hint, again)))
        raise
    return report


def _copy_exactly(
    source: RegistryReader,
    destination: RegistryStore,
    report: MirrorResult,
    progress: Progress,
    heads: KnownHeads,
) -> None:
    """Copy each model whose log at the destination lacks lines. Then delete the blobs that no log needs."""
    trust = load_trust()
    policies = read_policies(source)
    enforce_policies(trust, policies)
    # The catalog is read before the models, so that the copy has every version in the catalog.
    catalog = innermost(source).read_file(CATALOG)
    behind: dict[str, Log | None] = {}
    frees_blobs = False
    tombstones: set[Digest] = set()
    present = set(destination.names())
    for name in list(source.names()):
        report.models += 1
        with exchange.list_errors(name, report.skipped):
            index = source.read_index(name)
            if index is None:
                raise unknown_model(name, source)
            tombstones.update(log_of(source, name, index).state.tombstones)
            own_index = destination.read_index(name) if name in present else None
            if own_index is not None and own_index.data == index.data:
                continue
            log = load(source, name, index=index)
            own = log_of(destination, name, own_index, source, new=True).check()
            if lines := exchange.missing_lines(exchange.ExchangeRequest(name, ()), log, own):
                check_copied(log, trust)
                # Keep a log that the trust file accepted, to copy exactly this log. Read others again, to save memory.
                behind[name] = log if trust.concerns(log.registry, name) else None
                frees_blobs |= any(isinstance(line.event, GiveUp | Hold) for line in lines)
    if forks := [item.error for item in report.skipped if isinstance(item.error, ForkError)]:
        raise forks[0]
    copy_policies(policies, destination)
    for name, accepted in behind.items():
        with exchange.list_errors(name, report.skipped):
            log = accepted or load(source, name)
            request = exchange.ExchangeRequest(name, [version for version, _ in present_versions(log)])
            set_pushed(source, log, request.versions)
            result = exchange.exchange(innermost(source), destination, request, progress, log=log)
            report.add(result)
            heads.remember(destination, name, result.log.index if result.log else None)
    if not report.skipped and catalog is not None:
        own_catalog = destination.read_file(CATALOG)
        if own_catalog is None or own_catalog.data != catalog.data:
            destination.swap_file(CATALOG, catalog.data, own_catalog.token if own_catalog else None)
    if frees_blobs or destination.has(tombstones):
        report.freed = collect(destination, None if destination.is_mirror else tombstones)


def _by_version(
    source: RegistryReader,
    destination: RegistryStore,
    report: MirrorResult,
    progress: Progress,
    channels: bool,
    actor: str | None,
    heads: KnownHeads,
) -> None:
    carried, trust = innermost(source).carried, load_trust()

    def choose(log: Log) -> exchange.ExchangeRequest:
        check_copied(log, trust)
        versions = log.versions if carried is None else sorted(carried.get(log.name, ()))
        tags = sorted(log.channels) if channels else ()
        return exchange.ExchangeRequest(log.name, versions, channels=tags, heal=False, actor=actor)

    for name in list(source.names()):
        report.models += 1
        report.add(exchange.exchange_possible(source, destination, name, choose, progress, heads))
