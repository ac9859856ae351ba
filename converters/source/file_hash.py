"""The SHA-256 of files; what nobody touches is read once by a process, however often it is asked for."""

import hashlib
import os
import time
from pathlib import Path

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.file_state import SETTLED_NANOSECONDS, FileState

_known: dict[FileState, Digest] = {}


def digest_file(path: Path) -> Digest:
    """The SHA-256 of a file's bytes; one whose state is known, and was settled then, is not read again.

    What another process writes through a memory map meanwhile is not noticed.
    """
    with path.open("rb") as file:
        before = FileState.of(os.fstat(file.fileno()))
        if before in _known:
            return _known[before]
        settled = before.is_settled(time.time_ns(), SETTLED_NANOSECONDS)
        digest = Digest(hashlib.file_digest(file, "sha256").hexdigest())
        if settled and before == FileState.of(os.fstat(file.fileno())):
            _known[before] = digest
    return digest
