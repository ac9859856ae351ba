"""A store that refuses writes until a probe has proven compare-and-swap.

Some servers accept a condition and ignore it, and two writers would lose each other's work without a word. So before
the first write the promises of `promises.py` are tried on a scratch object. The verdict may be kept elsewhere.
"""

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from onnxreg.registry.store.directory.scratch import PROBE
from onnxreg.registry.store.object_store import ObjectRegistry, ObjectStore, TokenLister
from onnxreg.registry.store.protocol import StoredObject
from onnxreg.registry.support.disk import replace_file
from onnxreg.registry.support.environment import state_directory
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import RemoteError


class CasProof(Protocol):
    """The record of a proven store."""

    def is_known(self) -> bool:
        """True if the store was proven before."""
        ...

    def keep(self) -> None:
        """Record that the store is proven."""
        ...


@dataclass(frozen=True)
class RecordedCasProof:
    """The verdict on the place of a registry, in `proven/` of the user's state directory.

    A copy of that registry has the same id, and may be on another server. If the verdict cannot be read or written,
    the next command probes again.
    """

    registry_id: str
    url: str

    @property
    def _path(self) -> Path:
        name = f"{self.registry_id}-{Digest.of(self.url.encode()).hex[:16]}"
        return state_directory() / "proven" / name

    def is_known(self) -> bool:
        return self._path.is_file()

    def keep(self) -> None:
        with suppress(OSError):
            replace_file(self._path, b"")


class CasGuardedStore:
    """An `ObjectStore` around another one, which is probed before the first write."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self._proof: CasProof | None = None
        self._proven = False
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return self.store.url

    def remember(self, proof: CasProof) -> None:
        """Use this record from now on: write the verdict to it, and trust a verdict in it."""
        with self._lock:
            if self._proven:
                proof.keep()
            self._proof = proof

    def get(self, key: str, cached: StoredObject | None = None) -> StoredObject | None:
        return self.store.get(key, cached)

    def open(self, key: str, start: int = 0) -> BinaryIO | None:
        return self.store.open(key, start)

    def has(self, keys: Iterable[str]) -> set[str]:
        return self.store.has(keys)

    def create(self, key: str, source: BinaryIO) -> bool:
        self._prove()
        return self.store.create(key, source)

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        self._prove()
        return self.store.swap(key, data, expected)

    def delete(self, keys: Iterable[str]) -> None:
        self._prove()
        self.store.delete(keys)

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        return self.store.list(prefix)

    def tokens(self, prefix: str) -> Iterator[tuple[str, str]]:
        if isinstance(self.store, TokenLister):
            return self.store.tokens(prefix)
        return ((key, "") for key, _ in self.store.list(prefix))

    def is_token_of(self, token: str, data: bytes) -> bool:
        return isinstance(self.store, TokenLister) and self.store.is_token_of(token, data)

    def _prove(self) -> None:
        """RemoteError if the store ignores conditions."""
        with self._lock:
            if not self._proven and not (self._proof and self._proof.is_known()):
                self._probe()
                if self._proof is not None:
                    self._proof.keep()
            self._proven = True

    def _probe(self) -> None:
        from onnxreg.registry.store.promises import faults

        broken = faults(self.store, f"gc/{PROBE}{os.urandom(8).hex()}")
        if broken:
            raise RemoteError(
                f"{self.url} cannot be written safely: {broken[0]}",
                "two writers would overwrite each other; keep the registry where conditional writes are honoured",
            )


def unguarded(store: ObjectStore) -> ObjectStore:
    """The store itself, without the guard around it, if there is one."""
    return store.store if isinstance(store, CasGuardedStore) else store


def remember(remote: object) -> None:
    """Keep what is proven of a remote, for this user."""
    if isinstance(remote, ObjectRegistry) and isinstance(remote.store, CasGuardedStore):
        remote.store.remember(RecordedCasProof(remote.registry_id, remote.url))
