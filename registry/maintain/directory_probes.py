"""Probes of the file system promises that a registry needs, in scratch that is removed afterwards.

Each probe yields one message for each failure; nothing if the promise is kept.
"""

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.directory.scratch import exclusive
from onnxreg.registry.support.disk import Disk
from onnxreg.schema.core.errors import LostRaceError

PROBE = "probe-"
"""Prefix of a probe's scratch directory. If its process is dead, the next probe removes it."""


class LocalSwapper:
    """The index files of a temporary registry, on the code and the file system of a real one."""

    def __init__(self, root: Path, disk: Disk) -> None:
        self._remote = DirectoryRegistry.create(root, disk)

    def get(self, key: str) -> tuple[bytes, str] | None:
        index = self._remote.read_index(key)
        return None if index is None else (index.data, index.token)

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
    """Check that a lock keeps another process out, and lets it in after release."""
    path = directory / "probe.lock"

    def other() -> str:
        command_line = [sys.executable, "-c", LOCKER, str(path)]
        return subprocess.run(
            command_line, capture_output=True, text=True, timeout=60, check=False
        ).stdout.strip()

    with exclusive(path):
        if other() != "held":
            yield "two processes can hold the same lock"
    if other() != "free":
        yield "a lock that was given back is still held"


def probe_disk(directory: Path, disk: Disk) -> Iterator[str]:
    """Check that files can be synced and renamed over another, and directories synced."""
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
