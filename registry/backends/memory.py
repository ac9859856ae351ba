"""A registry in memory: the reference of what a backend does, and the fake in other tests."""

import secrets
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from onnxreg.registry import hashing
from onnxreg.registry.storage import IndexFile, blob_path
from onnxreg.schema.digest import Digest
from onnxreg.schema.errors import LostRaceError, NotFoundError


class MemoryRemote:
    """`memory:`. Lives as long as the object."""

    def __init__(self, registry_id: str | None = None) -> None:
        self.registry_id = registry_id or secrets.token_hex(16)
        self.url = "memory:"
        self.blobs: dict[Digest, bytes] = {}
        self.indexes: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def blob_url(self, digest: Digest) -> str:
        return f"memory:{blob_path(digest)}"

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        return {digest for digest in digests if digest in self.blobs}

    def open_blob(self, digest: Digest) -> BinaryIO:
        if digest not in self.blobs:
            raise NotFoundError(f"blob {digest} is not in {self.url}")
        return BytesIO(self.blobs[digest])

    def read_index(self, name: str) -> IndexFile | None:
        data = self.indexes.get(name)
        return None if data is None else IndexFile(data, Digest.of(data).hex)

    def names(self) -> Iterator[str]:
        return iter(sorted(self.indexes))

    @contextmanager
    def push(self) -> Iterator["MemoryPush"]:
        yield MemoryPush(self)

    def swap_index(self, name: str, data: bytes, expected: str | None) -> None:
        with self._lock:
            found = self.read_index(name)
            if (found.token if found else None) != expected:
                raise LostRaceError(f"the index of {name} changed meanwhile")
            self.indexes[name] = data


class MemoryPush:
    def __init__(self, remote: MemoryRemote) -> None:
        self._remote = remote
        self._staged: dict[Digest, bytes] = {}

    def put(self, source: BinaryIO, expected: Digest | None = None) -> tuple[Digest, int]:
        sink = BytesIO()
        digest, size = hashing.pump(source, sink)
        if expected is not None:
            hashing.check(digest, expected, f"blob {expected}")
        self._staged[digest] = sink.getvalue()
        return digest, size

    def put_file(self, path: Path) -> tuple[Digest, int]:
        with path.open("rb") as source:
            return self.put(source)

    def publish(self, name: str, index: bytes, expected: str | None) -> None:
        self._remote.blobs.update(self._staged)
        self._remote.swap_index(name, index, expected)
