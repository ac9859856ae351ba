"""One copy is push, pull and mirror: blobs in parallel, verified while they stream; then manifest; then the index."""

import os
import sys
import threading
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar, cast

from onnxreg.registry.backends.local import LocalRemote
from onnxreg.registry.blobs import fetcher
from onnxreg.registry.commit import check_buried, commit, load, load_own
from onnxreg.registry.disk import host_errors
from onnxreg.registry.ledger import Ledger
from onnxreg.registry.manifests import check_summary
from onnxreg.registry.references import documents, files
from onnxreg.registry.storage import Push, Remote
from onnxreg.registry.transfer import apply, missing_lines
from onnxreg.schema.digest import Digest
from onnxreg.schema.errors import IntegrityError
from onnxreg.schema.events import Attest, LogLine, Publish, Restore
from onnxreg.schema.state import Entry
from onnxreg.schema.version import Version

WORKERS = min(8, (os.cpu_count() or 1) * 4)


Item = TypeVar("Item")
Result = TypeVar("Result")


class Progress:
    """Is told what a long piece of work does; the command line draws it. Called from several threads."""

    def plan(self, files: int, size: int) -> None:
        """So many files and bytes are about to move."""

    def moved(self, size: int) -> None:
        """So many bytes moved since the last call."""


@dataclass(frozen=True)
class Transferred:
    """What a copy did: the versions asked for, how many events, blobs and bytes it moved, and what it read."""

    name: str
    versions: tuple[Version, ...]
    events: int
    blobs: int
    size: int
    source: Ledger


def copy(
    source: Remote,
    destination: Remote,
    name: str,
    versions: Collection[Version],
    progress: Progress | None = None,
    restore: Callable[[str, Version, Entry], Restore] | None = None,
) -> Transferred:
    """Bring versions of a model from one registry to another, with their events.

    Blobs of these versions that the destination has lost are brought again; with `restore`, which makes the event, so
    are those of versions that it expired. Raises what `transfer.missing_lines` and the two places raise. Nothing is
    visible at the destination before all of it is there; running it again transfers nothing.
    """
    ours, _ = load(source, name)
    if isinstance(destination, LocalRemote):
        ours.fetch = fetcher(destination, source)
    theirs, _ = load_own(destination, name, source)
    lines = missing_lines(ours, theirs, versions, restore is not None)
    _check_summaries(ours, versions)
    wanted = blobs_of(ours, lines, versions)
    check_buried(theirs, wanted)
    present = destination.has(wanted)
    moving = {digest: size for digest, size in wanted.items() if digest not in present}
    watching = progress or Progress()
    appended = 0

    def change(ledger: Ledger) -> Collection[Digest]:
        nonlocal appended
        before = ledger.seq
        again = lines if ledger.head == theirs.head else missing_lines(ours, ledger, versions, bool(restore))
        apply(again, ours, ledger)
        if restore is not None:
            for version in versions:
                if ledger.entries[version].gone is not None:
                    ledger.append(restore(name, version, ledger.entries[version]))
        _check_arrived(ours, ledger, versions)
        appended = ledger.seq - before
        return wanted

    returning = restore is not None and any(
        version in theirs.entries and theirs.entries[version].gone is not None for version in versions
    )
    if not lines:
        _check_arrived(ours, theirs, versions)
    if lines or moving or returning:
        with destination.push() as push:
            move_blobs(source, push, moving, watching)

            def bring(missing: Collection[Digest]) -> None:
                move_blobs(source, push, {digest: wanted[digest] for digest in missing}, watching)

            commit(destination, push, name, change, source, bring=bring)
    else:
        destination.confirm(name)
    return Transferred(name, tuple(sorted(versions)), appended, len(moving), sum(moving.values()), ours)


def _check_arrived(source: Ledger, destination: Ledger, versions: Iterable[Version]) -> None:
    """IntegrityError where the source's log does not publish what its state line says of a version."""
    for version in versions if source.registry != destination.registry else ():
        held, said = destination.entries.get(version), source.entries.get(version)
        if held is None or said is None or held.manifest != said.manifest:
            raise IntegrityError(
                f"the log of {source.name} does not publish {version} as its state line says",
                "run reg verify in the registry that it comes from",
            )


def _check_summaries(source: Ledger, versions: Iterable[Version]) -> None:
    """IntegrityError where the source's index says other things of a version than its manifest: apps resolve by it."""
    for version in versions:
        held, entry = source.summaries.get(str(version)), source.entries.get(version)
        if held is not None and entry is not None and entry.gone is None:
            check_summary(held, source.fetch(entry.manifest), entry.manifest, source.name)


def blobs_of(ledger: Ledger, lines: Iterable[LogLine], versions: Iterable[Version]) -> dict[Digest, int]:
    """Every blob that these lines and versions refer to and that is to be had, with its size in bytes."""
    events = [line.event for line in lines]
    published = {event.version for event in events if isinstance(event, Publish | Restore)} | set(versions)
    kept = {reference.digest for reference in documents(ledger)}
    statements = {event.statement for event in events if isinstance(event, Attest)} & kept
    wanted = {digest: len(ledger.fetch(digest)) for digest in sorted(statements)}
    for version in sorted(published & ledger.entries.keys()):
        entry = ledger.entries[version]
        if entry.manifest in kept:
            wanted[entry.manifest] = len(ledger.fetch(entry.manifest))
            if wanted[entry.manifest] != entry.size:
                raise IntegrityError(
                    f"{ledger.name}:{version} was published with another size than its manifest has"
                )
        if entry.gone is None:
            wanted |= {file.digest: file.size or 0 for file in files(ledger, version, entry)}
    return wanted


def move_blobs(source: Remote, push: Push, moving: dict[Digest, int], progress: Progress) -> None:
    """Stream blobs, several at a time, the large ones first. The first failure stops the rest."""
    progress.plan(len(moving), sum(moving.values()))
    stop = threading.Event()

    def move(digest: Digest) -> None:
        with source.open_blob(digest) as stream:
            what = f"reading blob {digest} from {source.url}"
            metered = Metered(stream, progress, stop, what, moving[digest])
            found, size = push.put(cast(BinaryIO, metered), digest)
        if size != moving[digest]:
            raise IntegrityError(f"blob {found} has {size} bytes, its manifest says {moving[digest]}")

    run_parallel(move, sorted(moving, key=lambda digest: -moving[digest]), stop)


def run_parallel(
    work: Callable[[Item], Result], items: Iterable[Item], stop: threading.Event, workers: int = WORKERS
) -> list[Result]:
    """Apply `work` to every item on several threads; results in order. The first failure or Ctrl-C stops the others."""
    with ThreadPoolExecutor(workers) as pool:
        try:
            futures = [pool.submit(work, item) for item in items]
            wait(futures, return_when=FIRST_EXCEPTION)
            failed = [future for future in futures if future.done() and future.exception() is not None]
            return [future.result() for future in (failed or futures)]
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


class Metered:
    """A stream that reports the bytes read from it, names its side where reading fails, and ends when stopped.

    With a `size` it gives no more bytes than that: IntegrityError where there are more.
    """

    def __init__(
        self,
        stream: BinaryIO,
        progress: Progress,
        stop: threading.Event,
        what: str,
        size: int | None = None,
    ) -> None:
        self._stream = cast(Any, stream)
        self._left = sys.maxsize if size is None else size
        self._progress = progress
        self._stop = stop
        self._what = what

    def readinto(self, block: bytearray) -> int:
        if self._stop.is_set():
            raise InterruptedError("stopped")
        with host_errors(self._what):
            count: int = self._stream.readinto(block)
        self._left -= count
        if self._left < 0:
            raise IntegrityError(f"{self._what}: it is longer than its manifest says", "run reg verify there")
        self._progress.moved(count)
        return count
