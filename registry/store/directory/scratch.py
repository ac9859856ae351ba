"""Scratch space of running commands, and locks. The next command sweeps the files of a killed one."""

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir

from filelock import AcquireReturnProxy, FileLock, Timeout

from onnxreg.registry.support import notices
from onnxreg.registry.support.disk import MACHINE_ERRNOS, Disk, host_errors, set_mode, share
from onnxreg.schema.core.errors import HostError

POLL_SECONDS = 0.01
"""The time between two tries to take a lock."""
NO_LOCKS = frozenset({errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL})
"""Errors of flock(2) on a file system that has none."""
NOTICE_SECONDS = 3.0
"""A wait of so long for another command is worth a word."""
PROBE = "probe-"
"""Prefix of a probe's scratch. If its process is dead, the next probe removes it."""


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold a lock between processes; the system releases it when the holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        lock = take(path, NOTICE_SECONDS)
    except Timeout:
        notices.tell(f"waiting for another command, which holds {path}")
        lock = take(path)
    with lock:
        yield


def take(path: Path, timeout: float = -1) -> AcquireReturnProxy[FileLock]:
    """Lock a file, which is made if there is none, until the end of a `with` block or a release of `lock`.

    Timeout if another process holds it for so many seconds; HostError if the file system has no locks.
    """
    _make_lock_file(path)
    lock = FileLock(path, poll_interval=POLL_SECONDS, thread_local=False, fallback_to_soft=False)
    try:
        return lock.acquire(timeout)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        raise HostError(
            f"the file system of {path.parent} has no locks (flock: {os.strerror(error.errno)})",
            "mount it with locks (Lustre: -o flock), or keep the registry on another disk and push to a remote",
        ) from error


def _make_lock_file(path: Path) -> None:
    """Make the file for everyone who may write to its directory.

    FileNotFoundError if no file can be created, such as below /proc: waiting for the lock would never end.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    try:
        os.close(os.open(path, flags, 0o600))
        if not path.parent.stat().st_mode & stat.S_ISVTX:
            with suppress(FileNotFoundError):  # another command swept it, and locking makes it again
                share(path)
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
    with (
        host_errors(f"writing to {base}", MACHINE_ERRNOS),
        staging(base, Disk(), "onnxreg-") as directory,
    ):
        set_mode(directory, 0o700)
        yield directory


def is_held(marker: Path) -> bool | None:
    """True if a running process holds the marker of its staging directory; None if that cannot be known."""
    if not marker.exists():
        return False
    try:
        with take(marker, 0):
            return False
    except Timeout:
        return True
    except PermissionError:
        return None


def _sweep(scratch: Path, disk: Disk, prefix: str) -> None:
    """Remove directories whose lock is free, and those locks; after a power cut either may be missing.

    Renames of a dead command are made durable first, since we may rely on them.
    """
    name_pattern = re.compile(rf"({re.escape(prefix)}[0-9a-f]{{16}})(\.lock)?")
    paths = [path for path in scratch.iterdir() if not path.is_symlink()]
    for name in sorted({match[1] for path in paths if (match := name_pattern.fullmatch(path.name))}):
        directory, marker = scratch / name, scratch / f"{name}.lock"
        with suppress(Timeout, OSError), take(marker, 0):
            disk.sync_all(scratch)
            if directory.is_dir() and not directory.is_symlink():
                disk.remove_tree(directory)
            disk.unlink(marker)
