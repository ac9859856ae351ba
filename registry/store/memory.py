"""A registry in memory: the reference implementation of an object store, and the fake in other tests."""

import threading
from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import BinaryIO

from onnxreg.registry.store.object_store import ObjectRegistry
from onnxreg.registry.store.protocol import ObjectStore, StoredObject, TreeFile
from onnxreg.schema.core.digest import Digest


class MemoryStore(ObjectStore):
    """Objects by key, which live as long as this Python object."""

    def __init__(self, url: str = "memory:") -> None:
        self.url = url
        self.objects: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def get(self, key: str, cached: StoredObject | None = None) -> StoredObject | None:
        data = self.objects.get(key)
        return None if data is None else (data, Digest.of(data).hex)

    def open(self, key: str, start: int = 0) -> BinaryIO | None:
        data = self.objects.get(key)
        return None if data is None else BytesIO(data[start:])

    def has(self, keys: Iterable[str]) -> set[str]:
        return {key for key in keys if key in self.objects}

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        with self._lock:
            current = self.get(key)
            if (current[1] if current else None) != expected:
                return False
            self.objects[key] = data
            return True

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.objects.pop(key, None)

    def list(self, prefix: str) -> Iterator[TreeFile]:
        objects = sorted(self.objects.copy().items())
        return (
            TreeFile(key, len(data), Digest.of(data).hex) for key, data in objects if key.startswith(prefix)
        )


def memory_remote(
    registry_id: str | None = None, url: str = "memory:", mirror: bool = False
) -> ObjectRegistry:
    """A fresh registry in memory, which may be a mirror of that with this id."""
    return ObjectRegistry.create(MemoryStore(url), registry_id, mirror)
