"""A push into a directory: blobs wait in a staging directory beside it until they get their names.

Large files are written past the page cache, if system and file system can (Linux: O_DIRECT, see open(2)). The cache
would take a copy of every byte, and make the writer wait for the disk at the end instead of meanwhile.

A large blob that is being fetched is in a file that outlives the command, so an interrupted pull resumes:
`local/partial/<64 hex>` holds the blob's first bytes; its size says how many. Its space is reserved before the first
byte comes. Its content is not trusted: it is hashed again from its beginning before anything is added.
"""

import errno
import hashlib
import os
import re
import stat
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import BinaryIO, Protocol

from filelock import BaseFileLock, Timeout

from onnxreg.registry.store import streams
from onnxreg.registry.store.directory.scratch import take
from onnxreg.registry.store.layout import BlobKey, keys_of, usable_key
from onnxreg.registry.store.protocol import CHUNK_BYTES, Hasher, IncomingBlob
from onnxreg.registry.store.streams import Sink
from onnxreg.registry.support.disk import Disk, host_errors, set_mode
from onnxreg.schema.core.descriptor import Piece
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import NotFoundError

ALIGNMENT_BYTES = 4096
"""Offset, length and memory address of direct writes are multiples of it; the rest is written as usual."""
MIN_DIRECT_BYTES = 2**20
"""Files with fewer bytes are better left to the cache, which writes many of them at once."""
MIN_RESUMABLE_BYTES = 2**20
"""Blobs with fewer bytes are fetched anew as a whole."""


class PushTarget(Protocol):
    """The part of a directory registry that a push needs."""

    root: Path
    disk: Disk

    @property
    def url(self) -> str: ...

    @property
    def partial(self) -> Path: ...

    def has_key(self, key: BlobKey) -> bool: ...

    def open_key(self, key: BlobKey) -> BinaryIO: ...

    def refuse_link(self, path: Path) -> None: ...

    def swap_index(self, name: str, data: bytes, expected: str | None, scratch: Path) -> None: ...


class DirectoryPush:
    """One command's unfinished blobs in a staging directory."""

    last_step = "committing"

    def __init__(self, remote: PushTarget, directory: Path) -> None:
        self.id = directory.name
        self._remote = remote
        self.directory = directory
        self._staged: dict[Path, Digest] = {}
        self._placed: set[BlobKey] = set()
        self._relied: set[BlobKey] = set()
        self._condemned: frozenset[BlobKey] = frozenset()
        self._damaged: frozenset[BlobKey] = frozenset()
        self._partial: dict[Digest, PartialDownload] = {}
        self._fetched: set[Digest] = set()
        self._lock = threading.Lock()

    def keep_fetched(self) -> None:
        """Keep fetched blobs that arrived whole, though nothing refers to them yet: the next try finds them."""
        with self._lock:
            staged = {path: digest for path, digest in self._staged.items() if digest in self._fetched}
            self._staged = {path: digest for path, digest in self._staged.items() if path not in staged}
        self._give_names({path: usable_key(digest, self._condemned) for path, digest in staged.items()})

    def release(self) -> None:
        """Release the partial downloads that this push did not finish."""
        for partial in self._partial.values():
            partial.release()

    def avoid(self, condemned: Collection[BlobKey]) -> None:
        """Avoid condemned keys. Blobs that an earlier `publish` placed under one are staged again if they are still there."""
        self._condemned = frozenset(condemned)
        for key in sorted(self._placed & self._condemned):
            self._placed.remove(key)
            with suppress(NotFoundError), self._remote.open_key(key) as source:
                self.put(source, key.digest)

    def distrust(self, keys: Collection[BlobKey]) -> None:
        self._damaged = frozenset(keys)

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        with self._lock:
            staged = set(self._staged.values())
        return {digest for digest in digests if digest in staged or self._is_present(digest)}

    def _is_present(self, digest: Digest) -> bool:
        """Look under every key that is not condemned: an earlier attempt may have avoided the plain one."""
        usable = [key for key in keys_of(digest) if key not in self._condemned]
        present_key = next((key for key in usable if self._remote.has_key(key)), None)
        if present_key is None or not self._damaged.isdisjoint(usable):
            return False
        self._relied.add(present_key)
        return True

    def local_file(self, digest: Digest) -> Path | None:
        """See `protocol.LocalPush`."""
        with self._lock:
            staged = next((path for path, item in self._staged.items() if item == digest), None)
        if staged is not None:
            return staged
        present = next((key for key in keys_of(digest) if self._remote.has_key(key)), None)
        return None if present is None else self._remote.root / present.path

    def put(self, source: BinaryIO, expected: Digest | None = None) -> tuple[Digest, int]:
        return self._put(source, expected)

    def _put(
        self,
        source: BinaryIO,
        expected: Digest | None = None,
        hasher: Hasher | None = None,
        large: bool = False,
    ) -> tuple[Digest, int]:
        temporary = self.directory / os.urandom(8).hex()
        with host_errors(f"writing a blob to {self._remote.url}"):
            try:
                with (
                    self._remote.disk.create(temporary) as file,
                    past_cache(file, 0) if large else nullcontext(file) as sink,
                ):
                    digest, size = streams.pump(source, sink, hasher=hasher)
                if expected is not None:
                    streams.check(digest, expected, f"blob {expected}")
            except BaseException:
                self._remote.disk.unlink(temporary)
                raise
        self._keep(temporary, digest)
        return digest, size

    def fetch(self, blob: IncomingBlob) -> int:

        with host_errors(f"writing a blob to {self._remote.url}"):
            with self._lock:
                self._fetched.add(blob.digest)
                partial = self._partial.get(blob.digest)
            if partial is None and blob.size >= MIN_RESUMABLE_BYTES:
                partial = PartialDownload.take(self._remote.partial, blob.digest, self._remote.disk)
            if partial is None:
                with blob.open(0) as stream:
                    return self.put(stream, blob.digest)[1]
            with self._lock:
                self._partial[blob.digest] = partial
            size = partial.fill(blob)
        self._keep(partial.path, blob.digest)
        return size

    def put_file(self, path: Path, hasher: Hasher | None = None) -> tuple[Digest, int]:
        """Move the file if that needs no copy; it is hashed under its new name, where nobody else writes.

        A link is never moved: its bytes are somebody else's, who may change them later.
        """
        temporary = self.directory / os.urandom(8).hex()
        status = path.lstat()
        if (
            not stat.S_ISREG(status.st_mode)
            or status.st_nlink > 1
            or not _move(self._remote.disk, path, temporary)
        ):
            with path.open("rb") as source:
                return self._put(source, hasher=hasher, large=path.stat().st_size >= MIN_DIRECT_BYTES)
        with host_errors(f"reading {path.name}"), temporary.open("rb") as source:
            digest, size = streams.pump(source, None, hasher=hasher)
        self._keep(temporary, digest)
        return digest, size

    def _keep(self, temporary: Path, digest: Digest) -> None:
        set_mode(temporary, 0o444)
        with self._lock:
            self._staged[temporary] = digest

    def publish(self, name: str, index: bytes, expected: str | None) -> None:
        self.flush()
        with host_errors(f"writing to {self._remote.url}"):
            self._remote.swap_index(name, index, expected, self.directory)

    def flush(self) -> None:
        with host_errors(f"writing to {self._remote.url}"):
            keys = {path: usable_key(digest, self._condemned) for path, digest in self._staged.items()}
            self._staged, relied, self._relied = {}, self._relied - self._placed, set()
            self._give_names(keys, relied)
            self._placed.update(keys.values())

    def _give_names(self, staged: Mapping[Path, BlobKey], relied: Iterable[BlobKey] = ()) -> None:
        """Make staged blobs durable under their final names, and those that were there already under theirs."""
        root, disk = self._remote.root, self._remote.disk
        targets = [(temporary, root / key.path) for temporary, key in staged.items()]
        for directory in {target.parent for _, target in targets}:
            self._remote.refuse_link(directory)
        for _, target in targets:
            _set_aside(target, root / "local" / "damaged", disk)
        disk.write_all(targets, root, [root / key.path for key in relied], shared=True)


def _set_aside(path: Path, damaged: Path, disk: Disk) -> None:
    """Move a directory that has a blob's path to `damaged`, for inspection."""
    if path.is_dir() and not path.is_symlink():
        disk.make_directory(damaged, damaged.parent)
        disk.rename(path, damaged / f"{path.name}-{os.urandom(4).hex()}")


def _move(disk: Disk, source: Path, target: Path) -> bool:
    """Move a file without a copy; False if that is not possible, as across file systems."""
    try:
        disk.rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        return False
    return True


class PartialDownload:
    """The file of one blob, locked by this process until `release`."""

    def __init__(self, path: Path, lock: BaseFileLock, disk: Disk) -> None:
        self.path = path
        self._lock = lock
        self._disk = disk

    @classmethod
    def take(cls, directory: Path, digest: Digest, disk: Disk) -> "PartialDownload | None":
        """Lock the file of a blob; None if another process has it."""
        disk.make_directory(directory, directory.parent)
        try:
            lock = take(directory / f"{digest.hex}.lock", 0).lock
        except Timeout:
            return None
        return cls(directory / digest.hex, lock, disk)

    def release(self) -> None:
        """Release the lock and remove its file."""
        self._disk.unlink(Path(self._lock.lock_file))
        self._lock.release()

    def fill(self, blob: IncomingBlob) -> int:
        """Fetch what is missing; returns the size in bytes. IntegrityError, and no file, if the bytes are wrong."""
        self._open_up()
        with self._disk.extend(self.path) as file:
            self._disk.reserve(file, blob.size)
            actual, size = _append(file, blob)
            if actual != blob.digest and _repair_pieces(file, blob):
                actual = _digest(file, size)
        if actual != blob.digest:
            self._disk.unlink(self.path)
            streams.check(actual, blob.digest, f"blob {blob.digest}")
        return size

    def _open_up(self) -> None:
        """Make the file writable. A link, or another user's file, is removed: its bytes belong to somebody else."""
        with suppress(FileNotFoundError):
            status = self.path.lstat()
            if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
                set_mode(self.path, 0o600)
                if os.access(self.path, os.R_OK | os.W_OK):
                    return
            self._disk.unlink(self.path)


def _append(file: BinaryIO, blob: IncomingBlob) -> tuple[Digest, int]:
    """Hash the bytes that are there and fetch the rest; returns digest and size of the whole."""
    if file.seek(0, 2) > blob.size:
        file.truncate(0)
    file.seek(0)
    hasher = hashlib.sha256()
    _, start = streams.pump(file, None, hasher=hasher)
    with blob.open(start) as remainder, past_cache(file, start) as sink:
        digest, size = streams.pump(remainder, sink, hasher=hasher)
    return digest, start + size


def _repair_pieces(file: BinaryIO, blob: IncomingBlob) -> bool:
    """Fetch the bad pieces again; False if they are not known."""
    damaged = [piece for piece in blob.pieces() if _digest(file, piece.stop, piece.start) != piece.digest]
    for piece in damaged:
        file.seek(piece.start)
        with blob.open(piece.start) as stream:
            _copy(stream, file, piece)
    return bool(damaged)


def _copy(stream: BinaryIO, file: BinaryIO, piece: Piece) -> None:
    remaining = piece.stop - piece.start
    while remaining and (data := stream.read(min(CHUNK_BYTES, remaining))):
        remaining -= file.write(data)


def _digest(file: BinaryIO, stop: int, start: int = 0) -> Digest:
    """The digest of a part of a file."""
    hasher = hashlib.sha256()
    file.seek(start)
    while start < stop and (data := file.read(min(CHUNK_BYTES, stop - start))):
        hasher.update(data)
        start += len(data)
    return Digest(hasher.hexdigest())


def clear_partial(directory: Path, disk: Disk) -> int:
    """Remove the files that no process has locked; returns their size in bytes."""
    freed = 0
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        if not re.fullmatch(r"[0-9a-f]{64}", path.name):
            continue
        partial = PartialDownload.take(directory, Digest(path.name), disk)
        if partial is not None:
            freed += path.lstat().st_size
            disk.unlink(path)
            partial.release()
    return freed


@contextmanager
def past_cache(file: BinaryIO, offset: int) -> Iterator[Sink]:
    """A sink for the file's bytes from an offset on. Afterwards the file is written in the usual way again."""
    file.seek(offset)
    if not hasattr(os, "O_DIRECT"):
        yield file
        return
    file.flush()
    sink = _Direct(file.fileno(), offset)
    try:
        yield sink
    finally:
        sink.switch(False)


class _Direct:
    def __init__(self, descriptor: int, offset: int) -> None:
        self._descriptor = descriptor
        self._offset = offset
        self._able = True
        self._on = False

    def write(self, data: memoryview, /) -> None:
        while data:
            fits = self._offset % ALIGNMENT_BYTES == 0 and len(data) % ALIGNMENT_BYTES == 0
            self.switch(fits and self._able)
            try:
                count = os.pwrite(self._descriptor, data, self._offset)
            except OSError as error:
                if not self._on or error.errno != errno.EINVAL:
                    raise
                self._able, count = False, 0
            self._offset += count
            data = data[count:]

    def switch(self, on: bool) -> None:
        """Turn direct I/O on or off; nothing happens if the file system has none."""
        import fcntl

        if on == self._on:
            return
        flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL) & ~os.O_DIRECT
        try:
            fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags | (os.O_DIRECT if on else 0))
            self._on = on
        except OSError:
            self._able = False
