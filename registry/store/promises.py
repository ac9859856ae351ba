"""The promises that a registry relies on, in one table: what is promised, how it is tried, and who tries it.

| who | when |
|---|---|
| `first write` | before a command writes to an object store for the first time: `require_cas.py` |
| `doctor` | `reg doctor`, on scratch of the registry: `maintain/doctor.py` |
| `live` | `reg doctor --live`, on a place of its own: `conformance/`, with more promises of S3 and the Hub |
| `contract` | the test suite of every store: `contract.py` |

Each try yields the faults in words; nothing if the promise is kept.
"""

import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Generic, Literal, NamedTuple, Protocol, TypeVar

from onnxreg.registry.store.directory.scratch import exclusive
from onnxreg.registry.store.layout import index_path
from onnxreg.registry.store.object_store import ObjectStore
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.registry.support.disk import Disk
from onnxreg.schema.core.errors import LostRaceError, RegError

Runner = Literal["first write", "doctor", "live", "contract"]
Subject = TypeVar("Subject")

RACERS, ROUNDS = 8, 8
DELETED_OBJECTS = 20
"""Objects of a trial that deletes several."""
LARGE_OBJECT_BYTES = 5 * 2**20
"""Size of an object that is fetched in more than one range."""


@dataclass(frozen=True)
class Promise(Generic[Subject]):
    """A promise and its test. `writers` try it at once."""

    name: str
    sentence: str
    attempt: Callable[[Subject], Iterable[str]]
    runners: tuple[Runner, ...]
    writers: int = 1


class Swapper(Protocol):
    """The part of `ObjectStore` that compare-and-swap needs."""

    def get(self, key: str) -> tuple[bytes, str] | None: ...

    def create(self, key: str, source: BinaryIO) -> bool: ...

    def swap(self, key: str, data: bytes, expected: str | None) -> bool: ...

    def delete(self, keys: Iterable[str]) -> None: ...


class SwapScratch(NamedTuple):
    """An object to create and swap, which is absent before."""

    store: Swapper
    key: str


class ObjectScratch(NamedTuple):
    """A key of which, and of the keys below it, nobody else knows."""

    store: ObjectStore
    key: str


class DirectoryScratch(NamedTuple):
    """A new directory on the file system of a registry."""

    path: Path
    disk: Disk


class IndexSwapper:
    """The index files of any registry as objects."""

    def __init__(self, remote: RegistryStore) -> None:
        self._remote = remote

    def get(self, key: str) -> tuple[bytes, str] | None:
        index = self._remote.read_index(key)
        return None if index is None else (index.data, index.token)

    def create(self, key: str, source: BinaryIO) -> bool:
        return self.swap(key, source.read(), None)

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        try:
            with self._remote.push() as push:
                push.publish(key, data, expected)
        except LostRaceError:
            return False
        return True

    def delete(self, keys: Iterable[str]) -> None:
        self._remote.discard(map(index_path, keys))


def faults(runner: Runner, store: Swapper, key: str) -> list[str]:
    """Try the promises of conditional writes on one object, which is absent before and after."""
    messages: list[str] = []
    scratch = SwapScratch(store, key)
    try:
        for promise in SWAPS:
            if runner in promise.runners:
                messages += promise.attempt(scratch)
    except RegError:
        with suppress(RegError):
            store.delete([key])
        raise
    store.delete([key])
    return messages


def _create_only(scratch: SwapScratch) -> Iterator[str]:
    store, key = scratch
    if not store.create(key, BytesIO(b"first")):
        yield "an object that is not there cannot be created"
    if store.create(key, BytesIO(b"second")) or store.swap(key, b"second", None):
        yield "an object that is there can be created again"
    if _content(store, key) != b"first":
        yield "what was created is not what is read"


def _compare_and_swap(scratch: SwapScratch) -> Iterator[str]:
    store, key = scratch
    token = _token(scratch)
    if not store.swap(key, b"third", token):
        yield "a swap with the right token is refused"
    if store.swap(key, b"fourth", token):
        yield "a swap with a stale token is done"
    if _content(store, key) != b"third":
        yield "what was swapped in is not what is read"


def _race_create(scratch: SwapScratch) -> Iterator[str]:
    def remove() -> None:
        scratch.store.delete([scratch.key])

    yield from _race(scratch, "creating", remove)


def _race_swap(scratch: SwapScratch) -> Iterator[str]:
    yield from _race(scratch, "swapping", lambda: _token(scratch))


def _race(scratch: SwapScratch, activity: str, prepare: Callable[[], str | None]) -> Iterator[str]:
    """Several writers at once, several times: exactly one wins, and its bytes are read afterwards."""
    store, key = scratch
    with ThreadPoolExecutor(RACERS) as pool:
        for _ in range(ROUNDS):
            token = prepare()
            tries = [secrets.token_hex(16).encode() for _ in range(RACERS)]
            results = list(pool.map(lambda data, token=token: store.swap(key, data, token), tries))
            winners = [data for data, success in zip(tries, results, strict=True) if success]
            if len(winners) != 1:
                yield f"{len(winners)} of {RACERS} writers {activity} at once succeeded, instead of one"
                return
            if _content(store, key) != winners[0]:
                yield f"of {RACERS} writers {activity} at once, another one's bytes are there than the winner's"
                return


def _gone(scratch: SwapScratch) -> Iterator[str]:
    scratch.store.delete([scratch.key])
    if scratch.store.get(scratch.key) is not None:
        yield "an object that was deleted is still there"


def _content(store: Swapper, key: str) -> bytes | None:
    stored = store.get(key)
    return stored[0] if stored else None


def _token(scratch: SwapScratch) -> str | None:
    """The token of the object, which is created if it is absent."""
    store, key = scratch
    stored = store.get(key)
    if stored is None and store.create(key, BytesIO(b"first")):
        stored = store.get(key)
    return stored[1] if stored else None


def _read_after_write(scratch: ObjectScratch) -> Iterator[str]:
    store = scratch.store
    for number in range(ROUNDS):
        key, data = f"{scratch.key}/{number}", secrets.token_bytes(100)
        if store.get(key) is not None or store.has([key]):
            yield "an object is read that was never written"
        store.create(key, BytesIO(data))
        current = store.get(key)
        if current is None or current[0] != data or not store.has([key]):
            yield "an object that was just created is not read"
        elif store.swap(key, data[::-1], current[1]) and (store.get(key) or (b"",))[0] != data[::-1]:
            yield "the old bytes of an object that was just replaced are read"


def _list_after_write(scratch: ObjectScratch) -> Iterator[str]:
    store, below = scratch.store, f"{scratch.key}/"
    for number in range(ROUNDS):
        key = f"{below}{number}"
        store.create(key, BytesIO(b"listed"))
        if (key, 6) not in set(store.list(below)):
            yield "an object that was just created is not listed"
        store.delete([key])
        if key in {listed_key for listed_key, _ in store.list(below)}:
            yield "an object that was just deleted is listed"


def _large(scratch: ObjectScratch) -> Iterator[str]:
    store, key = scratch
    data = secrets.token_bytes(LARGE_OBJECT_BYTES)
    store.create(key, BytesIO(data))
    stream = store.open(key)
    if stream is None:
        yield "it is not there"
        return
    with stream:
        if stream.read() != data:
            yield "it has other bytes than were written"


def _delete(scratch: ObjectScratch) -> Iterator[str]:
    store = scratch.store
    keys = [f"{scratch.key}/{number}" for number in range(DELETED_OBJECTS)]
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


def _sync_and_rename(scratch: DirectoryScratch) -> Iterator[str]:
    directory, disk = scratch
    target = directory / "deep" / "target"
    try:
        for data in (b"old", b"new"):
            temporary = directory / os.urandom(8).hex()
            with disk.create(temporary) as file:
                file.write(data)
            disk.write_all([(temporary, target)], directory)
    except OSError as error:
        yield f"syncing and renaming a file fails: {os.strerror(error.errno or 0)}"
    else:
        if target.read_bytes() != b"new" or len(list(target.parent.iterdir())) != 1:
            yield "a renamed file does not take the place of the old one"


_LOCKER = """
import sys
from filelock import FileLock, Timeout
try:
    with FileLock(sys.argv[1], timeout=0):
        print("free")
except Timeout:
    print("held")
"""


def _lock(scratch: DirectoryScratch) -> Iterator[str]:
    path = scratch.path / "probe.lock"

    def other() -> str:
        command_line = [sys.executable, "-c", _LOCKER, str(path)]
        return subprocess.run(
            command_line, capture_output=True, text=True, timeout=60, check=False
        ).stdout.strip()

    with exclusive(path):
        if other() != "held":
            yield "two processes can hold the same lock"
    if other() != "free":
        yield "a lock that was given back is still held"


SWAPS: tuple[Promise[SwapScratch], ...] = (
    Promise(
        "create-only",
        "an object that is there is not created again",
        _create_only,
        ("first write", "doctor", "live", "contract"),
    ),
    Promise(
        "compare-and-swap",
        "only the bytes that were read are replaced",
        _compare_and_swap,
        ("first write", "doctor", "live", "contract"),
    ),
    Promise(
        "create-only, raced",
        f"of {RACERS} writers that create at once, one wins",
        _race_create,
        ("doctor", "live", "contract"),
        RACERS,
    ),
    Promise(
        "compare-and-swap, raced",
        f"of {RACERS} writers that swap at once, one wins",
        _race_swap,
        ("doctor", "live", "contract"),
        RACERS,
    ),
    Promise("gone", "what was deleted is not read", _gone, ("doctor", "contract")),
)
OBJECTS: tuple[Promise[ObjectScratch], ...] = (
    Promise("read-after-write", "what was written is read at once", _read_after_write, ("live",)),
    Promise("list-after-write", "what was written is listed at once", _list_after_write, ("live",)),
    Promise("large object", "an object of 5 MiB comes back in ranges", _large, ("live",)),
    Promise("delete", "what was deleted is gone at once, and may be created again", _delete, ("live",)),
)
DIRECTORY: tuple[Promise[DirectoryScratch], ...] = (
    Promise("disk", "files are synced, and renamed over others", _sync_and_rename, ("doctor", "live")),
    Promise("locks", "a lock keeps other processes out", _lock, ("doctor", "live")),
)
