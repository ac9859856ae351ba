"""An object store with a listing: what was absent then is not requested before it is written."""

from collections.abc import Iterable, Iterator
from typing import BinaryIO

from onnxreg.registry.store.layout import BlobKey, keys_of
from onnxreg.registry.store.object_store import ObjectStore
from onnxreg.registry.store.protocol import StoredObject


class ListingStore:
    """An `ObjectStore` around another one, for one run over many models.

    A listing may be old. So only `has`, and `get` of an index file, trust that a key is absent, until it is written: a
    write brings its own condition. `open` requests each key, since a newer index file may name a blob that was not
    listed; if it is not under its first key, `has` asks the store for the others. A listed key may be gone: the store
    decides.
    """

    def __init__(self, store: ObjectStore, prefixes: Iterable[str], present: Iterable[str]) -> None:
        """`present` are all keys that begin with `prefixes`; of other keys nothing is known."""
        self.store = store
        self._prefixes = tuple(prefixes)
        self._present = set(present)

    @property
    def url(self) -> str:
        return self.store.url

    def _is_absent(self, key: str) -> bool:
        return key.startswith(self._prefixes) and key not in self._present

    def get(self, key: str, cached: StoredObject | None = None) -> StoredObject | None:
        return None if key.startswith("index/") and self._is_absent(key) else self.store.get(key, cached)

    def open(self, key: str, start: int = 0) -> BinaryIO | None:
        stream, blob = self.store.open(key, start), BlobKey.of_path(key)
        if stream is None and blob is not None:
            self._present.update(later.path for later in keys_of(blob.digest)[1:])
        return stream

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
