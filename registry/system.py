"""The operating system: environment variables and the user's directories, durable files, threads.

* Only this module reads the environment variables of `reg`.
* A store uses the file system only through `Disk`, which the crash tests replace.
* `run_parallel` runs work on several threads. After Ctrl-C, or if one thread fails, it sets a stop event. Code
  that waits or copies calls `sleep` or `check_stop`, which then raise CancelledError.
"""

import errno
import os
import stat
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from onnxreg.schema.core.errors import HostError, InputError, IntegrityError, RegError

tell: Callable[[str], None] = lambda message: None
"""A function that is called with sentences for the user, for example about a long wait. `reg` replaces it."""

VARIABLES = {
    "REG_HOME": "The default registry's directory.",
    "REG_ACTOR": "The claimed author of events, for the log; empty: nobody; default: user@host.",
    "REG_MAX_AGE": "The greatest age of a remote's answer: 12h, 7d.",
    "REG_READ_TIMEOUT": "Seconds without a byte after which a remote counts as silent: 60.",
    "REG_READ_DEADLINE": "Seconds that one file of a remote may take, all its reads and tries together: 86400; 0: no limit.",
    "REG_CACHE_SIZE": "The size limit of the cache of export steps: 20GB.",
    "REG_SERVE_TOKEN": "The token that clients of a served registry must send.",
    "REG_TOKEN_HOST": "The token for the web server HOST, such as REG_TOKEN_MODELS_EXAMPLE for models.example.",
    "REG_SIGNING_KEY": "The name of the key that signs each line of a log, or a private key itself as PEM.",
    "REG_KEY_PASSPHRASE": "The passphrase of a key, if there is no terminal to ask on.",
    "REG_KEYS": "The directory of your keys.",
    "REG_TRUST": "The file of the keys that you trust.",
    "REG_STATE": "The directory of what is remembered for you: known heads, remotes, your files, the cache.",
}
"""Each variable and its meaning. `REG_TOKEN_HOST` means one variable for each host."""
TOKEN_PREFIX = "REG_TOKEN_"
NO_HOME = Path("/nonexistent")
"""The home directory of an account that has none. This path does not exist and cannot be created."""
MAX_ACTOR_CHARACTERS = 200
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


def variable(name: str) -> str | None:
    return os.environ.get(name)


def variable_names() -> list[str]:
    """List the environment variables of `reg`, and those of the form `REG_TOKEN_HOST` that are set."""
    hosts = sorted(name for name in os.environ if name.startswith(TOKEN_PREFIX))
    return [name for name in VARIABLES if not name.startswith(TOKEN_PREFIX)] + hosts


def default_root() -> Path:
    """Return the directory of the default registry: `REG_HOME`, else the user's data directory of this platform."""
    if home := _named("REG_HOME"):
        return home
    if _home() is None:
        hint = "set REG_HOME to a directory of yours, or name the registry: reg --registry DIRECTORY"
        raise HostError("this account has no home directory, so there is no default registry", hint)
    from platformdirs import user_data_path

    return user_data_path("onnxreg", appauthor=False)


def trust_file() -> Path:
    return _named("REG_TRUST") or _user_directory("config", ".config") / "trust.toml"


def key_directory() -> Path:
    return _named("REG_KEYS") or _user_directory("config", ".config") / "keys"


def state_directory() -> Path:
    return _named("REG_STATE") or _user_directory("state", ".local/state")


def cache_directory() -> Path:
    state = _named("REG_STATE")
    return state / "cache" if state else _user_directory("cache", ".cache")


def _named(name: str) -> Path | None:
    value = variable(name)
    return Path(os.path.expanduser(value)) if value else None  # noqa: PTH111


def _home() -> Path | None:
    home = os.path.expanduser("~")  # noqa: PTH111
    return None if home == "~" else Path(home)


def _user_directory(kind: str, below_home: str) -> Path:
    """Return the user's directory of a kind, such as `cache`. It is never the directory of the default registry."""
    if sys.platform == "linux":  # importing platformdirs takes longer than a `reg resolve`
        base = os.environ.get(f"XDG_{kind.upper()}_HOME", "")
        return (Path(base) if base.startswith("/") else (_home() or NO_HOME) / below_home) / "onnxreg"
    import platformdirs

    return Path(getattr(platformdirs, f"user_{kind}_path")("onnxreg-user", appauthor=False))


def stamp(name: str, actor: str | None = None, reason: str | None = None) -> dict[str, Any]:
    """Return the common fields of a new event about a model. The `time` is for people, and does not order events.

    Raise InputError if the actor or the reason is not UTF-8.
    """
    claims = {"actor": actor_of_event(actor), "reason": reason}
    for key, text in claims.items():
        if any("\ud800" <= letter < "\ue000" for letter in text or ""):
            hint = f"write it in UTF-8: {'REG_ACTOR' if key == 'actor' else '--reason'}"
            raise InputError(f"the {key} is not UTF-8: {text!r:.80}", hint)
    time = datetime.now(UTC).strftime(TIME_FORMAT)
    return {"name": name, "time": time, "nonce": os.urandom(16).hex(), **claims}


def actor_of_event(actor: str | None) -> str | None:
    """Return the author to record: `actor`, else `REG_ACTOR`, else `user@host`. Return None if empty or unknown."""
    actor = variable("REG_ACTOR") if actor is None else actor
    if actor is not None:
        return actor or None
    from getpass import getuser
    from socket import gethostname

    parts = []
    for part in (getuser, gethostname):
        with suppress(ImportError, KeyError, OSError):
            parts.append(part())
    name = "@".join(filter(None, parts))
    return "".join(letter if letter.isprintable() else "?" for letter in name)[:MAX_ACTOR_CHARACTERS] or None


MACHINE_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE})
"""The error numbers that mean a fault of this machine, such as a full disk, whatever call raised them."""
NO_DIRECTORY_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOTTY, errno.EBADF, errno.ENOSYS})
"""The error numbers of fsync(2) on a directory if its file system, such as SMB, cannot sync directories."""
WRITE_BACK_BYTES = 2**23
SYNCFS_THRESHOLD = 32
"""From this number of files or directories on, one syncfs(2) is cheaper than an fsync(2) for each."""
SAFE_FLAGS = sum(getattr(os, name, 0) for name in ("O_RDONLY", "O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
"""The flags of open(2) that refuse a link, and do not block on a FIFO or device."""

READ_ONLY = "the file system is mounted read-only: remount it, or use another place"
_HINTS = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some space there, then run the same command again"),
    errno.EROFS: READ_ONLY,
    errno.EXDEV: "blobs, index and local of a registry must be on one file system: mount the whole registry",
}


@contextmanager
def host_errors(operation: str, only: frozenset[int] | None = None) -> Iterator[None]:
    """A context that turns an OSError into a HostError about `operation`: any error, or one with a number in `only`."""
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
    """Return a path as text. A path that is not UTF-8 becomes a `file://` URL, so that any document can contain it."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return path.absolute().as_uri()
    return str(path)


def set_mode(path: Path, mode: int, group: int | None = None) -> None:
    """Set the group (if given) and the permissions of a file or directory, if the file system has permissions."""
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
    """Raise an error of `os.walk` about a directory that cannot be listed. Ignore a directory that was deleted."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


class Disk:
    """The calls that reach the file system. Tests replace this class to simulate a power cut."""

    def create(self, path: Path) -> BinaryIO:
        return path.open("xb")

    def extend(self, path: Path) -> BinaryIO:
        """Open a file for reading and writing at any offset. A missing file is created."""
        return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666), "r+b")

    def mkdir(self, path: Path) -> None:
        path.mkdir(exist_ok=True)

    def make_directory(self, path: Path, root: Path) -> None:
        """Make a directory and its missing parents durably. On new directories below `root`, call `share`."""
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
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_directory(self, path: Path) -> bool:
        """Make a directory's names durable. Return False if its file system cannot sync directories."""
        try:
            if os.name == "posix":
                self.sync_file(path)
        except OSError as error:
            if error.errno not in NO_DIRECTORY_SYNC:
                raise
            return False
        return True

    def sync_files(self, paths: Sequence[Path]) -> None:
        """Make the bytes of files in one file system durable."""
        if len(paths) < SYNCFS_THRESHOLD or not _sync_file_system(paths[0]):
            for path in paths:
                self.sync_file(path)

    def sync_directories(self, paths: Sequence[Path]) -> None:
        """Sync directories of one file system in this order. Then the names in the directories are durable."""
        if len(paths) < SYNCFS_THRESHOLD or not _sync_file_system(paths[0]):
            for path in paths:
                self.sync_directory(path)

    def sync_all(self, path: Path) -> None:
        """Make all files in the file system of a path durable, including the files of other processes."""
        if not _sync_file_system(path) and hasattr(os, "sync"):
            os.sync()

    def rename(self, source: Path, target: Path) -> None:
        source.replace(target)

    def unlink(self, path: Path) -> None:
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
        """Move temporary files durably to their final paths (`files`: pairs of paths), and make missing directories.

        The files `relied` exist already, but another process may have made them just now. Therefore their names are
        made durable too, by syncing all directories from these files up to `root`. If `shared` is set, `share` is
        called on each new file and directory.
        """
        pairs = list(files)
        for source, target in pairs if shared else ():
            share(source, target)
        self.sync_files([source for source, _ in pairs])

        def above(paths: Iterable[Path]) -> set[Path]:
            return {root / up for path in paths for up in path.relative_to(root).parents}

        for directory in sorted(above(target for _, target in pairs)):
            if not directory.is_dir():
                self.mkdir(directory)
                if shared:
                    share(directory)
        for source, target in pairs:
            self.rename(source, target)
        self.sync_directories(sorted(above([*relied, *(target for _, target in pairs)]), reverse=True))


def write_back(file: BinaryIO, start: int = 0) -> Callable[[int], None]:
    """Return a function that makes the kernel write `file` to the disk early.

    Call the function after each write, with the number of bytes that were written.
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
    """A context with a temporary file, which replaces `path` atomically at the end. A power cut may lose the change."""
    scratch = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        with scratch.open("xb") as file:
            yield file
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def replace_file(path: Path, data: bytes, times: tuple[float, float] | None = None) -> None:
    """Replace a small file as `replacement` does. A missing directory is made. `times` are the new atime and mtime."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacement(path) as file:
        file.write(data)
        file.flush()
        if times is not None:
            os.utime(file.fileno() if os.utime in os.supports_fd else file.name, times)


def is_regular(path: Path) -> bool:
    """True for a regular file, but not for a link to one."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def open_regular(path: Path | str) -> BinaryIO:
    """Open a regular file. Raise IntegrityError for a FIFO, device or symlink."""
    try:
        descriptor = os.open(path, SAFE_FLAGS)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return os.fdopen(descriptor, "rb")
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
    if os.fstat(file.fileno()).st_size > limit:
        raise IntegrityError(f"{name} is larger than {limit} bytes")
    return file.read()  # a read with a size may return less


def check_outfile(target: Path) -> None:
    """Raise InputError if no file can be created or replaced at this path."""
    path = target.resolve()
    if path.exists() and not path.is_file():
        raise InputError(f"{target} is not a file", "name a file, new or old")
    if not path.parent.is_dir():
        raise InputError(f"there is no directory {target.parent}", "make it first, or name another")
    check_outside(target)


def check_outside(target: Path) -> None:
    """Raise InputError if this path is inside a registry."""
    if any((above / "registry.json").exists() for above in target.resolve().parents):
        raise InputError(f"{target} is inside a registry", "name a file outside of it")


WORKERS = 8
JOIN_TIMEOUT_SECONDS = 1.0
"""Maximum time to wait for threads after Ctrl-C. A thread that waits for a server may not react."""
POLL_SECONDS = 0.1

Item = TypeVar("Item")
Result = TypeVar("Result")
_event: ContextVar[threading.Event] = ContextVar("stop", default=threading.Event())  # noqa: B039
"""The stop event of the current `run_parallel`. Outside of such a call, the event is never set."""


class CancelledError(RegError, family="interrupted"):
    """The call of `run_parallel` that started this thread has ended."""


def check_stop() -> None:
    if _event.get().is_set():
        raise CancelledError("stopped")


def sleep(seconds: float) -> None:
    """Wait, but raise CancelledError as soon as the current `run_parallel` ends."""
    if _event.get().wait(seconds):
        raise CancelledError("stopped")


def run_parallel(work: Callable[[Item], Result], items: Iterable[Item], workers: int = 0) -> list[Result]:
    """Apply `work` to every item on `workers` threads (0: `WORKERS`) and return the results in order."""
    from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait

    stop = threading.Event()
    pool = ThreadPoolExecutor(workers or WORKERS)  # even for one item: this thread must notice Ctrl-C
    futures: list[Future[Result]] = []
    try:
        for item in items:  # not all at once: after Ctrl-C, only running items are awaited
            context = copy_context()
            context.run(_event.set, stop)
            futures.append(pool.submit(context.run, work, item))
        wait(futures, return_when=FIRST_EXCEPTION)
        failed = [future for future in futures if future.done() and future.exception() is not None]
        return [future.result() for future in (failed or futures)]
    except BaseException as error:
        stop.set()
        pool.shutdown(wait=False, cancel_futures=True)
        running = [future for future in futures if not future.cancelled()]
        wait(running, timeout=None if isinstance(error, Exception) else JOIN_TIMEOUT_SECONDS)
        raise
    finally:
        pool.shutdown(wait=False)
