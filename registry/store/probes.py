"""Probes of compare-and-swap: try on a scratch object if a store keeps the promises that a registry needs.

Each probe yields the faults in words; nothing if the promise is kept.
"""

import secrets
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import BinaryIO, Protocol

RACERS, ROUNDS = 8, 8


class Swapper(Protocol):
    """The part of `ObjectStore` that compare-and-swap needs."""

    def get(self, key: str) -> tuple[bytes, str] | None: ...

    def create(self, key: str, source: BinaryIO) -> bool: ...

    def swap(self, key: str, data: bytes, expected: str | None) -> bool: ...

    def delete(self, keys: Iterable[str]) -> None: ...


def probe_swap(store: Swapper, key: str) -> Iterator[str]:
    """Probe create-only writes and compare-and-swap, alone and by eight at once. The key is absent before and after."""
    try:
        yield from probe_conditions(store, key)
        yield from race_create(store, key)
        yield from race_swap(store, key)
    finally:
        store.delete([key])
    if store.get(key) is not None:
        yield "an object that was deleted is still there"


def probe_conditions(store: Swapper, key: str) -> Iterator[str]:
    """Probe create-only writes and compare-and-swap by one writer. The key is absent before, and present afterwards."""
    token = yield from probe_create(store, key)
    yield from probe_exchange(store, key, token)


def probe_create(store: Swapper, key: str) -> Generator[str, None, str | None]:
    """Probe create-only writes. Returns the token of the object."""
    if not store.create(key, BytesIO(b"first")):
        yield "an object that is not there cannot be created"
    if store.create(key, BytesIO(b"second")) or store.swap(key, b"second", None):
        yield "an object that is there can be created again"
    first = store.get(key)
    if first is None or first[0] != b"first":
        yield "what was created is not what is read"
    return first[1] if first else None


def probe_exchange(store: Swapper, key: str, token: str | None) -> Iterator[str]:
    """Probe compare-and-swap of the object that has this token."""
    if not store.swap(key, b"third", token):
        yield "a swap with the right token is refused"
    if store.swap(key, b"fourth", token):
        yield "a swap with a stale token is done"
    stored = store.get(key)
    if stored is None or stored[0] != b"third":
        yield "what was swapped in is not what is read"


def race_create(store: Swapper, key: str) -> Iterator[str]:
    """Eight writers create it at once."""
    yield from _race(store, key, "creating", lambda: None)


def race_swap(store: Swapper, key: str) -> Iterator[str]:
    """Eight writers swap the object at once."""
    yield from _race(store, key, "swapping", lambda: (store.get(key) or (b"", ""))[1])


def _race(store: Swapper, key: str, activity: str, expected: Callable[[], str | None]) -> Iterator[str]:
    """Several writers at once, several times: exactly one wins, and its bytes are read afterwards."""
    for _ in range(ROUNDS):
        token = expected()
        if token is None:
            store.delete([key])
        tries = [secrets.token_bytes(16) for _ in range(RACERS)]
        with ThreadPoolExecutor(RACERS) as pool:
            results = list(pool.map(lambda data, token=token: store.swap(key, data, token), tries))
        won = [data for data, success in zip(tries, results, strict=True) if success]
        stored = store.get(key)
        if len(won) != 1:
            yield f"{len(won)} of {RACERS} writers {activity} at once succeeded, instead of one"
            return
        if stored is None or stored[0] != won[0]:
            yield f"of {RACERS} writers {activity} at once, another one's bytes are there than the winner's"
            return
