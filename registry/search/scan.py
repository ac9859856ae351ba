"""Change tokens of index files: a file with the same token need not be read again.

The token of a file here is its stat. An index file is replaced by a rename, so its inode changes with it. A file
system's clock may tick coarsely: a file that changed just before the stat may change once more and look the same (git
calls such a file racy), so it has no token yet.
"""

import os
import stat
import time
from collections.abc import Container
from pathlib import Path

from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import RegistryReader, innermost
from onnxreg.registry.support.disk import host_errors
from onnxreg.schema.core.ref import is_name

TICK_NANOSECONDS = 2 * 10**9
"""The coarsest clock of a file system."""
SUFFIX = ".jsonl"
UNSETTLED = ""
"""The token of a file that must be read again; no other token equals it."""


def index_tokens(reader: RegistryReader, known_names: Container[str] = ()) -> dict[str, str]:
    """The token of each model's index file, by name. UnlistedError if the place cannot list its files."""
    store = innermost(reader)
    if isinstance(store, DirectoryRegistry):
        with host_errors(f"listing {store.root / 'index'}"):
            tokens = _scan(store.root / "index", "", time.time_ns())
            return {name: token for name, token in tokens.items() if name in known_names or is_name(name)}
    return store.index_tokens()


def _scan(directory: Path | str, prefix: str, now: int) -> dict[str, str]:
    tokens: dict[str, str] = {}
    try:
        entries = os.scandir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return tokens
    with entries:
        for entry in entries:
            name = prefix + entry.name
            if name.endswith(SUFFIX):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    tokens[name[: -len(SUFFIX)]] = settled_mark(status, now)
            elif not prefix and is_name(name) and entry.is_dir():
                tokens.update(_scan(entry.path, f"{name}/", now))
    return tokens


def mark(status: os.stat_result) -> str:
    """A text that changes with a file.

    It includes the time of change (ctime): a copy can keep the time of modification, but not that one.
    """
    return f"{status.st_mtime_ns} {status.st_ctime_ns} {status.st_size} {status.st_ino}"


def settled_mark(status: os.stat_result, now: int) -> str:
    """The token of a file with this stat, which was taken after `now`, in nanoseconds."""
    recent = max(status.st_mtime_ns, status.st_ctime_ns) > now - TICK_NANOSECONDS
    return UNSETTLED if recent else mark(status)
