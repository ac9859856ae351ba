"""A push into a directory: blobs wait in a staging directory beside it until they get their names."""

import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from onnxreg.registry.store.directory.partial_download import PartialDownload
from onnxreg.registry.store.directory.tree import DirectoryTree
from onnxreg.registry.store.layout import BlobKey, keys_of, usable_key
from onnxreg.registry.store.protocol import IncomingBlob, Push
from onnxreg.registry.store.staging import StagedBlobs
from onnxreg.registry.support.disk import host_errors, is_regular
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import NotFoundError

MIN_RESUMABLE_BYTES = 2**20
"""Blobs with fewer bytes are fetched anew as a whole."""


class DirectoryPush(StagedBlobs, Push):
    """One command's unfinished blobs in a staging directory."""

    def __init__(self, registry: DirectoryTree, directory: Path) -> None:
        super().__init__(directory, registry.url, registry.disk)
        self.id = directory.name
        self._registry = registry
        self._placed: set[BlobKey] = set()
        self._relied: set[BlobKey] = set()
        self._condemned: frozenset[BlobKey] = frozenset()
        self._damaged: frozenset[BlobKey] = frozenset()
        self._partial: dict[Digest, PartialDownload] = {}
        self._fetched: set[Digest] = set()

    def keep_fetched(self) -> None:
        """Keep fetched blobs that arrived whole, though nothing refers to them yet: the next try finds them."""
        with self._lock:
            arrivals = self._fetched & self._staged.keys()
            paths = {digest: self._staged.pop(digest) for digest in arrivals}
        self._give_names({usable_key(digest, self._condemned): path for digest, path in paths.items()})

    def release(self) -> None:
        """Release the partial downloads that this push did not finish."""
        for partial in self._partial.values():
            partial.release()

    def avoid(self, condemned: Collection[BlobKey]) -> None:
        """Avoid condemned keys. Blobs that an earlier `publish` placed under one are staged again if they are still there."""
        self._condemned = frozenset(condemned)
        for key in sorted(self._placed & self._condemned):
            self._placed.remove(key)
            with suppress(NotFoundError), self._registry.open_key(key) as source:
                self.put(source, key.digest)

    def distrust(self, keys: Collection[BlobKey]) -> None:
        self._damaged = frozenset(keys)

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        with self._lock:
            staged = set(self._staged)
        return {digest for digest in digests if digest in staged or self._is_present(digest)}

    def _is_present(self, digest: Digest) -> bool:
        """Look under every key that is not condemned: an earlier attempt may have avoided the plain one."""
        usable = [key for key in keys_of(digest) if key not in self._condemned]
        present_key = next(filter(self._registry.has_key, usable), None)
        if present_key is None or not self._damaged.isdisjoint(usable):
            return False
        self._relied.add(present_key)
        return True

    def local_file(self, digest: Digest) -> Path | None:
        """See `Push.local_file`."""
        present = self._registry.blob_path(digest)
        return self._staged.get(digest) or (present if is_regular(present) else None)

    def fetch(self, blob: IncomingBlob) -> int:
        with self._lock:
            self._fetched.add(blob.digest)
            partial = self._partial.get(blob.digest)
        with host_errors(f"writing a blob to {self._url}"):
            if partial is None and blob.size >= MIN_RESUMABLE_BYTES:
                partial = PartialDownload.take(self._registry.partial, blob.digest, self._disk)
            if partial is None:
                with blob.open(0) as stream:
                    return self.put(stream, blob.digest)[1]
            with self._lock:
                self._partial[blob.digest] = partial
            size = partial.fill(blob)
        self._keep(partial.path, blob.digest)
        return size

    def publish(self, name: str, index: bytes, expected: str | None) -> None:
        self.flush()
        self._registry.swap_index(name, index, expected, self.directory)

    def flush(self) -> None:
        with host_errors(f"writing to {self._url}"):
            keys = {usable_key(digest, self._condemned): path for digest, path in self._staged.items()}
            self._staged, relied, self._relied = {}, self._relied - self._placed, set()
            self._give_names(keys, relied)
            self._placed.update(keys)

    def _give_names(self, staged: Mapping[BlobKey, Path], relied: Iterable[BlobKey] = ()) -> None:
        """Make staged blobs durable under their final names, and those that were there already under theirs.

        A directory that has a blob's path is moved to `local/damaged`, for inspection.
        """
        root = self._registry.root
        targets = [(path, root / key.path) for key, path in staged.items()]
        for directory in {target.parent for _, target in targets}:
            self._registry.refuse_link(directory)
        for _, target in targets:
            if target.is_dir() and not target.is_symlink():
                self._disk.make_directory(root / "local" / "damaged", root / "local")
                self._disk.rename(target, root / "local" / "damaged" / f"{target.name}-{os.urandom(4).hex()}")
        self._disk.write_all(targets, root, [root / key.path for key in relied], shared=True)
