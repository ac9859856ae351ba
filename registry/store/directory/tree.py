"""The files of a registry below a directory: read, and replaced atomically and durably."""

import os
from collections.abc import Iterable, Mapping
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO

from onnxreg.registry.store.directory.scratch import exclusive
from onnxreg.registry.store.layout import BlobKey, index_path, keys_of
from onnxreg.registry.store.protocol import MAX_DOCUMENT_BYTES, MissingBlobError, StoredObject
from onnxreg.registry.support.disk import Disk, host_errors, is_regular, open_regular, path_text, read_bounded
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import IntegrityError, LostRaceError


class DirectoryTree:
    """The files below `root`, which are reached through a `disk`."""

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        self.root = root
        self.disk = disk or Disk()

    @property
    def url(self) -> str:
        return path_text(self.root)

    @property
    def partial(self) -> Path:
        """The directory of partial downloads."""
        return self.root / "local" / "partial"

    def refuse_link(self, path: Path) -> None:
        """IntegrityError if the path goes through a link below the root; the path to the root is its owner's choice."""
        for ancestor in takewhile(lambda above: above != self.root, (path, *path.parents)):
            if ancestor.is_symlink():
                raise IntegrityError(
                    f"{ancestor.relative_to(self.root)} of {self.url} is a link, which no registry has",
                    "somebody else may have prepared it: look at it before you write there",
                )

    def blob_path(self, digest: Digest) -> Path:
        """The file under the first key that has the blob; the path of the plain key if it is absent."""
        paths = [self.root / key.path for key in keys_of(digest)]
        return next(filter(is_regular, paths), paths[0])

    def has_key(self, key: BlobKey) -> bool:
        return is_regular(self.root / key.path)

    def open_key(self, key: BlobKey) -> BinaryIO:
        with host_errors(f"reading blob {key.digest}"):
            try:
                return open_regular(self.root / key.path)
            except (FileNotFoundError, NotADirectoryError):
                raise MissingBlobError(key.digest, self.url) from None

    def read_file(self, path: str, cached: StoredObject | None = None) -> StoredObject | None:
        """See `RegistryReader.read_file`. The token is the SHA-256 of the bytes."""
        data = self.read(path)
        return None if data is None else (data, Digest.of(data).hex)

    def read(self, path: str) -> bytes | None:
        """A small file; None if it is absent."""
        with host_errors(f"reading {path} of {self.url}"):
            try:
                return read_bounded(self.root / path, MAX_DOCUMENT_BYTES)
            except (FileNotFoundError, NotADirectoryError):
                return None

    def swap_index(self, name: str, data: bytes, expected: str | None, scratch: Path) -> None:
        """Compare and swap under the model's lock. LostRaceError if the index is not the expected one."""
        if not self.swap(index_path(name), data, expected, scratch, name):
            raise LostRaceError(f"the index of {name} changed meanwhile")

    def swap(self, path: str, data: bytes, expected: str | None, scratch: Path, lock: str) -> bool:
        """Replace a file under a lock of its own; False if it is not the expected one."""
        lock_path = self.root / "local" / "locks" / f"{lock.replace('/', '~')}.lock"
        with host_errors(f"writing {path} of {self.root}"), exclusive(lock_path):
            current = self.read(path)
            if (None if current is None else Digest.of(current).hex) != expected:
                return False
            self.replace({path: data}, scratch)
            return True

    def replace(self, files: Mapping[str, bytes], scratch: Path, relied: Iterable[str] = ()) -> None:
        """Replace small files atomically, and make their names durable with those of the files `relied` upon."""
        for path in files:
            self.refuse_link((self.root / path).parent)
        pairs = [(self.write_scratch(scratch, data), self.root / path) for path, data in files.items()]
        self.disk.write_all(pairs, self.root, [self.root / path for path in relied], shared=True)

    def write_scratch(self, scratch: Path, data: bytes) -> Path:
        temporary = scratch / os.urandom(8).hex()
        with self.disk.create(temporary) as file:
            file.write(data)
        return temporary
