"""Trials of any object store."""

import secrets
from collections.abc import Callable, Iterator
from io import BytesIO

from onnxreg.registry.conformance.trial import InapplicableError, Trial
from onnxreg.registry.store import probes
from onnxreg.registry.store.object_store import ObjectStore

ROUNDS = 8
"""Repetitions of a trial."""
DELETED_OBJECTS = 20
"""Objects of a trial that deletes several."""
LARGE_OBJECT_BYTES = 5 * 2**20
"""Size of an object that is fetched in more than one range."""


def object_trials(store: ObjectStore, shared: bool = True) -> list[Trial]:
    """The trials of a store for many writers (`shared`) or for one at a time."""

    def raced(probe: Callable[[probes.Swapper, str], Iterator[str]], key: str) -> Iterator[str]:
        if not shared:
            raise InapplicableError("one writer at a time is what this kind of place allows")
        yield from probe(store, key)

    return [
        Trial("create-only", "an object that is there is not created again", lambda: _create_only(store)),
        Trial("compare-and-swap", "only the bytes that were read are replaced", lambda: _swap(store)),
        Trial(
            "create-only, raced",
            f"of {probes.RACERS} writers that create at once, one wins",
            lambda: raced(probes.race_create, "race-create"),
        ),
        Trial(
            "compare-and-swap, raced",
            f"of {probes.RACERS} writers that swap at once, one wins",
            lambda: raced(_race_swap, "race-swap"),
        ),
        Trial("read-after-write", "what was written is read at once", lambda: _read_after_write(store)),
        Trial("list-after-write", "what was written is listed at once", lambda: _list_after_write(store)),
        Trial("large object", "an object of 5 MiB comes back in ranges", lambda: _large(store)),
        Trial("delete", "what was deleted is gone at once, and may be created again", lambda: _delete(store)),
    ]


def _create_only(store: ObjectStore) -> Iterator[str]:
    yield from probes.probe_create(store, "create")


def _swap(store: ObjectStore) -> Iterator[str]:
    store.create("swap", BytesIO(b"first"))
    current = store.get("swap")
    yield from probes.probe_exchange(store, "swap", current[1] if current else None)


def _race_swap(store: probes.Swapper, key: str) -> Iterator[str]:
    store.create(key, BytesIO(b"first"))
    yield from probes.race_swap(store, key)


def _read_after_write(store: ObjectStore) -> Iterator[str]:
    for number in range(ROUNDS):
        key, data = f"read/{number}", secrets.token_bytes(100)
        if store.get(key) is not None or store.has([key]):
            yield "an object is read that was never written"
        store.create(key, BytesIO(data))
        current = store.get(key)
        if current is None or current[0] != data or not store.has([key]):
            yield "an object that was just created is not read"
        elif store.swap(key, data[::-1], current[1]) and (store.get(key) or (b"",))[0] != data[::-1]:
            yield "the old bytes of an object that was just replaced are read"


def _list_after_write(store: ObjectStore) -> Iterator[str]:
    for number in range(ROUNDS):
        key = f"list/{number}"
        store.create(key, BytesIO(b"listed"))
        if (key, 6) not in set(store.list("list/")):
            yield "an object that was just created is not listed"
        store.delete([key])
        if key in {listed_key for listed_key, _ in store.list("list/")}:
            yield "an object that was just deleted is listed"


def _large(store: ObjectStore) -> Iterator[str]:
    data = secrets.token_bytes(LARGE_OBJECT_BYTES)
    store.create("large", BytesIO(data))
    stream = store.open("large")
    if stream is None:
        yield "it is not there"
        return
    with stream:
        if stream.read() != data:
            yield "it has other bytes than were written"


def _delete(store: ObjectStore) -> Iterator[str]:
    keys = [f"delete/{number}" for number in range(DELETED_OBJECTS)]
    for key in keys:
        store.create(key, BytesIO(b"deleted"))
    store.delete([keys[0]])
    if store.get(keys[0]) is not None:
        yield "an object that was deleted is still there"
    store.delete(keys)
    if store.has(keys):
        yield "of objects that were deleted together, some are still there"
    if not store.create(keys[0], BytesIO(b"again")):
        yield "an object that was deleted cannot be created again"
