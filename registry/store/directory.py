"""A registry in a local directory. Writes are durable, and any number of processes may write at once.

The folder `local/` belongs to this machine: locks, catalogs, records of pushes, scratch directories. If a command is
killed, the next command deletes its scratch directory. A large blob is fetched into `local/partial/<64 hex>`, so that a
later pull can resume. The later pull hashes these bytes again, because they are not trusted.
"""

import errno
import hashlib
import os
import re
import shutil
import stat
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self

from onnxreg.registry import system
from onnxreg.registry.store import protocol, streams
from onnxreg.registry.store.streams import Hasher
from onnxreg.registry.system import (
    MACHINE_ERRNOS,
    Disk,
    host_errors,
    is_regular,
    open_regular,
    path_text,
    read_all,
    set_mode,
    share,
    write_back,
)
from onnxreg.schema.core.bounds import MAX_DOCUMENT_BYTES
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import HostError, InputError, IntegrityError, LostRaceError, NotFoundError
from onnxreg.schema.core.files import FileState

if TYPE_CHECKING:
    from filelock import BaseFileLock

POLL_SECONDS = 0.01
NO_LOCKS = frozenset({errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL})
"""The error numbers of flock(2) on file systems without locks."""
NOTICE_SECONDS = 3.0  # after this many seconds of waiting for another command, the user gets a message
MIN_RESUMABLE_BYTES = 2**20
"""The minimum size of a blob whose download is resumed. A smaller blob is fetched again from the beginning."""


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """A context that locks a file against other processes. If this process dies, the system releases the lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = take_lock(path, NOTICE_SECONDS)
    if lock is None:
        system.tell(f"waiting for another command, which holds {path}")
        lock = take_lock(path)
    assert lock is not None, "without a limit it is waited for"
    try:
        yield
    finally:
        lock.release()


def take_lock(path: Path, seconds: float = -1) -> "BaseFileLock | None":
    """Lock a file, and return the lock. A missing file is created.

    Returns None if another process still has the lock after `seconds`. Raises HostError if the file system has no
    locks, and FileNotFoundError if the directory is missing or takes no files, such as /proc.
    """
    from filelock import FileLock, Timeout

    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    try:
        os.close(os.open(path, flags, 0o600))
        if not path.parent.stat().st_mode & stat.S_ISVTX:
            with suppress(FileNotFoundError):  # another command deleted it; locking creates it again
                share(path)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise  # locking reports errors that matter
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
    """A context with a directory for a command's unfinished files. Directories of killed commands are removed first."""
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
    names = re.compile(rf"({re.escape(prefix)}[0-9a-f]{{16}})(\.lock)?")
    paths = [path for path in scratch.iterdir() if not path.is_symlink()]
    for name in sorted({match[1] for path in paths if (match := names.fullmatch(path.name))}):
        directory, marker = scratch / name, scratch / f"{name}.lock"
        with suppress(OSError):
            if (lock := take_lock(marker, 0)) is not None:
                try:
                    disk.sync_all(scratch)  # the killed command may have renamed files
                    if directory.is_dir() and not directory.is_symlink():
                        disk.remove_tree(directory)
                    disk.unlink(marker)
                finally:
                    lock.release()


@contextmanager
def temporary(parent: Path | None = None) -> Iterator[Path]:
    """A context with a private directory, in `parent` if possible, else in TMPDIR. It is deleted at the end."""
    from tempfile import gettempdir

    base = Path(gettempdir())
    if parent is not None:
        with suppress(OSError):
            parent.mkdir(0o700, parents=True, exist_ok=True)
            base = parent if os.access(parent, os.W_OK) else base
    with host_errors(f"writing to {base}", MACHINE_ERRNOS), staging(base, Disk(), "onnxreg-") as directory:
        set_mode(directory, 0o700)
        yield directory


MAX_FILE_BYTES = 2**44
"""The maximum size of a file on ext4. A stated size above it is wrong, and is not compared with the free space."""


class StagedBlobs:
    """The half of a `Push` that takes blobs. It keeps them in `directory`. `url` is the registry's, for messages."""

    def __init__(self, directory: Path, url: str, disk: Disk | None = None) -> None:
        self.id = os.urandom(8).hex()
        self.directory = directory
        self._url = url
        self._disk = disk or Disk()
        self._staged: dict[Digest, Path] = {}
        self._lock = threading.Lock()

    def put(
        self, source: BinaryIO, expected: Digest | None = None, hasher: Hasher | None = None
    ) -> tuple[Digest, int]:
        temporary = self.directory / os.urandom(8).hex()
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
        temporary = self.directory / os.urandom(8).hex()
        can_move = is_regular(path) and path.lstat().st_nlink == 1
        try:
            if can_move:
                self._disk.rename(path, temporary)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EACCES, errno.EPERM):
                raise
            can_move = False
        if not can_move:
            with path.open("rb") as source:
                return self.put(source, hasher=hasher)
        with host_errors(f"reading {path.name}"), temporary.open("rb") as source:
            digest, size = streams.pump(source, None, hasher=hasher)
        self._keep(temporary, digest)
        return digest, size

    def _keep(self, path: Path, digest: Digest) -> None:
        set_mode(path, 0o444)
        with self._lock:
            self._staged[digest] = path


def fill(path: Path, disk: Disk, digest: Digest, size: int, open_at: protocol.OpenAt) -> int:
    """Complete a partial download, and return its size in bytes.

    If `path` is a link, or a file that this user may not write, start with a new file. If the digest is wrong at the
    end, delete the file and raise IntegrityError.
    """
    is_own = is_regular(path) and path.lstat().st_nlink == 1
    if is_own:
        set_mode(path, 0o600)
    if not is_own or not os.access(path, os.R_OK | os.W_OK):
        disk.unlink(path)
    with disk.extend(path) as file:
        present_bytes = file.seek(0, os.SEEK_END)
        if shutil.disk_usage(path.parent).free + present_bytes < size <= MAX_FILE_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if present_bytes > size:
            file.truncate(0)
        file.seek(0)
        hasher = hashlib.sha256()
        _, start = streams.pump(file, None, hasher=hasher)
        with open_at(start) as remainder:
            actual, count = streams.pump(remainder, file, write_back(file, start), hasher)
    if actual != digest:
        disk.unlink(path)
        streams.check(actual, digest, f"blob {digest}")
    return start + count


class DirectoryStore(protocol.ObjectStore):
    """An `ObjectStore` of the files below `root`.

    A token from `get` is the SHA-256 of the file's bytes. A token from `list` is of another kind, made from `stat`.
    """

    def __init__(self, root: Path, disk: Disk, url: str = "") -> None:
        self.root = root
        self.disk = disk
        self.url = url or path_text(root)

    def open_file(self, key: str) -> BinaryIO:
        return open_regular(f"{self.root}/{key}")  # a Path takes longer to make than to open

    def read(self, key: str) -> bytes | None:
        if (stream := self.open(key)) is None:
            return None
        with host_errors(f"reading {key} of {self.url}"), stream:
            return read_all(stream, key, MAX_DOCUMENT_BYTES)

    def get(self, key: str, cached: protocol.StoredObject | None = None) -> protocol.StoredObject | None:
        data = self.read(key)
        return None if data is None else protocol.StoredObject(data, Digest.of(data).hex)

    def open(self, key: str, start: int = 0) -> BinaryIO | None:
        with host_errors(f"reading {key} of {self.url}"):
            try:
                stream = self.open_file(key)
            except (FileNotFoundError, NotADirectoryError):
                return None
        stream.seek(start)
        return stream

    def has(self, keys: Iterable[str]) -> set[str]:
        with host_errors(f"looking for files in {self.url}"):
            return {key for key in keys if is_regular(self.root / key)}

    def list(self, prefix: str) -> Iterator[protocol.TreeFile]:
        """List the files below a folder, except `local/` and system files. Raises IntegrityError if it is a link."""
        self.refuse_link(self.root / prefix)
        files, folders, now = list[protocol.TreeFile](), [prefix], time.time_ns()
        with host_errors(f"listing {self.url}"):
            while folders:
                below = folders.pop()
                try:
                    entries = os.scandir(self.root / below)
                except (FileNotFoundError, NotADirectoryError):  # it was deleted meanwhile
                    continue
                with entries:
                    for entry in entries:
                        path = below + entry.name
                        is_folder = entry.is_dir(follow_symlinks=path == "local")
                        if is_folder and path != "local" and not protocol.is_system_path(entry.name):
                            folders.append(f"{path}/")
                        if not is_folder or path.endswith(".jsonl"):
                            try:
                                status = entry.stat(follow_symlinks=False)
                            except FileNotFoundError:
                                continue
                            size = status.st_size if stat.S_ISREG(status.st_mode) else None
                            files.append(protocol.TreeFile(path, size, FileState.of(status).token(now)))
        return iter(sorted(files))

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        with self.staging() as scratch:
            return self.swap_from(scratch, key, data, expected)

    def swap_from(self, scratch: Path, key: str, data: bytes, expected: str | None) -> bool:
        """Swap as `swap` does. The unfinished file is written in the directory `scratch`."""
        lock = self.root / "local" / "locks" / f"{key.replace('/', '~')}.lock"
        with host_errors(f"writing {key} of {self.root}"), exclusive(lock):
            current = self.get(key)
            if (current.token if current else None) != expected:
                return False
            self.replace(scratch, key, data)
            return True

    def replace(self, scratch: Path, key: str, data: bytes) -> None:
        target = self.root / key
        self.refuse_link(target.parent)
        self.disk.write_all([(self.write(scratch, data), target)], self.root, shared=True)

    def write(self, scratch: Path, data: bytes) -> Path:
        temporary = scratch / os.urandom(8).hex()
        with self.disk.create(temporary) as file:
            file.write(data)
        return temporary

    def delete(self, keys: Iterable[str]) -> None:
        key_list, index = list(keys), self.root / "index"
        folders = {(self.root / key).parent for key in key_list if protocol.BlobKey.of_path(key)}
        with host_errors(f"deleting files of {self.url}"):
            if folders:  # after a power cut, an older log would name the deleted blobs
                above = [*(sorted(index.iterdir()) if index.is_dir() else []), index, self.root]
                self.disk.sync_directories([path for path in above if path.is_dir()])
            for key in key_list:
                self.refuse_link((self.root / key).parent)
                self.disk.unlink(self.root / key)
            self.disk.sync_directories([path for path in sorted(folders) if path.is_dir()])

    def refuse_link(self, path: Path) -> None:
        """Raise IntegrityError if the path contains a link below the root. Links above the root are allowed."""
        for ancestor in takewhile(lambda above: above != self.root, (path, *path.parents)):
            if ancestor.is_symlink():
                raise IntegrityError(
                    f"{ancestor.relative_to(self.root)} of {self.url} is a link, which no registry has",
                    "somebody else may have prepared it: look at it before you write there",
                )

    def make_scratch(self) -> None:
        for part in ("local/tmp", "local/locks", "local/partial", "blobs/sha256", "index"):
            self.refuse_link(self.root / part)
        with host_errors(f"writing to {self.root}"):
            for part in ("tmp", "locks"):
                self.disk.make_directory(self.root / "local" / part, self.root)

    @contextmanager
    def staging(self) -> Iterator[Path]:
        self.make_scratch()
        with ExitStack() as stack:
            with host_errors(f"writing to {self.root}"):
                try:
                    directory = stack.enter_context(staging(self.root / "local" / "tmp", self.disk))
                except FileNotFoundError:  # another command, which made no registry, removed it
                    self.make_scratch()
                    directory = stack.enter_context(staging(self.root / "local" / "tmp", self.disk))
                set_mode(directory, 0o700)
            yield directory


class DirectoryRegistry(protocol.RegistryStore):
    """A registry in the directory `root`. Make one by `open` or `create`."""

    store: DirectoryStore

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        self.root = root
        self.disk = disk or Disk()
        self.scratch = root / "local" / "tmp"
        super().__init__(DirectoryStore(root, self.disk))

    @classmethod
    def open(cls, root: Path, disk: Disk | None = None) -> Self:
        """Open a registry. Raises NotFoundError if it does not exist, and HostError if this build is too old."""
        registry = cls(root, disk)
        registry.check_exists()
        return registry

    @classmethod
    def create(cls, root: Path, disk: Disk | None = None, mirror_of: str | None = None) -> Self:
        """Open a registry, or create it if it is missing. Raises InputError if the directory has other files."""
        registry = cls(root, disk)
        if not registry.is_there:
            with host_errors(f"making a registry in {root}"):
                registry.check_not_foreign()
            protocol.create_registry(registry.store, mirror_of, mirror_of is not None)
        registry.check_exists()
        return registry

    def check_not_foreign(self) -> None:
        """Raise InputError if `root` is a file, or has files but no registry."""
        if self.root.exists() and not self.root.is_dir():
            raise InputError(f"{self.root} is a file", "name a directory")
        names = {entry.name for entry in self.root.iterdir()} if self.root.exists() else set()
        names = {name for name in names if not protocol.is_system_path(name)}
        if "registry.json" not in names and names - {"local"}:
            hint = "name a registry, or a directory that is empty or does not exist yet"
            raise InputError(f"{self.root} is not a registry and not empty", hint)

    @property
    def location(self) -> str:
        return os.path.abspath(self.root)  # noqa: PTH100

    @property
    def is_there(self) -> bool:
        return (self.root / "registry.json").exists()

    @property
    def is_shared(self) -> bool:
        """True if other users may write to the scratch directory. They could change a file before it is stored."""
        if os.name != "posix":
            return False
        folders = [path.stat() for path in (self.root, self.scratch.parent, self.scratch)]
        return any(folder.st_mode & 0o022 or folder.st_uid != os.geteuid() for folder in folders)

    def blob_path(self, digest: Digest) -> Path:
        """Return the path of a blob's file. If the blob has no file, return the path for its plain key."""
        keys = protocol.keys_of(digest)
        paths = (self.root / key.path for key in keys)
        return next(filter(is_regular, paths), self.root / keys[0].path)

    def blob_url(self, digest: Digest) -> str:
        return self.blob_path(digest).absolute().as_uri()

    def write_file(self, path: str, data: bytes) -> None:
        """Replace one small file of the tree or of `local/`, atomically and durably."""
        with host_errors(f"writing {path} of {self.root}"), self.store.staging() as scratch:
            self.store.replace(scratch, path, data)

    @contextmanager
    def push(self) -> Iterator["DirectoryPush"]:
        protocol.check_writer(self.identity, self.url)
        with host_errors(f"writing to {self.root}"), self.store.staging() as directory:
            push = DirectoryPush(self, directory)
            try:
                yield push
            except BaseException:
                with suppress(Exception):
                    push.keep_fetched()
                raise
            finally:
                push.release()

    def confirm(self, name: str) -> None:
        with host_errors(f"writing to {self.url}"):
            for directory in Path(protocol.index_path(name)).parents:
                self.disk.sync_directory(self.root / directory)

    def add_note(self, kind: protocol.Kind, note: str, data: bytes) -> None:
        path = self.root / protocol.note_path(kind, note)
        with host_errors(f"writing {protocol.note_path(kind, note)} of {self.url}"):
            self.store.refuse_link(path.parent)
            self.disk.make_directory(path.parent, self.root)
            temporary = self.store.write(self.scratch / note.partition("-")[0], data)
            share(temporary, path)
            self.disk.rename(temporary, path)

    def is_alive(self, note: str) -> bool | None:
        marker = self.scratch / f"{note.partition('-')[0]}.lock"
        with host_errors(f"looking at the locks of {self.url}"):
            try:
                lock = take_lock(marker, 0) if marker.exists() else None
            except PermissionError:
                return None
            if lock is not None:
                lock.release()
            return lock is None and marker.exists()

    def clear_partial(self) -> None:
        """Remove the partial downloads that no running pull has locked."""
        directory = self.root / "local" / "partial"
        with host_errors(f"clearing {directory}"):
            for path in sorted(directory.iterdir()) if directory.is_dir() else ():
                is_blob = re.fullmatch(r"[0-9a-f]{64}", path.name)
                if is_blob and (lock := take_lock(path.with_name(f"{path.name}.lock"), 0)) is not None:
                    self.disk.unlink(path)
                    self.disk.unlink(Path(lock.lock_file))
                    lock.release()


class DirectoryPush(StagedBlobs, protocol.Push):
    def __init__(self, registry: DirectoryRegistry, directory: Path) -> None:
        super().__init__(directory, registry.url, registry.disk)
        self.id = directory.name
        self._registry = registry
        self._placed: set[protocol.BlobKey] = set()
        self._relied: set[protocol.BlobKey] = set()
        self._locks: dict[Path, BaseFileLock] = {}
        self._fetched: set[Digest] = set()

    def keep_fetched(self) -> None:
        """Store the blobs that arrived whole before a failure, so that the next try need not fetch them again."""
        with self._lock:
            arrived = {digest: path for digest, path in self._staged.items() if digest in self._fetched}
            self._staged = {}
        self._give_names(arrived)

    def release(self) -> None:
        for lock in self._locks.values():
            self._disk.unlink(Path(lock.lock_file))
            lock.release()

    def avoid(self, condemned: Collection[protocol.BlobKey]) -> None:
        super().avoid(condemned)
        for key in sorted(self._placed & self.condemned):
            self._placed.remove(key)  # it is staged again, if it still exists
            with suppress(NotFoundError), self._registry.open_key(key) as source:
                self.put(source, key.digest)

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        with self._lock:
            staged = set(self._staged)
        return {digest for digest in digests if digest in staged or self._is_present(digest)}

    def _is_present(self, digest: Digest) -> bool:
        usable = [key for key in protocol.keys_of(digest) if key not in self.condemned]
        present = next((key for key in usable if is_regular(self._registry.root / key.path)), None)
        if present is None or not self.damaged.isdisjoint(usable):
            return False
        self._relied.add(present)
        return True

    def local_file(self, digest: Digest) -> Path | None:
        present = self._registry.blob_path(digest)
        return self._staged.get(digest) or (present if is_regular(present) else None)

    def fetch(self, digest: Digest, size: int, open_at: protocol.OpenAt, path: Path | None = None) -> int:
        with self._lock:
            self._fetched.add(digest)
        partial = self._registry.root / "local" / "partial" / digest.hex
        with host_errors(f"writing a blob to {self._url}"):
            if partial not in self._locks and size >= MIN_RESUMABLE_BYTES:
                self._disk.make_directory(partial.parent, partial.parent.parent)
                if (lock := take_lock(partial.with_name(f"{partial.name}.lock"), 0)) is not None:
                    with self._lock:
                        self._locks[partial] = lock
            if partial not in self._locks:
                with open_at(0) as stream:
                    return self.put(stream, digest)[1]
            count = fill(partial, self._disk, digest, size, open_at)
        self._keep(partial, digest)
        return count

    def publish(self, name: str, index: bytes, expected: str | None) -> None:
        self.flush()
        if not self._registry.store.swap_from(self.directory, protocol.index_path(name), index, expected):
            raise LostRaceError(f"the index of {name} changed meanwhile")

    def flush(self) -> None:
        with host_errors(f"writing to {self._url}"):
            keys = self._give_names(self._staged, self._relied - self._placed)
        self._staged, self._relied = {}, set()
        self._placed.update(keys)

    def _give_names(
        self, staged: Mapping[Digest, Path], relied: Iterable[protocol.BlobKey] = ()
    ) -> list[protocol.BlobKey]:
        """Move staged blobs durably to usable keys, and return the keys.

        `relied` are keys of blobs that exist already. Their names are made durable too.
        """
        root, keys = self._registry.root, [protocol.usable_key(digest, self.condemned) for digest in staged]
        targets = [(path, root / key.path) for key, path in zip(keys, staged.values(), strict=True)]
        for directory in {target.parent for _, target in targets}:
            self._registry.store.refuse_link(directory)
        self._disk.write_all(targets, root, [root / key.path for key in relied], shared=True)
        return keys
