"""Scratch space of running commands, and locks. What a killed command left behind is swept by the next one."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from onnxreg.registry.support.disk import Disk


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold a lock between processes; the system releases it when the holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _check_place(path)
    with FileLock(path):
        yield


def _check_place(path: Path) -> None:
    """FileNotFoundError where no file can be made, as below /proc: the lock would be waited for without end."""
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

    What commands that died left in `scratch` under the same prefix is removed first.
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
    """Whether a running process holds the marker of its staging directory."""
    try:
        if not marker.exists():
            return False
        with FileLock(marker, timeout=0):
            return False
    except Timeout:
        return True


def _sweep(scratch: Path, disk: Disk, prefix: str) -> None:
    """Remove the directories whose lock can be had, and such locks alone; after a power cut either may be missing.

    What a dead command had renamed and not synced is made durable first: we may come to rely on it.
    """
    ours = re.compile(rf"({re.escape(prefix)}[0-9a-f]{{16}})(\.lock)?")
    found = [path for path in scratch.iterdir() if not path.is_symlink()]
    for name in sorted({match[1] for path in found if (match := ours.fullmatch(path.name))}):
        directory, marker = scratch / name, scratch / f"{name}.lock"
        with suppress(Timeout, OSError), FileLock(marker, timeout=0):
            disk.sync_all(scratch)
            if directory.is_dir() and not directory.is_symlink():
                disk.remove_tree(directory)
            disk.unlink(marker)
