"""Promises of a place that a registry relies on, and the trials that prove them.

`require_cas` tries the conditional writes of an object store before the first write. `reg doctor` also tries writers at
once, and for a directory its disk and its locks. Each trial yields the faults in words; nothing if the promise is kept.
"""

import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Protocol

from onnxreg.registry.store.directory.scratch import exclusive
from onnxreg.registry.store.layout import index_path
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.registry.support.disk import Disk
from onnxreg.schema.core.errors import LostRaceError, RegError

RACERS, ROUNDS = 8, 8
"""Writers at once, and how often they race."""


class Swapper(Protocol):
    """The methods of an `ObjectStore` that compare-and-swap needs."""

    def get(self, key: str) -> tuple[bytes, str] | None: ...

    def create(self, key: str, source: BinaryIO) -> bool: ...

    def swap(self, key: str, data: bytes, expected: str | None) -> bool: ...

    def delete(self, keys: Iterable[str]) -> None: ...


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


Trial = Callable[[Swapper, str], Iterable[str]]


def faults(store: Swapper, key: str, raced: bool = False) -> list[str]:
    """Try conditional writes on one object, which is absent before and after; `raced`: by several writers at once too."""
    trials: list[Trial] = [create_only, compare_and_swap]
    if raced:
        trials += [race_create, race_swap, gone]
    try:
        return [message for trial in trials for message in trial(store, key)]
    finally:
        error = sys.exc_info()[1]
        with suppress(*([RegError] if error else [])):
            store.delete([key])


def create_only(store: Swapper, key: str) -> Iterator[str]:
    """An object that exists is not created again."""
    if not store.create(key, BytesIO(b"first")):
        yield "an object that is not there cannot be created"
    if store.create(key, BytesIO(b"second")) or store.swap(key, b"second", None):
        yield "an object that is there can be created again"
    if _content(store, key) != b"first":
        yield "what was created is not what is read"


def compare_and_swap(store: Swapper, key: str) -> Iterator[str]:
    """Only the bytes that were read are replaced."""
    token = _token(store, key)
    if not store.swap(key, b"third", token):
        yield "a swap with the right token is refused"
    if store.swap(key, b"fourth", token):
        yield "a swap with a stale token is done"
    if _content(store, key) != b"third":
        yield "what was swapped in is not what is read"


def race_create(store: Swapper, key: str) -> Iterator[str]:
    """Of several writers that create at once, one wins."""
    yield from _race(store, key, "creating", lambda: store.delete([key]))


def race_swap(store: Swapper, key: str) -> Iterator[str]:
    """Of several writers that swap at once, one wins."""
    yield from _race(store, key, "swapping", lambda: _token(store, key))


def _race(store: Swapper, key: str, activity: str, prepare: Callable[[], str | None]) -> Iterator[str]:
    """Several writers at once, several times: exactly one wins, and its bytes are read afterwards."""
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


def gone(store: Swapper, key: str) -> Iterator[str]:
    """A deleted object is not read."""
    store.delete([key])
    if store.get(key) is not None:
        yield "an object that was deleted is still there"


def _content(store: Swapper, key: str) -> bytes | None:
    stored = store.get(key)
    return stored[0] if stored else None


def _token(store: Swapper, key: str) -> str | None:
    """The token of the object, which is created if it is absent."""
    stored = store.get(key)
    if stored is None and store.create(key, BytesIO(b"first")):
        stored = store.get(key)
    return stored[1] if stored else None


def disk_faults(directory: Path, disk: Disk) -> Iterator[str]:
    """Try to sync files, and to rename them over others, in an empty directory."""
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


def lock_faults(directory: Path) -> Iterator[str]:
    """Try whether a lock in this directory keeps other processes out."""
    path = directory / "probe.lock"

    def other() -> str:
        command = [sys.executable, "-c", _LOCKER, str(path)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout.strip()

    with exclusive(path):
        if other() != "held":
            yield "two processes can hold the same lock"
    if other() != "free":
        yield "a lock that was given back is still held"
