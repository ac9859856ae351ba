"""The events that name the deltas of a version, and those that take deltas away with a version."""

from collections.abc import Callable, Collection, Iterable

from onnxreg.registry.log.commit import commit
from onnxreg.registry.log.log import Log
from onnxreg.registry.store.protocol import Push, RegistryStore
from onnxreg.registry.support.actor import stamp
from onnxreg.schema.core.bounds import MAX_DELTAS
from onnxreg.schema.core.digest import Descriptor, Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, NotFoundError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.delta.delta_format import Delta, decode_table, encode_table
from onnxreg.schema.log.events import Deltas


def read_deltas(fetch: Callable[[Digest], bytes], table: Digest | None) -> list[Delta]:
    """The deltas of a table; none if it is lost or cannot be read, since they are hints: `verify` reports it."""
    try:
        return [] if table is None else list(decode_table(fetch(table)))
    except (InputError, IntegrityError, NotFoundError):
        return []


def publish_deltas(
    store: RegistryStore,
    push: Push,
    name: str,
    version: Version,
    deltas: Collection[Delta],
    actor: str | None,
) -> list[Delta]:
    """Offer deltas of a version beside those that it offers already; their blobs are in the push.

    A delta replaces another that makes the same file from the same files. The smallest come first; of too many the
    last are left out. Returns what the version offers then.
    """
    table: list[Delta] = []

    def change(log: Log) -> Collection[Digest] | None:
        if version not in log.versions:
            raise NotFoundError(f"{name} has no version {version}")
        before = read_deltas(log.fetch, log.versions[version].deltas)
        unique = {(delta.new, delta.old): delta for delta in [*before, *deltas]}
        table[:] = sorted(unique.values(), key=lambda delta: (delta.size, delta.digest))[:MAX_DELTAS]
        return None if table == before else _append(log, version, table, actor)

    commit(store, push, name, change)
    return table


def withdraw_deltas(log: Log, gone: Collection[Version], actor: str | None = None) -> list[Digest]:
    """Append the events after which no delta from or to these versions is offered; returns the deltas they name.

    A delta works in both directions: with the new file it gives the old one.
    """
    blobs: list[Digest] = []
    for version, event in sorted(_current(log).items()):
        remaining = _remaining(log, event, gone)
        if not remaining or Digest.of(encode_table(remaining)) != event.table:
            blobs += _append(log, version, remaining, actor)
    return blobs


def delta_blobs(log: Log, versions: Collection[Version]) -> set[Digest]:
    """The tables and deltas that any event ever named and that give a file of these versions away.

    All of a table that is lost, since nobody knows what its deltas give away; none that another version offers.
    """
    blobs: set[Digest] = set()
    for _, event in log.events(Deltas):
        deltas = read_deltas(log.fetch, event.table)
        if event.table is not None and (event.version in versions or not deltas):
            blobs.update(blob.digest for blob in event.blobs)
        elif event.table is not None and any(delta.since in versions for delta in deltas):
            blobs |= {event.table, *(delta.digest for delta in deltas if delta.since in versions)}
    others = (delta for event in _current(log).values() for delta in _remaining(log, event, versions))
    return blobs - {delta.digest for delta in others}


def _current(log: Log) -> dict[Version, Deltas]:
    """The event that decides the deltas of each version that offers any."""
    events = {event.version: event for _, event in log.events(Deltas)}
    return {version: event for version, event in events.items() if event.table is not None}


def _remaining(log: Log, event: Deltas, gone: Collection[Version]) -> list[Delta]:
    """The deltas of an event that may still be offered if these versions are gone."""
    deltas = () if event.version in gone else read_deltas(log.fetch, event.table)
    return [delta for delta in deltas if delta.since not in gone]


def _append(log: Log, version: Version, deltas: Iterable[Delta], actor: str | None) -> list[Digest]:
    """Append the event of a table (no deltas: none any more), with the table; returns the deltas that it names."""
    sizes = {delta.digest: delta.size for delta in deltas}
    data, named, earlier = encode_table(deltas), list(sizes), _current(log).get(version)
    table = log.attach(data) if named else None
    about = log.versions.get(version) or earlier
    assert about is not None
    sizes |= {} if table is None else {table: len(data)}
    event = Deltas(
        **stamp(log.name, actor),
        version=version,
        manifest=about.manifest,
        table=table,
        blobs=tuple(Descriptor(blob, sizes[blob]) for blob in sorted(sizes)),
        supersedes=() if earlier is None else (earlier.id,),
    )
    log.append(event)
    return named
