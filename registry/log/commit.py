"""Changing a model's log: read, change, compare and swap; on a lost race, read and decide again.

A push and a collector never wait for each other's clock. The pusher reads its **head**, leaves an **intent**,
reads what is **condemned**, makes sure that its **blobs** are under keys that nobody condemned, and swaps the
index that it read. `collect` has the other half; `docs/format.md` has the rule and why it holds.
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
from onnxreg.schema.core.errors import (
    VERIFY_ADVICE,
    ConflictError,
    LostRaceError,
    NotFoundError,
    RegError,
)

MAX_COMMIT_TRIES = 100
MAX_WAIT_SECONDS = 1.0

Change = Callable[[Log], Collection[Digest] | None]
"""Appends events to a log, with their documents, and returns the other blobs that they refer to; None if there is
nothing to do.

It runs again on a fresh log after each lost race, so it must decide from the log alone.
"""

Bring = Callable[[Collection[Digest]], None]
"""Puts blobs into the push that the place turns out to lack."""


def load_own(remote: RegistryReader, name: str, *more: BlobReader) -> Log:
    """Read a model's log in order to change it, empty if the model is new; in a mirror it refuses events.

    Its new lines are signed if a key is configured. `more` are further places where manifests may be read that the
    remote does not hold yet.
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

    `first` is the answer of `load_own`, if the log was read already. Returns the log as it is then. Raise ConflictError
    if the change contradicts what is there; NotFoundError if a blob is missing and nobody brings it.
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
    """Leave an intent under a unique name, so that a collector never takes a later one for it."""
    note = f"{push.id}-{secrets.token_hex(8)}"
    remote.add_note("intents", note, canonical.encode({"name": name}))
    return note


@contextmanager
def announced(remote: RegistryStore, push: Push, name: str) -> Iterator[None]:
    """A collector waits for, or fences, what is done meanwhile to a model's log."""
    with _intents(remote) as intents:
        intents.append(_announce(remote, push, name))
        yield


@contextmanager
def _intents(remote: RegistryStore) -> Iterator[list[str]]:
    """The intents that are left; they are taken back at the end. An error on the way is not hidden by one of that."""
    intents: list[str] = []
    try:
        yield intents
    except BaseException:
        with suppress(RegError):
            _retract(remote, intents)
        raise
    _retract(remote, intents)


def _retract(remote: RegistryStore, intents: list[str], keep: int = 0) -> None:
    """Take intents back, but for the latest ones."""
    while len(intents) > keep:
        remote.remove_note("intents", intents.pop(0))


def read_condemned(remote: RegistryStore) -> set[BlobKey]:
    """The keys that some collector may be about to delete. One that is certainly dead deletes nothing."""
    notes = remote.notes("condemned")
    lines = [data for note, data in notes.items() if remote.is_alive(note) is not False]
    keys = (BlobKey.of_path(path) for data in lines for path in data.decode(errors="replace").split())
    return {key for key in keys if key is not None}


def check_tombstones(log: Log, digests: Iterable[Digest]) -> None:
    """Raise ConflictError if one of these blobs was taken down in this log."""
    tombstoned = sorted(set(digests).intersection(log.tombstones))
    if tombstoned:
        raise ConflictError(
            f"blob {tombstoned[0].short}... of {log.name} was taken down there and may not come back",
            f"`reg log {log.name}` there says why",
        )


def _secure(push: Push, log: Log, digests: Collection[Digest], bring: Bring | None) -> None:
    """Make sure that the push has every blob, or that it is under a key that nobody condemned."""
    check_tombstones(log, [*digests, *log.documents])
    for blob in log.blobs:
        push.put(BytesIO(blob))
    missing = sorted(set(digests) - push.has(digests))
    if missing and bring is not None:
        bring(missing)
    elif missing:
        raise NotFoundError(f"blob {missing[0]} of {log.name} is not there", VERIFY_ADVICE)
