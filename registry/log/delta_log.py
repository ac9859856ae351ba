"""The events that name the deltas of a version, and those that take deltas away with a version."""

from collections.abc import Collection, Iterable

from onnxreg.registry.log.commit import commit
from onnxreg.registry.log.contents import optional_events
from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.store.protocol import Push, RegistryStore
from onnxreg.registry.support.actor import stamp
from onnxreg.schema.core.descriptor import Descriptor
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import IntegrityError, NotFoundError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.delta.table import MAX_DELTAS, Delta, DeltaTable
from onnxreg.schema.log.events import Deltas


def publish_deltas(
    store: RegistryStore,
    push: Push,
    name: str,
    version: Version,
    deltas: Collection[Delta],
    actor: str | None,
) -> DeltaTable:
    """Offer deltas of a version beside those that it offers already; their blobs are in the push.

    A delta replaces another that makes the same file from the same files. Those that save most come first; of too many
    the last are left out.
    """
    tables: list[DeltaTable] = []

    def change(ledger: Ledger) -> Collection[Digest] | None:
        before = offered(ledger, version)
        table = _table(ledger, version, [*deltas, *before])
        tables[:] = [table]
        return None if [*table.deltas] == before else _append(ledger, table, actor)

    commit(store, push, name, change)
    return tables[0]


def withdraw_deltas(ledger: Ledger, versions: Collection[Version], actor: str | None = None) -> list[Digest]:
    """Append the events after which no delta from or to these versions is offered; returns the deltas they name.

    A delta works in both directions: with the new file it gives the old one.
    """
    blobs: list[Digest] = []
    for version, event in sorted(_current(ledger).items()):
        remaining = _remaining(ledger, version, versions)
        table = DeltaTable(ledger.name, version, event.manifest, tuple(remaining))
        if not remaining or Digest.of(table.encode()) != event.table:
            blobs += _append(ledger, table, actor)
    return blobs


def delta_blobs(ledger: Ledger, versions: Collection[Version]) -> set[Digest]:
    """The tables and deltas that any event ever named and that give a file of these versions away.

    All of a table that is lost, since nobody knows what its deltas give away; none that another version offers.
    """
    blobs: set[Digest] = set()
    for event in optional_events(ledger):
        if not isinstance(event, Deltas) or event.table is None:
            continue
        try:
            deltas = ledger.read_table(event.table).deltas
        except (IntegrityError, NotFoundError):
            deltas = ()
        if event.version in versions or not deltas:
            blobs.update(blob.digest for blob in event.blobs)
            continue
        revealing = {delta.digest for delta in deltas if delta.since in versions}
        blobs |= revealing | ({event.table} if revealing else set())
    remaining = (_remaining(ledger, version, versions) for version in _current(ledger))
    return blobs - {delta.digest for deltas in remaining for delta in deltas}


def offered(ledger: Ledger, version: Version) -> list[Delta]:
    """The deltas that a version offers; none if its table is lost: `verify` reports that."""
    table = ledger.delta_table(version)
    if table is None:
        return []
    try:
        return list(ledger.read_table(table.digest).deltas)
    except (IntegrityError, NotFoundError):
        return []


def _remaining(ledger: Ledger, version: Version, gone: Collection[Version]) -> list[Delta]:
    """The deltas that a version may still offer if others, or it itself, are gone."""
    if version in gone:
        return []
    return [delta for delta in offered(ledger, version) if delta.since not in gone]


def _table(ledger: Ledger, version: Version, deltas: Iterable[Delta]) -> DeltaTable:
    """The table of some deltas, of those alike the first; ordered by what they save."""
    entry = ledger.entries.get(version)
    if entry is None:
        raise NotFoundError(f"{ledger.name} has no version {version}")
    unique: dict[tuple[Digest, tuple[Digest, ...]], Delta] = {}
    for delta in deltas:
        unique.setdefault((delta.new, delta.old), delta)
    first = sorted(unique.values(), key=lambda delta: (delta.size, delta.digest))[:MAX_DELTAS]
    return DeltaTable(ledger.name, version, entry.manifest, tuple(first))


def _append(ledger: Ledger, table: DeltaTable, actor: str | None) -> list[Digest]:
    """Append the event of a table (an empty one: no deltas any more), with the table; returns the deltas that it names."""
    deltas = {delta.digest: delta.size for delta in table.deltas}
    data = table.encode()
    digest = ledger.attach(data) if deltas else None
    sizes = deltas if digest is None else {**deltas, digest: len(data)}
    earlier = _current(ledger).get(table.version)
    ledger.append(
        Deltas(
            **stamp(ledger.name, actor),
            version=table.version,
            manifest=table.manifest,
            table=digest,
            blobs=tuple(Descriptor(blob, sizes[blob]) for blob in sorted(sizes)),
            supersedes=() if earlier is None else (earlier.id,),
        )
    )
    return list(deltas)


def _current(ledger: Ledger) -> dict[Version, Deltas]:
    """The event that decides the deltas of each version that offers any."""
    events = {event.version: event for event in optional_events(ledger) if isinstance(event, Deltas)}
    return {version: event for version, event in events.items() if event.table is not None}
