"""An object store whose keys were listed: what was absent then is not requested before it is written."""

from collections.abc import Iterable, Iterator
from typing import BinaryIO

from onnxreg.registry.store.object_store import ObjectRegistry, ObjectStore
from onnxreg.registry.store.protocol import StoredObject


class ListedStore:
    """An `ObjectStore` around another one, for one run over many models.

    A listing may be old. So a key that it lacks is absent only until it is written to: a write brings its own condition.
    Whether a listed key is still there, the store decides.
    """

    def __init__(self, store: ObjectStore, prefixes: Iterable[str]) -> None:
        """List what begins with `prefixes`; of other keys nothing is known."""
        self.store = store
        self._prefixes = tuple(prefixes)
        self._present = {key for prefix in self._prefixes for key, _ in store.list(prefix)}

    @property
    def url(self) -> str:
        return self.store.url

    def _is_absent(self, key: str) -> bool:
        return key.startswith(self._prefixes) and key not in self._present

    def get(self, key: str, cached: StoredObject | None = None) -> StoredObject | None:
        return None if self._is_absent(key) else self.store.get(key, cached)

    def open(self, key: str, start: int = 0) -> BinaryIO | None:
        return None if self._is_absent(key) else self.store.open(key, start)

    def has(self, keys: Iterable[str]) -> set[str]:
        doubtful = [key for key in keys if not self._is_absent(key)]
        return self.store.has(doubtful) if doubtful else set()

    def create(self, key: str, source: BinaryIO) -> bool:
        self._present.add(key)
        return self.store.create(key, source)

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        self._present.add(key)
        return self.store.swap(key, data, expected)

    def delete(self, keys: Iterable[str]) -> None:
        self.store.delete(keys)

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        return self.store.list(prefix)


def with_listing(registry: ObjectRegistry, prefixes: Iterable[str]) -> ObjectRegistry:
    """A registry for a run over many models, with the keys listed that begin with `prefixes`."""
    return registry.through(ListedStore(registry.store, prefixes))
