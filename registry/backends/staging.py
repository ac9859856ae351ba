"""Scratch space of running commands, and locks. What a killed command left behind is swept by the next one."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from onnxreg.registry.disk import Disk


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold a lock between processes; the system releases it when the holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path):
        yield


@contextmanager
def staging(scratch: Path, disk: Disk) -> Iterator[Path]:
    """A directory for one command's unfinished files, removed at the end and marked as in use until then."""
    name = secrets.token_hex(8)
    with exclusive(scratch / f"{name}.lock"):
        directory = scratch / name
        directory.mkdir()
        try:
            yield directory
        finally:
            disk.remove_tree(directory)
            (scratch / f"{name}.lock").unlink(missing_ok=True)


def sweep(scratch: Path, disk: Disk) -> None:
    """Remove the staging directories whose command is dead: those whose lock can be had."""
    for directory in [path for path in scratch.iterdir() if path.is_dir()]:
        marker = directory.with_suffix(".lock")
        with suppress(Timeout), FileLock(marker, timeout=0):
            disk.remove_tree(directory)
            marker.unlink(missing_ok=True)
