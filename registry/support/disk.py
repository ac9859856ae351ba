"""Durable writing on a local file system. A store uses the file system only through `Disk`."""

import errno
import os
import stat
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

from onnxreg.schema.core.errors import HostError, InputError, IntegrityError

MACHINE_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE})
"""Error numbers that mean a fault of this machine (such as a full disk), in any call."""
NO_DIRECTORY_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOTTY, errno.EBADF, errno.ENOSYS})
"""Error numbers of fsync(2) on a directory of a file system, such as SMB, that cannot sync directories."""
WRITE_BACK_BYTES = 2**23
SYNCFS_THRESHOLD = 32
"""The number of files or directories from which on one syncfs(2) is cheaper than an fsync(2) for each."""
SAFE_FLAGS = sum(getattr(os, name, 0) for name in ("O_RDONLY", "O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
"""The flags of open(2) with which a link is refused, and a FIFO or device does not block."""

READ_ONLY = "the file system is mounted read-only: remount it, or use another place"
_NO_SPACE = "free some space there, then run the same command again"
_HINTS = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), _NO_SPACE),
    errno.EROFS: READ_ONLY,
    errno.EXDEV: "blobs, index and local of a registry must be on one file system: mount the whole registry",
}


@contextmanager
def host_errors(operation: str, only: frozenset[int] | None = None) -> Iterator[None]:
    """A context that turns an OSError into a HostError about `operation`. `only`: just errors with these numbers."""
    try:
        yield
    except OSError as error:
        number = error.errno or 0
        if only is not None and number not in only:
            raise
        hint = _HINTS.get(number, "see whether the directory exists and the disk is healthy (reg verify)")
        if number in (errno.EACCES, errno.EPERM):
            path = Path(str(error.filename or "."))
            existing = next(path for path in (path, *path.absolute().parents) if os.path.lexists(path))
            hint = f"check who owns {existing}, and its permissions"
        raise HostError(f"{operation} failed: {os.strerror(number)}", hint) from error


def path_text(path: Path) -> str:
    """Return a path as text; as a `file://` URL if it is not UTF-8, so that any document can contain it."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return path.absolute().as_uri()
    return str(path)


def set_mode(path: Path, mode: int, group: int | None = None) -> None:
    """Set the group (if given), then the permissions of a file or directory, if its file system has permissions."""
    calls = [partial(os.chown, path, -1, group)] if group is not None and hasattr(os, "chown") else []
    for call in (*calls, partial(path.chmod, mode)):
        try:
            call()
        except OSError as error:
            if error.errno in MACHINE_ERRNOS:
                raise


def share(path: Path, target: Path | None = None) -> None:
    """Give a new file or directory the permissions and the group of its parent directory, and ignore the umask.

    If `path` is a temporary file that replaces a file at `target`, the permissions of the replaced file are kept.
    """
    goal, status = target or path, path.stat()
    parent = next(above for above in goal.parents if above.exists())
    like = (goal if target and is_regular(goal) else parent).stat()
    mode = like.st_mode & (0o2777 if stat.S_ISDIR(status.st_mode) else 0o666)
    if not status.st_mode & 0o222:
        mode &= 0o555
    if (like.st_gid, mode) != (status.st_gid, stat.S_IMODE(status.st_mode)):
        set_mode(path, mode, None if like.st_gid == status.st_gid else like.st_gid)


def refuse_unlisted(error: OSError) -> None:
    """Raise an error of `os.walk` (its `onerror`), since an unlisted directory hides files; ignore a deleted directory."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


class Disk:
    """The calls that reach the file system. Tests replace this class to simulate a power cut."""

    def create(self, path: Path) -> BinaryIO:
        """Create a file for writing. Raise FileExistsError if the path exists."""
        return path.open("xb")

    def extend(self, path: Path) -> BinaryIO:
        """Open a file for reading and writing at any offset; create the file if it is missing."""
        return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666), "r+b")

    def mkdir(self, path: Path) -> None:
        """Make a directory, whose parent must exist; do nothing if the directory exists already."""
        path.mkdir(exist_ok=True)

    def make_directory(self, path: Path, root: Path) -> None:
        """Make a directory and its missing parents, and sync the parent of each; below `root`, call `share` on each."""
        missing = [above for above in (path, *path.parents) if not above.is_dir()][::-1]
        if missing:
            # sync the lowest existing directory too: another process may have just made it
            with suppress(PermissionError):
                self.sync_directory(missing[0].parent.parent)
        for directory in missing:
            self.mkdir(directory)
            if root in directory.parents:
                share(directory)
            self.sync_directory(directory.parent)

    def sync_file(self, path: Path) -> None:
        """Make a file's bytes durable."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_directory(self, path: Path) -> bool:
        """Make a directory's names durable; return False if its file system cannot sync directories."""
        try:
            if os.name == "posix":
                self.sync_file(path)
        except OSError as error:
            if error.errno not in NO_DIRECTORY_SYNC:
                raise
            return False
        return True

    def sync_files(self, paths: Sequence[Path]) -> None:
        """Make the bytes of files of one file system durable; many files are synced together (Linux: syncfs)."""
        if len(paths) < SYNCFS_THRESHOLD or not _sync_file_system(paths[0]):
            for path in paths:
                self.sync_file(path)

    def sync_directories(self, paths: Sequence[Path]) -> None:
        """Make the names in directories of one file system durable, in the given order or all together."""
        if len(paths) < SYNCFS_THRESHOLD or not _sync_file_system(paths[0]):
            for path in paths:
                self.sync_directory(path)

    def sync_all(self, path: Path) -> None:
        """Make everything durable that any process wrote to the file system of a path."""
        if not _sync_file_system(path) and hasattr(os, "sync"):
            os.sync()

    def rename(self, source: Path, target: Path) -> None:
        """Rename `source` to `target` atomically; an existing `target` is replaced."""
        source.replace(target)

    def unlink(self, path: Path) -> None:
        """Remove a file; do nothing if the path does not exist."""
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        """Remove a directory and its contents, as far as possible."""
        import shutil

        shutil.rmtree(path, ignore_errors=True)

    def write_all(
        self,
        files: Iterable[tuple[Path, Path]],
        root: Path,
        relied: Collection[Path] = (),
        shared: bool = False,
    ) -> None:
        """Give temporary files their final names (pairs of paths): sync all files, rename all, sync each directory.

        Synced are also all directories up to `root`, since another process may have just made them, and the directories of
        `relied` files, since another process may have just renamed these files. `shared`: call `share` on each file.
        """
        pairs = list(files)
        for source, target in pairs if shared else ():
            share(source, target)
        self.sync_files([source for source, _ in pairs])

        def above(paths: Iterable[Path]) -> set[Path]:
            """Return the directories above these paths, up to and including `root`."""
            return {up for path in paths for up in path.parents if up == root or root in up.parents}

        for directory in sorted(above(target for _, target in pairs)):
            if not directory.is_dir():
                self.mkdir(directory)
                if shared:
                    share(directory)
        for source, target in pairs:
            self.rename(source, target)
        self.sync_directories(sorted(above([*relied, *(target for _, target in pairs)]), reverse=True))


def write_back(file: BinaryIO, start: int = 0) -> Callable[[int], None]:
    """Return a function to call with the number of bytes just written to `file`, from the offset `start` on. The kernel then
    begins to write them to disk and frees their memory (Linux: posix_fadvise(2), DONTNEED): the final sync has little to do.
    """
    end = advised = start

    def advance(count: int) -> None:
        nonlocal end, advised
        end += count
        if end - advised >= WRITE_BACK_BYTES and hasattr(os, "posix_fadvise"):
            file.flush()
            first = max(start, end - 8 * WRITE_BACK_BYTES)
            os.posix_fadvise(file.fileno(), first, end - first, os.POSIX_FADV_DONTNEED)
            advised = end

    return advance


def _sync_file_system(path: Path) -> bool:
    """Sync the file system of a file by syncfs(2). False if not supported (before Linux 5.8, it reports no errors)."""
    import ctypes

    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None) if sys.platform == "linux" else None
    if syncfs is None:
        return False
    descriptor = os.open(path, os.O_RDONLY)
    try:
        is_synced = not syncfs(descriptor)
    finally:
        os.close(descriptor)
    if not is_synced and (number := ctypes.get_errno()) in MACHINE_ERRNOS:
        raise OSError(number, os.strerror(number), str(path))
    return is_synced


@contextmanager
def replacement(path: Path) -> Iterator[BinaryIO]:
    """A context with a temporary file that replaces `path` atomically at the end. A power cut may lose the change."""
    scratch = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        with scratch.open("xb") as file:
            yield file
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def replace_file(path: Path, data: bytes, times: tuple[float, float] | None = None) -> None:
    """Replace a small file as `replacement` does; make its directory if needed. `times`: of last access and modification."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacement(path) as file:
        file.write(data)
        file.flush()
        if times is not None:
            os.utime(file.fileno() if os.utime in os.supports_fd else file.name, times)


def is_regular(path: Path) -> bool:
    """True if the path is a regular file. A link to a regular file does not count."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def open_regular(path: Path | str, buffering: int = -1) -> BinaryIO:
    """Open a regular file. Raise IntegrityError for a FIFO, device or symlink."""
    try:
        descriptor = os.open(path, SAFE_FLAGS)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return os.fdopen(descriptor, "rb", buffering)
        os.close(descriptor)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
    raise IntegrityError(f"{Path(path).name} is not a regular file", "`reg doctor` says what to do")


def read_bounded(path: Path, limit: int) -> bytes:
    """Read a whole regular file. Raise IntegrityError if the file has more than `limit` bytes, or is not regular."""
    with open_regular(path) as file:
        return read_all(file, path.name, limit)


def read_all(file: BinaryIO, name: str, limit: int) -> bytes:
    """Read a whole open file. Raise IntegrityError if the file has more than `limit` bytes."""
    if (size := os.fstat(file.fileno()).st_size) > limit:
        raise IntegrityError(f"{name} is larger than {limit} bytes")
    return file.read(size)


def check_outfile(target: Path) -> None:
    """Raise InputError if no file can be created or replaced at this path."""
    path = target.resolve()
    if path.exists() and not path.is_file():
        raise InputError(f"{target} is not a file", "name a file, new or old")
    if not path.parent.is_dir():
        raise InputError(f"there is no directory {target.parent}", "make it first, or name another")
    if any((above / "registry.json").exists() for above in path.parents):
        raise InputError(f"{target} is inside a registry", "name a file outside of it")
