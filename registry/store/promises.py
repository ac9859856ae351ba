"""Promises of a place that a registry relies on, and the trials that prove them.

Some servers accept a condition and ignore it, and two writers would lose each other's work without a word. So the first
write to an object store tries its conditional writes (`CasGuardedStore`). `reg doctor` also lets writers race, and tries
the disk and the locks of a directory. A trial yields the faults in words; nothing if the promise is kept.
"""

import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from onnxreg.registry.store.directory.scratch import PROBE, exclusive
from onnxreg.registry.store.object_store import StoreWrapper
from onnxreg.registry.store.protocol import ObjectStore, StoredObject
from onnxreg.registry.support.disk import Disk, replace_file
from onnxreg.registry.support.environment import state_directory
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import RegError, RemoteError

RACERS, ROUNDS = 8, 8
"""Writers at once, and how often they race."""


class CasGuardedStore(StoreWrapper):
    """An `ObjectStore` around another one, which is tried before the first write.

    A success is recorded in this user's state directory, for `server`: a text that tells this place from all others. A
    record that cannot be written costs a trial more.
    """

    def __init__(self, store: ObjectStore, server: str) -> None:
        super().__init__(store)
        self._server = server
        self._is_proven = False
        self._lock = threading.Lock()

    def create(self, key: str, source: BinaryIO) -> bool:
        self._prove()
        return self.store.create(key, source)

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        self._prove()
        return self.store.swap(key, data, expected)

    def delete(self, keys: Iterable[str]) -> None:
        self._prove()
        self.store.delete(keys)

    def _prove(self) -> None:
        """RemoteError if the store ignores conditions."""
        with self._lock:
            if self._is_proven:
                return
            record = state_directory() / "proven" / Digest.of(self._server.encode()).hex[:32]
            if not record.is_file():
                faults = cas_faults(Swapper.of(self.store), probe_path())
                if faults:
                    raise RemoteError(
                        f"{self.url} cannot be written safely: {faults[0]}",
                        "two writers would overwrite each other; keep the registry where conditional writes are honoured",
                    )
                with suppress(OSError):
                    replace_file(record, b"")
            self._is_proven = True


class Swapper(NamedTuple):
    """The operations that compare-and-swap needs, of an `ObjectStore` or of the files of a registry."""

    get: Callable[[str], StoredObject | None]
    swap: Callable[[str, bytes, str | None], bool]
    delete: Callable[[list[str]], object]

    @classmethod
    def of(cls, store: ObjectStore) -> "Swapper":
        return cls(store.get, store.swap, store.delete)

    def content(self, key: str) -> bytes | None:
        stored = self.get(key)
        return stored[0] if stored else None

    def token(self, key: str) -> str | None:
        stored = self.get(key)
        return stored[1] if stored else None


def probe_path() -> str:
    """The path of a new scratch object in a registry."""
    return f"gc/{PROBE}{secrets.token_hex(8)}"


def cas_faults(store: Swapper, key: str, raced: bool = False) -> list[str]:
    """Try conditional writes on one object, which is absent before and after; `raced`: by several writers at once too."""
    trials = [_one_writer, _racing_writers] if raced else [_one_writer]
    try:
        return list(dict.fromkeys(fault for trial in trials for fault in trial(store, key)))
    finally:
        error = sys.exc_info()[1]
        with suppress(*([RegError] if error else [])):
            store.delete([key])


def _one_writer(store: Swapper, key: str) -> Iterator[str]:
    """An object that exists is not created again, and only the bytes that were read are replaced."""
    if not store.swap(key, b"first", None):
        yield "an object that is not there cannot be created"
    if store.swap(key, b"second", None):
        yield "an object that is there can be created again"
    if store.content(key) != b"first":
        yield "what was created is not what is read"
    token = store.token(key)
    if not store.swap(key, b"third", token):
        yield "a swap with the right token is refused"
    if store.swap(key, b"fourth", token):
        yield "a swap with a stale token is done"
    if store.content(key) != b"third":
        yield "what was swapped in is not what is read"


def _racing_writers(store: Swapper, key: str) -> Iterator[str]:
    """Of several writers that create or swap at once, one wins, and its bytes are read. A deleted object is not read."""
    store.delete([key])
    if store.get(key) is not None:
        yield "an object that was deleted is still there"
    with ThreadPoolExecutor(RACERS) as pool:
        for number in range(2 * ROUNDS):
            activity = "swapping" if number % 2 else "creating"
            if activity == "creating":
                store.delete([key])
            token = store.token(key) if activity == "swapping" else None
            contents = [secrets.token_hex(16).encode() for _ in range(RACERS)]
            results = list(pool.map(lambda data, token=token: store.swap(key, data, token), contents))
            winners = [data for data, success in zip(contents, results, strict=True) if success]
            if len(winners) != 1:
                yield f"{len(winners)} of {RACERS} writers {activity} at once succeeded, instead of one"
            elif store.content(key) != winners[0]:
                yield f"of {RACERS} writers {activity} at once, another one's bytes are there than the winner's"


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

    def other_process() -> str:
        command = [sys.executable, "-c", _LOCKER, str(path)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout.strip()

    with exclusive(path):
        if other_process() != "held":
            yield "two processes can hold the same lock"
    if other_process() != "free":
        yield "a lock that was given back is still held"
