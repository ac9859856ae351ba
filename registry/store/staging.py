"""Blobs of one push that wait in a directory of this machine, hashed as they are written."""

import errno
import secrets
import threading
from pathlib import Path
from typing import BinaryIO

from onnxreg.registry.store import streams
from onnxreg.registry.store.protocol import Hasher
from onnxreg.registry.support.disk import Disk, host_errors, is_regular, set_mode, write_back
from onnxreg.schema.core.digest import Digest


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
