"""Scratch space of running commands, and locks. The next command sweeps the files of a killed one."""

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING

from onnxreg.registry import support
from onnxreg.registry.support.disk import MACHINE_ERRNOS, Disk, host_errors, set_mode, share
from onnxreg.schema.core.errors import HostError

if TYPE_CHECKING:
    from filelock import BaseFileLock

POLL_SECONDS = 0.01
"""The time between two tries to take a lock."""
NO_LOCKS = frozenset({errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL})
"""Errors of flock(2) on a file system that has none."""
NOTICE_SECONDS = 3.0
"""The user learns of a longer wait for another command."""


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold a lock between processes; the system releases it when the holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = take(path, NOTICE_SECONDS)
    if lock is None:
        support.tell(f"waiting for another command, which holds {path}")
        lock = take(path)
    assert lock is not None, "without a limit it is waited for"
    try:
        yield
    finally:
        lock.release()


def take(path: Path, seconds: float = -1) -> "BaseFileLock | None":
    """Lock a file, which is made if there is none, until `release`; None if another process holds it for that long.

    HostError if the file system has no locks. FileNotFoundError if no file can be made, such as below /proc: waiting
    for the lock would never end.
    """
    from filelock import FileLock, Timeout

    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    try:
        os.close(os.open(path, flags, 0o600))
        if not path.parent.stat().st_mode & stat.S_ISVTX:
            with suppress(FileNotFoundError):  # another command swept it, and locking makes it again
                share(path)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise  # of the other errors, locking meets those that matter
    lock = FileLock(path, poll_interval=POLL_SECONDS, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire(seconds)
    except Timeout:
        return None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        raise HostError(
            f"the file system of {path.parent} has no locks (flock: {os.strerror(error.errno)})",
            "mount it with locks (Lustre: -o flock), or keep the registry on another disk and push to a remote",
        ) from error
    return lock


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


def _sweep(scratch: Path, disk: Disk, prefix: str) -> None:
    """Remove directories whose lock is free, and those locks; after a power cut either may be missing.

    Renames of a dead command are made durable first, since we may rely on them.
    """
    names = re.compile(rf"({re.escape(prefix)}[0-9a-f]{{16}})(\.lock)?")
    paths = [path for path in scratch.iterdir() if not path.is_symlink()]
    for name in sorted({match[1] for path in paths if (match := names.fullmatch(path.name))}):
        directory, marker = scratch / name, scratch / f"{name}.lock"
        with suppress(OSError):
            if (lock := take(marker, 0)) is not None:
                try:
                    disk.sync_all(scratch)
                    if directory.is_dir() and not directory.is_symlink():
                        disk.remove_tree(directory)
                    disk.unlink(marker)
                finally:
                    lock.release()


@contextmanager
def temporary(parent: Path | None = None) -> Iterator[Path]:
    """A directory for one command's unfinished files, which nobody else may read; see `staging`.

    It is in `parent`, or if that cannot be made or written, in TMPDIR.
    """
    base = Path(gettempdir())
    if parent is not None:
        with suppress(OSError):
            parent.mkdir(0o700, parents=True, exist_ok=True)
            base = parent if os.access(parent, os.W_OK) else base
    with host_errors(f"writing to {base}", MACHINE_ERRNOS), staging(base, Disk(), "onnxreg-") as directory:
        set_mode(directory, 0o700)
        yield directory


def is_held(marker: Path) -> bool | None:
    """True if a running process holds the marker of its staging directory; None if that cannot be known."""
    if not marker.exists():
        return False
    try:
        lock = take(marker, 0)
    except PermissionError:
        return None
    if lock is not None:
        lock.release()
    return lock is None
