"""Changing a model's log: read, change, compare and swap; on a lost race, read and decide again."""

import random
import time
from collections.abc import Callable
from io import BytesIO

from onnxreg.registry.blobs import fetcher
from onnxreg.registry.ledger import Ledger
from onnxreg.registry.storage import BlobReader, IndexFile, Push, Remote
from onnxreg.schema.errors import LostRaceError

TRIES = 100
LONGEST_WAIT = 1.0
"""Seconds."""


def load(remote: Remote, name: str, *more: BlobReader) -> tuple[Ledger, IndexFile | None]:
    """A model's ledger, empty where the model is new, and the index file that it was read from.

    `more` are further places where manifests may be read that the remote does not hold yet.
    """
    index = remote.read_index(name)
    fetch = fetcher(remote, *more)
    if index is None:
        return Ledger.empty(remote.registry_id, name, fetch), None
    return Ledger.read(index.data, remote.registry_id, name, fetch), index


def commit(
    remote: Remote, push: Push, name: str, change: Callable[[Ledger], bool], *more: BlobReader
) -> Ledger:
    """Apply `change` to the model's ledger and publish it; where it returns False there is nothing to publish.

    `change` runs again on a fresh ledger after each lost race, so it must decide from the ledger alone.
    """
    for attempt in range(TRIES):
        ledger, index = load(remote, name, *more)
        if not change(ledger):
            return ledger
        for blob in ledger.blobs:
            push.put(BytesIO(blob))
        try:
            push.publish(name, ledger.encode(), index.token if index else None)
            return ledger
        except LostRaceError:
            time.sleep(random.uniform(0, min(LONGEST_WAIT, 0.005 * 2**attempt)))
    raise LostRaceError(
        f"{name} in {remote.url} is being changed by others without end", "run the command again"
    )
