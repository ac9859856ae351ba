"""Change a model's log: read, change, compare and swap; after a lost race, read and decide again.

A push and a collector need no common clock. The pusher reads the log's **head**, leaves an **intent**, reads the
**condemned** keys, makes sure that its **blobs** are under keys that nobody condemned, and replaces the index file
that it read. `collect` has the collector's part; `docs/format.md` has the rule and its proof.
"""

import random
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO

from onnxreg.registry.log.log import Log
from onnxreg.registry.log.lookup import consult
from onnxreg.registry.signing import line_signer
from onnxreg.registry.store.layout import BlobKey
from onnxreg.registry.store.protocol import (
    BlobReader,
    IndexFile,
    MissingBlobError,
    Push,
    RegistryReader,
    RegistryStore,
)
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import VERIFY_ADVICE, ConflictError, LostRaceError, NotFoundError, RegError

MAX_COMMIT_TRIES = 100
MAX_WAIT_SECONDS = 1.0

Change = Callable[[Log], Collection[Digest] | None]
"""A function that appends events and their documents to a log, and returns the other blobs that the events refer to;
None if there is nothing to do.

The function runs again on a fresh log after each lost race, so it must decide from the log alone.
"""

Bring = Callable[[Collection[Digest]], None]
"""A function that puts the missing blobs, given by digest, into the push."""


def load_own(remote: RegistryReader, name: str, *more: BlobReader) -> Log:
    """Read a model's log in order to change it; a new model's log is empty, and the log of a mirror refuses events.

    New lines are signed if a key is configured. `more` may have manifests that `remote` does not have yet.
    """
    log = consult(remote, name, Log.check, *more, new=True)
    log.mirrored, log.sign = remote.is_mirror, line_signer()
    return log


def commit(
    remote: RegistryStore,
    push: Push,
    name: str,
    change: Change,
    *more: BlobReader,
    bring: Bring | None = None,
    first: Log | None = None,
) -> Log:
    """Apply `change` to the model's log and publish it with every blob that it refers to.

    `first` is the result of `load_own`, if the log was read already. Return the changed log. Raise ConflictError if the
    change contradicts the log; NotFoundError if a blob is missing and there is no `bring`.
    """
    lost = LostRaceError("")
    with _intents(remote) as intents:
        for attempt in range(MAX_COMMIT_TRIES):
            log = first or load_own(remote, name, *more)
            first = None
            try:
                digests = change(log)
            except MissingBlobError as error:
                if remote.read_index(name) == log.index:
                    raise
                lost = LostRaceError(error.message)  # a collector freed what the log no longer names
                continue
            if digests is None:
                remote.confirm(name)
                return log
            try:
                if digests or log.blobs:
                    intents.append(_announce(remote, push, name))
                    push.avoid(read_condemned(remote))
                    _secure(push, log, digests, bring)
                    _retract(remote, intents, keep=1)
                data = log.encode()
                push.publish(name, data, log.index.token if log.index else None)
                log.index = IndexFile(data, "")
                return log
            except LostRaceError as error:
                lost = error
                time.sleep(random.uniform(0, min(MAX_WAIT_SECONDS, 0.005 * 2**attempt)))
    hint = lost.hint or "others change it without end: run the command again"
    raise LostRaceError(f"gave up after {MAX_COMMIT_TRIES} tries in {remote.url}: {lost.message}", hint)


def _announce(remote: RegistryStore, push: Push, name: str) -> str:
    """Leave an intent under a unique name, so that a collector never confuses it with a later intent."""
    note = f"{push.id}-{secrets.token_hex(8)}"
    remote.add_note("intents", note, canonical.encode({"name": name}))
    return note


@contextmanager
def announced(remote: RegistryStore, push: Push, name: str) -> Iterator[None]:
    """Announce a change to a model's log while the block runs, so that a collector waits for the change or fences it."""
    with _intents(remote) as intents:
        intents.append(_announce(remote, push, name))
        yield


@contextmanager
def _intents(remote: RegistryStore) -> Iterator[list[str]]:
    """Yield a list of intents, which are removed at the end. An error of the block hides any error of the removal."""
    intents: list[str] = []
    try:
        yield intents
    except BaseException:
        with suppress(RegError):
            _retract(remote, intents)
        raise
    _retract(remote, intents)


def _retract(remote: RegistryStore, intents: list[str], keep: int = 0) -> None:
    """Remove intents, except the `keep` latest ones."""
    while len(intents) > keep:
        remote.remove_note("intents", intents.pop(0))


def read_condemned(remote: RegistryStore) -> set[BlobKey]:
    """The keys that a collector may be about to delete; the keys of certainly dead collectors are left out."""
    notes = remote.notes("condemned")
    lines = [data for note, data in notes.items() if remote.is_alive(note) is not False]
    keys = (BlobKey.of_path(path) for data in lines for path in data.decode(errors="replace").split())
    return {key for key in keys if key is not None}


def check_tombstones(log: Log, digests: Iterable[Digest]) -> None:
    """Raise ConflictError if one of these blobs was taken down in this log."""
    tombstoned = sorted(set(digests).intersection(log.tombstones))
    if tombstoned:
        down = f"blob {tombstoned[0].short}... of {log.name} was taken down there and may not come back"
        raise ConflictError(down, f"`reg log {log.name}` there says why")


def _secure(push: Push, log: Log, digests: Collection[Digest], bring: Bring | None) -> None:
    """Make sure that the push has every blob, in the push itself or under a key that nobody condemned."""
    check_tombstones(log, [*digests, *log.documents])
    for blob in log.blobs:
        push.put(BytesIO(blob))
    missing = sorted(set(digests) - push.has(digests))
    if missing and bring is not None:
        bring(missing)
    elif missing:
        raise NotFoundError(f"blob {missing[0]} of {log.name} is not there", VERIFY_ADVICE)
