"""The promise of an object store that the registry relies on: a swap replaces exactly what was read.

Some servers accept a condition and ignore it, and two writers would lose each other's work without a word. So the first
write to a bucket tries conditional writes.
"""

import secrets
import sys
from collections.abc import Iterator
from contextlib import suppress

from onnxreg.registry.store.layout import PROBE
from onnxreg.registry.store.protocol import ObjectStore
from onnxreg.registry.support.disk import replace_file
from onnxreg.registry.support.environment import state_directory
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import RegError, RemoteError


def prove(store: ObjectStore, server: str) -> None:
    """Try a store before the first write of this user to a `server`: a text that tells the place from all others.

    RemoteError if it ignores conditions. A success is recorded in the user's state directory; a record that cannot be
    written costs a trial more.
    """
    record = state_directory() / "proven" / Digest.of(server.encode()).hex[:32]
    if record.is_file():
        return
    if faults := cas_faults(store):
        raise RemoteError(
            f"{store.url} cannot be written safely: {faults[0]}",
            "two writers would overwrite each other; keep the registry where conditional writes are honoured",
        )
    with suppress(OSError):
        replace_file(record, b"")


def cas_faults(store: ObjectStore) -> list[str]:
    """The faults of conditional writes, in words, tried on one new object; none if the promise is kept."""
    key = f"{PROBE}{secrets.token_hex(8)}"
    try:
        return list(_faults(store, key))
    finally:
        with suppress(*([RegError] if sys.exc_info()[1] else [])):
            store.delete([key])


def _faults(store: ObjectStore, key: str) -> Iterator[str]:
    if not store.swap(key, b"first", None):
        yield "an object that is not there cannot be created"
    if store.swap(key, b"second", None):
        yield "an object that is there can be created again"
    data, token = store.get(key) or (b"", "")
    if data != b"first":
        yield "what was created is not what is read"
    if not store.swap(key, b"third", token):
        yield "a swap with the right token is refused"
    if store.swap(key, b"fourth", token):
        yield "a swap with a stale token is done"
    if (store.get(key) or (b"", ""))[0] != b"third":
        yield "what was swapped in is not what is read"
    store.delete([key])
    if store.get(key) is not None:
        yield "an object that was deleted is still there"
