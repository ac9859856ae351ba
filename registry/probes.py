"""What a place must be able to do before a registry is safe there, tried out on scratch that is gone afterwards.

Each probe yields what went wrong, in words; nothing where the promise is kept.
"""

import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Protocol

from onnxreg.registry.backends.local import LocalRemote
from onnxreg.registry.backends.staging import exclusive
from onnxreg.registry.disk import Disk
from onnxreg.schema.errors import LostRaceError

RACERS, ROUNDS = 8, 8


class Swapper(Protocol):
    """The part of `ObjectStore` that compare-and-swap stands on."""

    def get(self, key: str) -> tuple[bytes, str] | None: ...

    def create(self, key: str, source: BinaryIO) -> bool: ...

    def swap(self, key: str, data: bytes, expected: str | None) -> bool: ...

    def delete(self, keys: Iterable[str]) -> None: ...


def probe_swap(store: Swapper, key: str) -> Iterator[str]:
    """Create-only writes and compare-and-swap, alone and by eight at once. The key is absent before and after."""
    try:
        yield from _alone(store, key)
        yield from _raced(store, key, "creating", lambda: None)
        yield from _raced(store, key, "swapping", lambda: (store.get(key) or (b"", ""))[1])
    finally:
        store.delete([key])
    if store.get(key) is not None:
        yield "an object that was deleted is still there"


def _alone(store: Swapper, key: str) -> Iterator[str]:
    if not store.create(key, BytesIO(b"first")):
        yield "an object that is not there cannot be created"
    if store.create(key, BytesIO(b"second")) or store.swap(key, b"second", None):
        yield "an object that is there can be created again"
    first = store.get(key)
    if first is None or first[0] != b"first":
        yield "what was created is not what is read"
    token = first[1] if first else None
    if not store.swap(key, b"third", token):
        yield "a swap with the right token is refused"
    if store.swap(key, b"fourth", token):
        yield "a swap with a stale token is done"
    found = store.get(key)
    if found is None or found[0] != b"third":
        yield "what was swapped in is not what is read"


def _raced(store: Swapper, key: str, what: str, expected: Callable[[], str | None]) -> Iterator[str]:
    """Several writers at once, several times: exactly one wins, and its bytes are what is read."""
    for _ in range(ROUNDS):
        token = expected()
        if token is None:
            store.delete([key])
        tries = [secrets.token_bytes(16) for _ in range(RACERS)]
        with ThreadPoolExecutor(RACERS) as pool:
            done = list(pool.map(lambda data, token=token: store.swap(key, data, token), tries))
        won = [data for data, success in zip(tries, done, strict=True) if success]
        found = store.get(key)
        if len(won) != 1:
            yield f"{len(won)} of {RACERS} writers {what} at once succeeded, instead of one"
            return
        if found is None or found[0] != won[0]:
            yield f"of {RACERS} writers {what} at once, another one's bytes are there than the winner's"
            return


class LocalSwapper:
    """The index files of a throwaway registry: the very code and file system that a real one's go through."""

    def __init__(self, root: Path, disk: Disk) -> None:
        self._remote = LocalRemote.create(root, disk)

    def get(self, key: str) -> tuple[bytes, str] | None:
        found = self._remote.read_index(key)
        return None if found is None else (found.data, found.token)

    def create(self, key: str, source: BinaryIO) -> bool:
        return self.swap(key, source.read(), None)

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        try:
            self._remote.swap_index(key, data, expected, self._remote.scratch)
        except LostRaceError:
            return False
        return True

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._remote.disk.unlink(self._remote.root / "index" / f"{key}.jsonl")


LOCKER = """
import sys
from filelock import FileLock, Timeout
try:
    with FileLock(sys.argv[1], timeout=0):
        print("free")
except Timeout:
    print("held")
"""


def probe_lock(directory: Path) -> Iterator[str]:
    """Whether a lock keeps another process out, and lets it in again."""
    path = directory / "probe.lock"

    def other() -> str:
        command = [sys.executable, "-c", LOCKER, str(path)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout.strip()

    with exclusive(path):
        if other() != "held":
            yield "two processes can hold the same lock"
    if other() != "free":
        yield "a lock that was given back is still held"


def probe_disk(directory: Path, disk: Disk) -> Iterator[str]:
    """Whether files can be synced and renamed over another, and directories synced."""
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
