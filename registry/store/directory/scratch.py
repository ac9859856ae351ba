"""Scratch space of running commands, and locks. The next command sweeps the files of a killed one."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from onnxreg.registry.support.disk import Disk

POLL_SECONDS = 0.01
"""The time between two tries to take a lock."""
PROBE = "probe-"
"""Prefix of a probe's scratch. If its process is dead, the next probe removes it."""


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold a lock between processes; the system releases it when the holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _check_place(path)
    with FileLock(path, poll_interval=POLL_SECONDS):
        yield


def _check_place(path: Path) -> None:
    """FileNotFoundError if no file can be created, such as below /proc: waiting for the lock would never end."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        os.close(os.open(path, flags, 0o644))
    except FileNotFoundError:
        raise
    except OSError:
        return  # what else is wrong the lock says


@contextmanager
def staging(scratch: Path, disk: Disk, prefix: str = "") -> Iterator[Path]:
    """A directory for one command's unfinished files, removed at the end and marked as in use until then.

    Files of dead commands in `scratch` under the same prefix are removed first.
    """
    _sweep(scratch, disk, prefix)
    directory = scratch / f"{prefix}{os.urandom(8).hex()}"
    marker = directory.with_name(f"{directory.name}.lock")
    with exclusive(marker):
        disk.mkdir(directory)
        try:
            yield directory
        finally:
            disk.remove_tree(directory)
            disk.unlink(marker)


def is_held(marker: Path) -> bool:
    """True if a running process holds the marker of its staging directory."""
    try:
        if not marker.exists():
            return False
        with FileLock(marker, timeout=0):
            return False
    except Timeout:
        return True


def _sweep(scratch: Path, disk: Disk, prefix: str) -> None:
    """Remove directories whose lock is free, and those locks; after a power cut either may be missing.

    Renames of a dead command are made durable first, since we may rely on them.
    """
    name_pattern = re.compile(rf"({re.escape(prefix)}[0-9a-f]{{16}})(\.lock)?")
    paths = [path for path in scratch.iterdir() if not path.is_symlink()]
    for name in sorted({match[1] for path in paths if (match := name_pattern.fullmatch(path.name))}):
        directory, marker = scratch / name, scratch / f"{name}.lock"
        with suppress(Timeout, OSError), FileLock(marker, timeout=0):
            disk.sync_all(scratch)
            if directory.is_dir() and not directory.is_symlink():
                disk.remove_tree(directory)
            disk.unlink(marker)
