"""The SHA-256 of files; what nobody touches is read once by a process, however often it is asked for."""

import hashlib
import os
import time
from pathlib import Path

from onnxreg.schema.digest import Digest

SETTLED = 3 * 10**9
"""Nanoseconds after its last change from which on the next one surely has another time, on any file system."""

_known: dict[tuple[int, ...], Digest] = {}


def digest_file(path: Path) -> Digest:
    """The SHA-256 of a file's bytes.

    A file is known again by its inode, its size and its times, of which nobody can set back `st_ctime`. One that was
    changed a moment ago is read each time: git calls such entries racily clean. What is written through a memory map is
    not noticed before the system writes it back.
    """
    with path.open("rb") as file:
        before = _state(file.fileno())
        if before in _known:
            return _known[before]
        digest = Digest(hashlib.file_digest(file, "sha256").hexdigest())
        if before == _state(file.fileno()) and time.time_ns() - max(before[-2:]) > SETTLED:
            _known[before] = digest
    return digest


def _state(file: int) -> tuple[int, ...]:
    found = os.fstat(file)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
