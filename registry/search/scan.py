"""Find index files of a local registry that may have changed since they were read, by one stat for each
directory.

An index file is replaced by a rename, so its directory changes with it. A file system's clock may tick
coarsely: a file that changed just before the stat may change once more and look the same (git calls such a
file racy), so its mark is not settled. Only an edit of an index file in place is not noticed.
"""

import os
import stat
import time
from pathlib import Path
from typing import NamedTuple

from onnxreg.schema.core.ref import is_name

TICK_NANOSECONDS = 2 * 10**9
"""The coarsest clock of a file system."""
SUFFIX = ".jsonl"
UNSETTLED = ""
"""The mark of a file that must be read again; no other mark equals it."""


class Listing(NamedTuple):
    """A directory below `index/`: the marks of its models, by name, and the names of the directories in it."""

    models: dict[str, str]
    directories: list[str]


def mark(status: os.stat_result) -> str:
    """A mark that changes with a file or directory.

    It includes the time of change (ctime): a copy can keep the time of modification, but not that one.
    """
    return f"{status.st_mtime_ns} {status.st_ctime_ns} {status.st_size} {status.st_ino}"


def settled_mark(status: os.stat_result, now: int) -> str:
    """The mark to store, for a stat after `now`, in nanoseconds of the file system's clock."""
    recent = max(status.st_mtime_ns, status.st_ctime_ns) > now - TICK_NANOSECONDS
    return UNSETTLED if recent else mark(status)


def status_of(path: Path) -> os.stat_result | None:
    """The stat of a path, or None if it does not exist."""
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def clock(path: Path | None) -> int:
    """The current time in nanoseconds, by the clock of this file's file system; else by the system clock."""
    try:
        if path is not None:
            os.utime(path)
            return path.stat().st_mtime_ns
    except OSError:
        pass
    return time.time_ns()


def scan(root: Path, directory: str, now: int) -> Listing:
    """List every file of `index` or of `index/<organisation>`. Empty if the directory does not exist."""
    listing = Listing({}, [])
    prefix = directory.partition("/")[2]
    try:
        entries = os.scandir(root / directory)
    except (FileNotFoundError, NotADirectoryError):
        return listing
    with entries:
        for entry in entries:
            if entry.name.endswith(SUFFIX):
                status = entry.stat(follow_symlinks=False)
                name = f"{prefix}/{entry.name}".removeprefix("/").removesuffix(SUFFIX)
                if stat.S_ISREG(status.st_mode) and is_name(name):
                    listing.models[name] = settled_mark(status, now)
            elif not prefix and is_name(entry.name) and entry.is_dir():
                listing.directories.append(entry.name)
    return listing


def has_more(root: Path, models: int) -> bool:
    """Check if there are more than `models` index files; stops counting after that."""
    count = 0
    for directory in _directories(root / "index"):
        with os.scandir(directory) as entries:
            for entry in entries:
                count += entry.name.endswith(SUFFIX)
                if count > models:
                    return True
    return False


def _directories(index: Path) -> list[Path]:
    try:
        with os.scandir(index) as entries:
            return [index, *(index / entry.name for entry in entries if entry.is_dir())]
    except (FileNotFoundError, NotADirectoryError):
        return []
