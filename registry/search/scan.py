"""Which index files of a local registry may have changed since they were read: one stat for each directory tells.

An index file is replaced by a rename, so its directory changes with it. A file system's clock may tick coarsely: what
changed in the moments before it was looked at may change once more and look the same (git calls such a file racy), so
it is never taken for settled. Not noticed is who edits an index file in place, and nothing else.
"""

import os
import stat
import time
from pathlib import Path
from typing import NamedTuple

from onnxreg.schema.core.ref import is_name

TICK = 2 * 10**9
"""Nanoseconds: no file system's clock is coarser."""
SUFFIX = ".jsonl"
UNSETTLED = ""
"""The mark of what must be looked at again: no other equals it."""


class Listing(NamedTuple):
    """A directory below `index/`: the marks of its models, by name, and the names of the directories in it."""

    models: dict[str, str]
    directories: list[str]


def mark(status: os.stat_result) -> str:
    """What tells a file or directory from whatever stood there before.

    The time of change (ctime) is part of it: a copy that keeps the time of modification cannot keep that one.
    """
    return f"{status.st_mtime_ns} {status.st_ctime_ns} {status.st_size} {status.st_ino}"


def settled_mark(status: os.stat_result, now: int) -> str:
    """The mark to remember, where the stat was made after `now`, in nanoseconds by the file system's clock."""
    recent = max(status.st_mtime_ns, status.st_ctime_ns) > now - TICK
    return UNSETTLED if recent else mark(status)


def status_of(path: Path) -> os.stat_result | None:
    """None where there is nothing."""
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def clock(path: Path | None) -> int:
    """The present in nanoseconds, by the file system on which this file of ours lies; else by our own clock."""
    try:
        if path is not None:
            os.utime(path)
            return path.stat().st_mtime_ns
    except OSError:
        pass
    return time.time_ns()


def scan(root: Path, directory: str, now: int) -> Listing:
    """Look at every file of `index` or of `index/<organisation>`. Empty where the directory is gone."""
    found = Listing({}, [])
    prefix = directory.partition("/")[2]
    try:
        entries = os.scandir(root / directory)
    except (FileNotFoundError, NotADirectoryError):
        return found
    with entries:
        for entry in entries:
            if entry.name.endswith(SUFFIX):
                status = entry.stat(follow_symlinks=False)
                name = f"{prefix}/{entry.name}".removeprefix("/").removesuffix(SUFFIX)
                if stat.S_ISREG(status.st_mode) and is_name(name):
                    found.models[name] = settled_mark(status, now)
            elif not prefix and is_name(entry.name) and entry.is_dir():
                found.directories.append(entry.name)
    return found


def has_more(root: Path, models: int) -> bool:
    """Whether there are more index files than so many; does not look at more of them than it must."""
    seen = 0
    for directory in _directories(root / "index"):
        with os.scandir(directory) as entries:
            for entry in entries:
                seen += entry.name.endswith(SUFFIX)
                if seen > models:
                    return True
    return False


def _directories(index: Path) -> list[Path]:
    try:
        with os.scandir(index) as entries:
            return [index, *(index / entry.name for entry in entries if entry.is_dir())]
    except (FileNotFoundError, NotADirectoryError):
        return []
