"""Scratch space of running commands, locks, and blobs on their way into a registry.

The next command sweeps the scratch files of a killed one. A large blob is fetched into `local/partial/<64 hex>`, so that
an interrupted pull resumes: the file has the blob's first bytes; its size says how many. Its content is not trusted: it
is hashed again from its beginning before anything is added.
"""

import errno
import hashlib
import os
import re
import secrets
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, BinaryIO

from onnxreg.registry import support
from onnxreg.registry.store import streams
from onnxreg.registry.store.streams import Hasher
from onnxreg.registry.support.disk import (
    MACHINE_ERRNOS,
    Disk,
    host_errors,
    is_regular,
    set_mode,
    share,
    write_back,
)
from onnxreg.schema.core.digest import Digest
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


MAX_FILE_BYTES = 2**44
"""The largest file of ext4: of a larger one, the bytes that arrive decide."""


class StagedBlobs:
    """The part of a `Push` that takes blobs in. Its `id` is that of the push; `url` is where they go in the end."""

    def __init__(self, directory: Path, url: str, disk: Disk | None = None) -> None:
        self.id = secrets.token_hex(8)
        self.directory = directory
        self._url = url
        self._disk = disk or Disk()
        self._staged: dict[Digest, Path] = {}
        self._lock = threading.Lock()

    def put(
        self, source: BinaryIO, expected: Digest | None = None, hasher: Hasher | None = None
    ) -> tuple[Digest, int]:
        """See `Push.put`. A given `hasher` receives the bytes as they pass."""
        temporary = self.directory / secrets.token_hex(8)
        with host_errors(f"writing a blob to {self._url}"):
            try:
                with self._disk.create(temporary) as file:
                    digest, size = streams.pump(source, file, write_back(file), hasher)
                if expected is not None:
                    streams.check(digest, expected, f"blob {expected}")
            except BaseException:
                self._disk.unlink(temporary)
                raise
        self._keep(temporary, digest)
        return digest, size

    def put_file(self, path: Path, hasher: Hasher | None = None) -> tuple[Digest, int]:
        """Move the file if that needs no copy; it is hashed under its new name, where nobody else writes.

        A link is never moved: its bytes are somebody else's, who may change them later.
        """
        temporary = self.directory / secrets.token_hex(8)
        if not is_regular(path) or path.lstat().st_nlink > 1 or not self._move(path, temporary):
            with path.open("rb") as source:
                return self.put(source, hasher=hasher)
        with host_errors(f"reading {path.name}"), temporary.open("rb") as source:
            digest, size = streams.pump(source, None, hasher=hasher)
        self._keep(temporary, digest)
        return digest, size

    def _move(self, source: Path, target: Path) -> bool:
        """Move a file without a copy; False across file systems, or if its directory may not be written."""
        try:
            self._disk.rename(source, target)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EACCES, errno.EPERM):
                raise
            return False
        return True

    def _keep(self, path: Path, digest: Digest) -> None:
        set_mode(path, 0o444)
        with self._lock:
            self._staged[digest] = path


class PartialDownload:
    """The file of one blob that is being fetched, locked by this process until `release`."""

    def __init__(self, path: Path, lock: "BaseFileLock", disk: Disk) -> None:
        self.path = path
        self._lock = lock
        self._disk = disk

    @classmethod
    def take(cls, root: Path, digest: Digest, disk: Disk) -> "PartialDownload | None":
        """Lock the file of a blob in the registry at `root`; None if another process has it."""
        directory = root / "local" / "partial"
        disk.make_directory(directory, directory.parent)
        lock = take(directory / f"{digest.hex}.lock", 0)
        return None if lock is None else cls(directory / digest.hex, lock, disk)

    def release(self) -> None:
        """Release the lock and remove its file."""
        self._disk.unlink(Path(self._lock.lock_file))
        self._lock.release()

    def fill(self, digest: Digest, size: int, open_at: Callable[[int], BinaryIO]) -> int:
        """Fetch what is missing; returns the size in bytes. IntegrityError, and no file, if the bytes are wrong.

        A link, or a file that this user may not write, is removed first: its bytes belong to somebody else.
        """
        is_own = is_regular(self.path) and self.path.lstat().st_nlink == 1
        if is_own:
            set_mode(self.path, 0o600)
        if not is_own or not os.access(self.path, os.R_OK | os.W_OK):
            self._disk.unlink(self.path)
        with self._disk.extend(self.path) as file:
            present_bytes = file.seek(0, os.SEEK_END)
            if shutil.disk_usage(self.path.parent).free + present_bytes < size <= MAX_FILE_BYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if present_bytes > size:
                file.truncate(0)
            file.seek(0)
            hasher = hashlib.sha256()
            _, start = streams.pump(file, None, hasher=hasher)
            with open_at(start) as remainder:
                actual, count = streams.pump(remainder, file, write_back(file, start), hasher)
        if actual != digest:
            self._disk.unlink(self.path)
            streams.check(actual, digest, f"blob {digest}")
        return start + count


def clear_partial(root: Path, disk: Disk) -> int:
    """Remove the partial downloads that no process has locked; returns their size in bytes."""
    directory, freed = root / "local" / "partial", 0
    with host_errors(f"clearing {directory}"):
        for path in sorted(directory.iterdir()) if directory.is_dir() else ():
            is_blob = re.fullmatch(r"[0-9a-f]{64}", path.name)
            partial = PartialDownload.take(root, Digest(path.name), disk) if is_blob else None
            if partial is not None:
                freed += path.lstat().st_size
                disk.unlink(path)
                partial.release()
    return freed
