"""Change a model's log, and delete the blobs that no log refers to, even while others push.

A change replaces the model's index file by compare-and-swap. If the swap fails, the change is made on the newer log.

A *collector* deletes unneeded blobs. Pushes and collectors use no common clock. They write notes for each other:

* A push reads the log, writes a note (its *intent*), and reads which keys (paths of blobs) are *condemned*. It makes
 sure that each of its blobs is under a key that is not condemned. Then it replaces the index file that it read.
* A collector condemns keys in a note, waits for the pushes that have intents, and reads the logs. Then it deletes the
 condemned keys that no log refers to, and removes its note. `docs/format.md` has the proof.
"""

import random
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from io import BytesIO
from operator import itemgetter
from typing import Any

from msgspec import Struct

from onnxreg.registry import system
from onnxreg.registry.log.contents import present_versions, references
from onnxreg.registry.log.log import Log, consult, load, unknown_model
from onnxreg.registry.store.protocol import (
    BlobKey,
    BlobReader,
    MissingBlobError,
    Push,
    RegistryReader,
    RegistryStore,
    StoredObject,
    is_system_path,
    model_of,
    note_path,
)
from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import (
    VERIFY_ADVICE,
    ConflictError,
    IntegrityError,
    LostRaceError,
    NotFoundError,
    RegError,
    about,
)
from onnxreg.schema.core.ref import check_name
from onnxreg.schema.log.events import Fence
from onnxreg.schema.signing.dsse import SignLine, sign_line

MAX_COMMIT_TRIES = 100
MAX_WAIT_SECONDS = 1.0
PUSH_WAIT_SECONDS = 60.0
"""A collector waits this long for running pushes. Then it makes them start over."""

Change = Callable[[Log], Collection[Digest] | None]
"""A function that appends events to a log, and returns the blobs that the events refer to.

It returns None if there is nothing to do. It may be called again with a newer log, so it must decide from the log
alone.
"""

Bring = Callable[[Collection[Digest]], None]  # a function that adds missing blobs to a push


def load_own(remote: RegistryReader, name: str, *more: BlobReader) -> Log:
    """Read a model's log in order to change it. A new model has an empty log. The log of a mirror refuses events.

    New lines are signed if a key is configured. `more` are readers for manifests that `remote` does not have yet.
    """
    log = consult(remote, name, Log.check, *more, new=True)
    log.mirrored, log.sign = remote.is_mirror, line_signer(log.registry)
    return log


def line_signer(registry: str) -> SignLine | None:
    """Return a function that signs log lines, or None if no key is configured. Its first call unlocks the key."""
    if not system.variable("REG_SIGNING_KEY"):
        return None
    from onnxreg.registry.signing import signing_key

    return lambda line: sign_line(registry, signing_key().sign, line)


def commit(
    remote: RegistryStore,
    push: Push,
    name: str,
    change: Change,
    *more: BlobReader,
    bring: Bring | None = None,
    first: Log | None = None,
) -> Log:
    """Apply `change` to the model's log, publish the log with every needed blob, and return the changed log.

    `first` is the result of `load_own`, if it was called already. `bring` fetches missing blobs. Raise ConflictError if
    the change contradicts the log. Raise NotFoundError if a blob is missing and `bring` is None.
    """
    lost = LostRaceError("")
    with ExitStack() as intents:
        for attempt in range(MAX_COMMIT_TRIES):
            log = first or load_own(remote, name, *more)
            first = None
            try:
                digests = change(log)
            except MissingBlobError as error:
                if remote.read_index(name) == log.index:
                    raise
                lost = LostRaceError(error.message)  # a newer log needs the blob no more
                continue
            if digests is None:
                remote.confirm(name)
                return log
            try:
                if digests or log.blobs:
                    with intents.pop_all():  # an earlier intent ends after the blobs are secured
                        intents.enter_context(announced(remote, push, name))
                        push.avoid(read_condemned(remote))
                        _secure(push, log, digests, bring)
                data = log.encode()
                push.publish(name, data, log.index.token if log.index else None)
                log.index = StoredObject(data, "")
                return log
            except LostRaceError as error:
                lost = error
                time.sleep(random.uniform(0, min(MAX_WAIT_SECONDS, 0.005 * 2**attempt)))
    hint = lost.hint or "others change it without end: run the command again"
    raise LostRaceError(f"gave up after {MAX_COMMIT_TRIES} tries in {remote.url}: {lost.message}", hint)


@contextmanager
def announced(remote: RegistryStore, push: Push, name: str) -> Iterator[None]:
    """A context in which a change of a model's log is announced by a note (an intent). Collectors wait for its end."""
    note = f"{push.id}-{secrets.token_hex(8)}"
    remote.add_note("intents", note, canonical.encode({"name": name}))
    try:
        yield
    except BaseException:
        with suppress(RegError):
            remote.remove_note("intents", note)
        raise
    remote.remove_note("intents", note)


def read_condemned(remote: RegistryStore) -> set[BlobKey]:
    """Return the keys that a collector may be about to delete. Notes of dead collectors are ignored."""
    lines = [data for note, data in remote.notes("condemned").items() if remote.is_alive(note) is not False]
    keys = (BlobKey.of_path(path) for data in lines for path in data.decode(errors="replace").split())
    return {key for key in keys if key is not None}


def check_tombstones(log: Log, digests: Iterable[Digest]) -> None:
    """Raise ConflictError if one of these blobs was taken down in this log."""
    tombstoned = sorted(set(digests).intersection(log.tombstones))
    if tombstoned:
        down = f"blob {tombstoned[0].short}... of {log.name} was taken down there and may not come back"
        raise ConflictError(down, f"`reg log {log.name}` there says why")


def _secure(push: Push, log: Log, digests: Collection[Digest], bring: Bring | None) -> None:
    """Make sure that every blob is in the push, or in the registry under a key that no collector condemned."""
    check_tombstones(log, [*digests, *log.documents])
    for blob in log.blobs:
        push.put(BytesIO(blob))
    missing = sorted(set(digests) - push.has(digests))
    if missing and bring is not None:
        bring(missing)
    elif missing:
        raise NotFoundError(f"blob {missing[0]} of {log.name} is not there", VERIFY_ADVICE)


class CollectResult(Struct, frozen=True):
    """The result of `collect`."""

    freed: dict[BlobKey, int]  # the deleted blobs, with their sizes in bytes
    in_use: int  # the number of blobs that stay
    fenced: int = 0  # the number of pushes that had to start over

    @property
    def size(self) -> int:
        return sum(self.freed.values())


def collect(
    remote: RegistryStore, only: Collection[Digest] | None = None, patience: float = PUSH_WAIT_SECONDS
) -> CollectResult:
    """Delete the blobs that no model refers to. If `only` is given, delete only blobs with these digests.

    Wait up to `patience` seconds for running pushes, then make them start over. If a log or manifest cannot be read,
    delete nothing, and raise IntegrityError or NotFoundError.
    """
    earlier: References = {}
    live = referred(remote, earlier)
    keys = blob_keys(remote, to_delete=True)
    sizes = {key: size for key, size in keys.items() if only is None or key.digest in only}
    candidates = _without(sizes, live)
    with remote.push() as push:
        try:
            condemn(remote, push, candidates)
            fenced = settle(remote, push, patience)
            live = referred(remote, earlier)
        except BaseException:
            remote.remove_note("condemned", push.id)
            raise
        doomed = _without(candidates, live)
        remote.delete([key.path for key in doomed])
        remote.remove_note("condemned", push.id)
        _clear_dead(remote)
    return CollectResult(doomed, len(sizes) - len(doomed), fenced)


def survey(remote: RegistryStore, assume: Callable[[Log], None] = lambda log: None) -> CollectResult:
    """Return what `collect` would delete. `assume` is called on each log first, and may change it in memory."""
    live, sizes = referred(remote, {}, assume), blob_keys(remote, to_delete=True)
    doomed = _without(sizes, live)
    return CollectResult(doomed, len(sizes) - len(doomed))


def usage(remote: RegistryStore, names: Collection[str] = ()) -> dict[str, Any]:
    """Return the disk usage of these models (default: of all models), as `reg du --json` prints it.

    `bytes` is the size of a model's blobs: `unique` (needed by no other model) plus `shared`. Raises NotFoundError if a
    name is unknown, and IntegrityError if a log is damaged.
    """
    sizes: Counter[Digest] = Counter()
    keys = blob_keys(remote)
    for key, size in keys.items():
        sizes[key.digest] += size
    logs = {name: load(remote, name) for name in list(remote.names())}
    needs = {name: {reference.digest for reference in references(log)} for name, log in logs.items()}
    if unknown := set(names) - needs.keys():
        raise unknown_model(min(unknown), remote)
    users = Counter(digest for digests in needs.values() for digest in digests)
    models = []
    for name in sorted(names or needs):
        size = sum(sizes[digest] for digest in needs[name])
        unique = sum(sizes[digest] for digest in needs[name] if users[digest] == 1)
        versions, blobs = len(list(present_versions(logs[name]))), len(needs[name] & sizes.keys())
        counts = {"name": name, "versions": versions, "blobs": blobs}
        models.append({**counts, "bytes": size, "unique": unique, "shared": size - unique})
    unreferenced = [size for key, size in keys.items() if key.digest not in users]
    return {
        "models": sorted(models, key=itemgetter("unique"), reverse=True),
        "unreferenced": {"blobs": len(unreferenced), "bytes": sum(unreferenced)},
        "total": {"blobs": len(keys), "bytes": sum(keys.values())},
    }


def _without(keys: Mapping[BlobKey, int], live: Collection[Digest]) -> dict[BlobKey, int]:
    return {key: size for key, size in keys.items() if key.digest not in live}


def blob_keys(remote: RegistryStore, to_delete: bool = False) -> dict[BlobKey, int]:
    """Return the size in bytes of every blob, by key.

    A caller that will delete blobs sets `to_delete`. Then IntegrityError is raised if `index/` has a link or a `.jsonl`
    file with a wrong name. Such a file may be a model's index file, and the model's blobs would be deleted.
    """
    sizes: dict[BlobKey, int] = {}
    for path, size, _ in remote.files():
        is_misnamed = path.lower().endswith(".jsonl") and model_of(path) is None
        hides_model = path.startswith("index/") and (size is None or is_misnamed)
        if to_delete and hides_model and not is_system_path(path):
            raise IntegrityError(
                f"{path} is not a model's index file: what it refers to is unknown, and nothing was deleted",
                "put the real file in its place, or move it out of the registry, then collect again; a model whose "
                "index is not there loses its blobs",
            )
        if (key := BlobKey.of_path(path)) is not None and size is not None:
            sizes[key] = size
    return sizes


def condemn(remote: RegistryStore, push: Push, candidates: Collection[BlobKey]) -> None:
    remote.add_note("condemned", push.id, "\n".join(key.path for key in candidates).encode())


def settle(remote: RegistryStore, push: Push, patience: float) -> int:
    """Wait up to `patience` seconds for running pushes. Make slower pushes start over, and return their number."""
    fenced, deadline = 0, time.monotonic() + patience
    for intent, data in remote.notes("intents").items():
        if _outlasts(remote, intent, deadline):
            _fence(remote, push, intent, data)
            fenced += 1
        remote.remove_note("intents", intent)
    return fenced


def _outlasts(remote: RegistryStore, intent: str, deadline: float) -> bool:
    """Wait for a push. Return True if it still runs at the deadline, and False if it ended or its process died."""
    pause = 0.01
    while remote.is_alive(intent) is not False and intent in remote.notes("intents"):
        if time.monotonic() >= deadline:
            return True
        time.sleep(pause)
        pause = min(1.0, pause * 2)
    return False


def _fence(remote: RegistryStore, push: Push, intent: str, data: bytes) -> None:
    """Make a push start over: append a line to its log, so that the compare-and-swap of the push fails."""
    damaged = f"an intent in {note_path('intents', '')} cannot be read"
    with about(damaged, IntegrityError, "if no push is under way, remove the file, then collect again"):
        intent_document = canonical.convert(canonical.decode(data, "it"), dict[str, str], "it")
        name = check_name(str(intent_document.get("name")))

    def change(log: Log) -> Collection[Digest]:
        log.append(Fence(**system.stamp(name, ""), intent=intent))
        return ()

    commit(remote, push, name, change)


def _clear_dead(remote: RegistryStore) -> None:
    for note in remote.notes("condemned"):
        if remote.is_alive(note) is False:
            remote.remove_note("condemned", note)


References = dict[str, tuple[str | None, frozenset[Digest]]]
"""For each model, the token of its index file when it was read, and the blobs that its log refers to."""


def referred(
    remote: RegistryStore, earlier: References, assume: Callable[[Log], None] = lambda log: None
) -> set[Digest]:
    """Return the digests of all needed blobs. Read only logs that changed since `earlier`, and update `earlier`."""

    def refers(log: Log) -> tuple[str | None, frozenset[Digest]]:
        assume(log)
        return log.index and log.index.token, frozenset(item.digest for item in references(log))

    for name in remote.names():
        index = remote.read_index(name)
        if name not in earlier or earlier[name][0] != (index.token if index else None):
            earlier[name] = consult(remote, name, refers, index=index, new=True)
    return {digest for _, digests in earlier.values() for digest in digests}
