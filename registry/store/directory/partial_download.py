"""A large blob that is being fetched, in a file that outlives the command: an interrupted pull resumes.

`local/partial/<64 hex>` holds the blob's first bytes; its size says how many. Its space is reserved before the first
byte comes. Its content is not trusted: it is hashed again from its beginning before anything is added.
"""

import hashlib
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

from onnxreg.registry.store import streams
from onnxreg.registry.store.directory.directory_push import past_cache
from onnxreg.registry.store.protocol import CHUNK_BYTES, IncomingBlob
from onnxreg.registry.support.disk import Disk
from onnxreg.schema.core.descriptor import Piece
from onnxreg.schema.core.digest import Digest

MIN_RESUMABLE_BYTES = 2**20
"""Blobs with fewer bytes are fetched anew as a whole."""


class PartialDownload:
    """The file of one blob, locked by this process until `release`."""

    def __init__(self, path: Path, lock: FileLock, disk: Disk) -> None:
        self.path = path
        self._lock = lock
        self._disk = disk

    @classmethod
    def take(cls, directory: Path, digest: Digest, disk: Disk) -> "PartialDownload | None":
        """Lock the file of a blob; None if another process has it."""
        disk.mkdir(directory)
        lock = FileLock(directory / f"{digest.hex}.lock", thread_local=False)
        try:
            lock.acquire(timeout=0)
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
        """Make the file writable. A link is removed, since its target or its bytes belong to somebody else."""
        with suppress(FileNotFoundError):
            status = self.path.lstat()
            if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
                self.path.chmod(0o600)
            else:
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


def clear(directory: Path, disk: Disk) -> int:
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
