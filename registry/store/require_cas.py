"""A store that refuses writes until a probe has proven compare-and-swap.

Some servers accept a condition and ignore it, and two writers would lose each other's work without a word. So before
the first write the promises of `promises.py` are tried on a scratch object. The verdict is kept for each user.
"""

import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from onnxreg.registry.store.directory.scratch import PROBE
from onnxreg.registry.store.object_store import ObjectRegistry, StoreWrapper
from onnxreg.registry.store.promises import faults
from onnxreg.registry.store.protocol import ObjectStore
from onnxreg.registry.support.disk import replace_file
from onnxreg.registry.support.environment import state_directory
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import RemoteError


class CasGuardedStore(StoreWrapper):
    """An `ObjectStore` around another one, which is probed before the first write.

    `proof` is the file that records a proven store, once it is known which registry this is.
    """

    proof: Path | None = None

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self._proven = False
        self._lock = threading.Lock()

    def create(self, key: str, source: BinaryIO) -> bool:
        self._prove()
        return self.store.create(key, source)

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        self._prove()
        return self.store.swap(key, data, expected)

    def delete(self, keys: Iterable[str]) -> None:
        self._prove()
        self.store.delete(keys)

    def remember(self, proof: Path) -> None:
        """Record the verdict in this file, and trust it if it is there. A file that cannot be written costs a probe more."""
        with self._lock:
            self.proof = proof
            if self._proven:
                self._record()

    def _record(self) -> None:
        if self.proof is not None:
            with suppress(OSError):
                replace_file(self.proof, b"")

    def _prove(self) -> None:
        """RemoteError if the store ignores conditions."""
        with self._lock:
            if not self._proven and not (self.proof and self.proof.is_file()):
                broken = faults(self.store, f"gc/{PROBE}{os.urandom(8).hex()}")
                if broken:
                    raise RemoteError(
                        f"{self.url} cannot be written safely: {broken[0]}",
                        "two writers would overwrite each other; keep the registry where conditional writes are honoured",
                    )
                self._record()
            self._proven = True


def unguarded(store: ObjectStore) -> ObjectStore:
    """The store itself, without the guard around it, if there is one."""
    return store.store if isinstance(store, CasGuardedStore) else store


def remember(remote: object) -> None:
    """Keep what is proven of a remote, for this user. A copy of the registry has its id, and may be on another server."""
    if isinstance(remote, ObjectRegistry) and isinstance(remote.store, CasGuardedStore):
        name = f"{remote.registry_id}-{Digest.of(remote.url.encode()).hex[:16]}"
        remote.store.remember(state_directory() / "proven" / name)
