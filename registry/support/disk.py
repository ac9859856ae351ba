"""Durable writing on a local file system. Everything the store asks of one passes through here."""

import errno
import os
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO

from onnxreg.schema.core.errors import Advice, HostError, InputError, IntegrityError

MACHINE_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE})
"""Errors of the machine, whatever the call."""

READ_ONLY = "the file system is mounted read-only: remount it, or use another place"


@contextmanager
def host_errors(operation: str, only: frozenset[int] | None = None) -> Iterator[None]:
    """Turn an OSError (only one with these numbers, if given) into a HostError that says what failed."""
    try:
        yield
    except OSError as error:
        if only is not None and error.errno not in only:
            raise
        raise HostError(f"{operation} failed: {os.strerror(error.errno or 0)}", _hint(error)) from error


def _hint(error: OSError) -> str | Advice:
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return "free some space on that disk, then run the command again; a large download continues where it stopped"
        case errno.EROFS:
            return READ_ONLY
        case errno.EACCES | errno.EPERM:
            return f"check who owns {error.filename or 'the directory'}, and its permissions"
        case errno.EXDEV:
            return "blobs, index and local of a registry must be on one file system: mount the whole registry"
        case errno.EMFILE | errno.ENFILE:
            return "raise the limit of open files (ulimit -n)"
        case _:
            return Advice("check-disk")


def path_text(path: Path) -> str:
    """A path as text that any document can hold: a file URL if its bytes are not UTF-8."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return path.absolute().as_uri()
    return str(path)


@contextmanager
def _if_supported() -> Iterator[None]:
    """Go on if the file system refuses a call that it need not have, such as chmod."""
    try:
        yield
    except OSError as error:
        if error.errno in MACHINE_ERRNOS:
            raise


def set_mode(path: Path, mode: int) -> None:
    """Set the permissions of a file or directory, if its file system has them."""
    with _if_supported():
        path.chmod(mode)


def share(path: Path, target: Path | None = None) -> None:
    """Give a new file or directory the permissions and the group of the directory that it is in, whatever the umask.

    Args:
        target: the path that a temporary file will have; a file that is there keeps its permissions.
    """
    goal, status = target or path, path.stat()
    parent = next(above for above in goal.parents if above.exists())
    like = (goal if target and is_regular(goal) else parent).stat()
    mode = like.st_mode & (0o2777 if stat.S_ISDIR(status.st_mode) else 0o666)
    if not status.st_mode & 0o222:
        mode &= 0o555
    if like.st_gid != status.st_gid and hasattr(os, "chown"):
        with _if_supported():
            os.chown(path, -1, like.st_gid)
    if mode != stat.S_IMODE(status.st_mode):
        set_mode(path, mode)


def refuse_unlisted(error: OSError) -> None:
    """For `os.walk`: a directory that cannot be listed hides files; one that is gone has none."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def replace_file(path: Path, data: bytes, times: tuple[float, float] | None = None) -> None:
    """Replace a small file atomically; its directory is made. It need not survive a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        scratch.write_bytes(data)
        if times is not None:
            os.utime(scratch, times)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


NO_DIRECTORY_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOTTY, errno.EBADF, errno.ENOSYS})
"""Errors of fsync(2) on a directory of a file system that cannot do that, such as SMB: nothing is left to sync."""
KEEP_SIZE = 1
"""FALLOC_FL_KEEP_SIZE of fallocate(2)."""
SYNCFS_THRESHOLD = 32
"""From so many files or directories on, one syncfs(2) is cheaper than an fsync(2) for each."""
MAX_FILE_BYTES = 2**44
"""The largest file of ext4: 16 TiB."""


def syncs_directories(directory: Path) -> bool:
    """True if the file system can make the names in a directory durable, or the system never asks it to."""
    if os.name != "posix":
        return True
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        return error.errno not in NO_DIRECTORY_SYNC
    finally:
        os.close(descriptor)
    return True


class Disk:
    """The calls that reach the file system. Tests replace it to simulate a power cut."""

    def create(self, path: Path) -> BinaryIO:
        """A new file for writing; FileExistsError if there is one."""
        return path.open("xb")

    def extend(self, path: Path) -> BinaryIO:
        """Open a file for reading and writing at any offset; it is made if there is none."""
        return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666), "r+b")

    def reserve(self, file: BinaryIO, size: int) -> None:
        """Reserve the space of a file without changing its size; nothing happens if the system cannot.

        A size that no file can have is not reserved: the bytes that arrive decide.
        """
        libc = _libc()
        if libc is None or not hasattr(libc, "fallocate64") or size > MAX_FILE_BYTES:
            return
        import ctypes

        offsets = (ctypes.c_int64(0), ctypes.c_int64(size))
        if libc.fallocate64(file.fileno(), KEEP_SIZE, *offsets):
            number = ctypes.get_errno()
            if number in (errno.ENOSPC, errno.EDQUOT):
                raise OSError(number, os.strerror(number))

    def mkdir(self, path: Path) -> None:
        """A directory in one that exists; nothing happens if it is there."""
        path.mkdir(exist_ok=True)

    def make_directory(self, path: Path, root: Path | None = None) -> None:
        """The directory and those above it, each durable in its parent; below `root` see `share`.

        So is the lowest one that exists already: another process may have made it and not synced it yet.
        """
        missing = self._missing(path)
        if missing:
            with suppress(PermissionError):
                self.sync_directory(missing[0].parent.parent)
        for directory in missing:
            self.mkdir(directory)
            if root in directory.parents:
                share(directory)
            self.sync_directory(directory.parent)

    def _missing(self, path: Path) -> list[Path]:
        """The directories to be made so that there is this one, the uppermost first."""
        missing = []
        while not path.is_dir():
            missing.append(path)
            path = path.parent
        return missing[::-1]

    def sync_file(self, path: Path) -> None:
        """Make a file's bytes durable."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_directory(self, path: Path) -> None:
        """Make a directory's names durable."""
        if os.name == "posix":
            try:
                self.sync_file(path)
            except OSError as error:
                if error.errno not in NO_DIRECTORY_SYNC:
                    raise

    def sync_files(self, paths: Sequence[Path]) -> None:
        """Make the bytes of many files of one file system durable: all at once if there are many (Linux: syncfs)."""
        if len(paths) < SYNCFS_THRESHOLD or not _sync_file_system(paths[0]):
            for path in paths:
                self.sync_file(path)

    def sync_directories(self, paths: Sequence[Path]) -> None:
        """Make the names in many directories of one file system durable, in this order or all at once."""
        if len(paths) < SYNCFS_THRESHOLD or not _sync_file_system(paths[0]):
            for path in paths:
                self.sync_directory(path)

    def sync_all(self, path: Path) -> None:
        """Make everything durable that any process wrote to the file system of a path."""
        if not _sync_file_system(path) and hasattr(os, "sync"):
            os.sync()

    def rename(self, source: Path, target: Path) -> None:
        """Replace target by source, atomically."""
        source.replace(target)

    def unlink(self, path: Path) -> None:
        """Remove a file's name; nothing happens if there is none."""
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        import shutil

        shutil.rmtree(path, ignore_errors=True)

    def write_all(
        self,
        files: Iterable[tuple[Path, Path]],
        root: Path,
        relied: Collection[Path] = (),
        shared: bool = False,
    ) -> None:
        """Give finished temporary files their final names: sync all, rename all, one sync for each directory.

        The directories up to `root` are synced too: another process may have made one and not synced it yet. So are
        those of the files `relied` upon, which another process may just have renamed. `shared`: see `share`.
        """
        pairs = list(files)
        if shared:
            for source, target in pairs:
                share(source, target)
        self.sync_files([source for source, _ in pairs])
        targets = [target for _, target in pairs]
        for parent in sorted({target.parent for target in targets}):
            for directory in self._missing(parent):
                self.mkdir(directory)
                if shared:
                    share(directory)
        for source, target in pairs:
            self.rename(source, target)
        directories = {above for target in (*relied, *targets) for above in _between(target, root)}
        self.sync_directories(sorted(directories, reverse=True))


def _between(path: Path, root: Path) -> Iterator[Path]:
    """The directories above a path, up to and with `root`."""
    for above in path.parents:
        yield above
        if above == root:
            return


def _libc() -> Any:
    """The C library of Linux; None elsewhere."""
    import ctypes

    return ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _sync_file_system(path: Path) -> bool:
    """Sync the whole file system of a file, as syncfs(2) does since Linux 5.8, errors included."""
    import ctypes

    libc = _libc()
    if libc is None or not hasattr(libc, "syncfs"):
        return False
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if libc.syncfs(descriptor):
            if (number := ctypes.get_errno()) in MACHINE_ERRNOS:
                raise OSError(number, os.strerror(number), str(path))
            return False
    finally:
        os.close(descriptor)
    return True


IRREGULAR = Advice("replace-irregular-file")


def is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def regular_size(path: Path) -> int | None:
    """A regular file's size in bytes; None if the path is something else, -1 if it is gone."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return -1
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file; IntegrityError for a FIFO, device or symlink."""
    return os.fdopen(_descriptor(path), "rb")


def _descriptor(path: Path) -> int:
    try:
        descriptor = os.open(path, _READ_FLAGS)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise IntegrityError(f"{path.name} is not a regular file", IRREGULAR) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise IntegrityError(f"{path.name} is not a regular file", IRREGULAR)
    return descriptor


_READ_FLAGS = (
    os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
)


def read_bounded(path: Path, limit: int) -> bytes:
    with FileIO(_descriptor(path)) as file:
        if os.fstat(file.fileno()).st_size > limit:
            raise IntegrityError(f"{path.name} is larger than {limit} bytes")
        return file.readall()


def check_outfile(target: Path) -> None:
    """Check that a file may be written there, new or over an old one. InputError if not."""
    path = target.resolve()
    if path.exists() and not path.is_file():
        raise InputError(f"{target} is not a file", "name a file, new or old")
    if not path.parent.is_dir():
        raise InputError(f"there is no directory {target.parent}", "make it first, or name another")
    if any((above / "registry.json").exists() for above in path.parents):
        raise InputError(f"{target} is inside a registry", "name a file outside of it")


@contextmanager
def outfile(target: Path) -> Iterator[BinaryIO]:
    """Open a file to write; at the end it replaces an earlier one atomically, after an error nothing changes."""
    path, disk = target.resolve(), Disk()
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    with host_errors(f"writing {target}"):
        try:
            with disk.create(temporary) as file:
                yield file
            disk.write_all([(temporary, path)], path.parent)
        finally:
            disk.unlink(temporary)
