"""One copy is push, pull and mirror: blobs in parallel, verified while they stream; then manifest; then the index."""

import io
import os
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, TypeVar, cast

from onnxreg.registry.commit import check_buried, commit, load, load_own
from onnxreg.registry.disk import host_errors
from onnxreg.registry.holdings import EVERYTHING, Held, Selection, asked_of, held_after, held_otherwise, holds
from onnxreg.registry.ledger import Ledger
from onnxreg.registry.references import documents, files
from onnxreg.registry.storage import BlobReader, Piece, Push, Remote, Source
from onnxreg.registry.transfer import apply, missing_lines
from onnxreg.schema.digest import Digest
from onnxreg.schema.errors import IntegrityError
from onnxreg.schema.events import Attest, Hold, LogLine, Publish, Restore
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
    """What a copy did: the versions asked for, how many events, blobs and bytes it moved, and the log as it is there now.

    `held` are the artifacts of each version that are there now.
    """

    name: str
    versions: tuple[Version, ...]
    events: int
    blobs: int
    size: int
    ledger: Ledger
    held: Mapping[Version, Held]


def copy(
    source: Source,
    destination: Remote,
    name: str,
    versions: Collection[Version],
    progress: Progress | None = None,
    restore: Callable[[str, Version, Entry], Restore] | None = None,
    *,
    selection: Selection = EVERYTHING,
    heal: bool = True,
    actor: str | None = None,
    known: Ledger | None = None,
    near: Collection[BlobReader] = (),
) -> Transferred:
    """Bring versions of a model from one registry to another, with their events.

    With `restore`, which makes the event, files of versions that the destination expired are brought back. With a
    `selection` only these artifacts are brought, beside those that are there, and in the same swap an event of `actor`
    says which are held. With `heal` files that the destination has lost are brought again; without, one whose log lacks
    nothing is believed to have them, and not asked. `known` is the model's ledger at the source, where it was read
    before; `near` are further places where documents of the destination's may be read.

    Raises what `transfer.missing_lines` and the two places raise. Nothing is visible at the destination before all of it
    is there; running it again transfers nothing.
    """
    ours = known or load(source, name, destination)[0]
    theirs, _ = load_own(destination, name, source, *near)
    lines = missing_lines(ours, theirs, versions, restore is not None, selection)
    asked = asked_of(ours, versions, selection) if ours.registry != theirs.registry else {}
    holding = held_otherwise(theirs, held_after(ours, theirs, asked))
    returning = restore is not None and any(
        version in theirs.entries and theirs.entries[version].gone is not None for version in versions
    )
    asking = bool(lines) or holding or returning or heal
    wanted = blobs_of(ours, lines, versions, asked) if asking else {}
    check_buried(theirs, wanted)
    present = destination.has(wanted) if wanted else set()
    moving = {digest: size for digest, size in wanted.items() if digest not in present}
    watching = progress or Progress()
    appended = 0

    def change(ledger: Ledger) -> Collection[Digest]:
        nonlocal appended
        before, held = ledger.seq, held_after(ours, ledger, asked)
        current = ledger.head == theirs.head
        again = lines if current else missing_lines(ours, ledger, versions, bool(restore), selection)
        apply(again, ours, ledger)
        if restore is not None:
            for version in versions:
                if ledger.entries[version].gone is not None:
                    ledger.append(restore(name, version, ledger.entries[version]))
        _check_arrived(ours, ledger, versions)
        for event in holds(ledger, held, actor):
            ledger.append(event)
        appended = ledger.seq - before
        return wanted

    if not lines:
        _check_arrived(ours, theirs, versions)
    if lines or moving or returning or holding:
        with destination.push() as push:
            move_blobs(source, push, moving, watching)

            def bring(missing: Collection[Digest]) -> None:
                move_blobs(source, push, {digest: wanted[digest] for digest in missing}, watching)

            theirs = commit(destination, push, name, change, source, *near, bring=bring)
    else:
        destination.confirm(name)
    held = {version: theirs.entries[version].held for version in versions if version in theirs.entries}
    return Transferred(
        name, tuple(sorted(versions)), appended, len(moving), sum(moving.values()), theirs, held
    )


def _check_arrived(source: Ledger, destination: Ledger, versions: Iterable[Version]) -> None:
    """IntegrityError where the source's log does not say what its state line says of a version.

    Two copies with one head have one log: there everything that is said must be the same.
    """
    if source.head == destination.head and source.entries != destination.entries:
        raise IntegrityError(
            f"two copies of one log of {source.name} say different things of its versions",
            "the state line of one of them is wrong: run reg verify in both",
        )
    for version in versions if source.registry != destination.registry else ():
        held, said = destination.entries.get(version), source.entries.get(version)
        if held is None or said is None or held.manifest != said.manifest:
            raise IntegrityError(
                f"the log of {source.name} does not publish {version} as its state line says",
                "run reg verify in the registry that it comes from",
            )


def blobs_of(
    ledger: Ledger, lines: Iterable[LogLine], versions: Iterable[Version], asked: Mapping[Version, Held]
) -> dict[Digest, int]:
    """Every blob that these lines and versions refer to and that is to be had, with its size in bytes.

    Of a version's artifacts those that are `asked` for, or else those that the ledger holds.
    """
    events = [line.event for line in lines]
    published = {event.version for event in events if isinstance(event, Publish | Restore | Hold)} | set(
        versions
    )
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
            taken = replace(entry, held=asked.get(version, entry.held))
            wanted |= {file.digest: file.size or 0 for file in files(ledger, version, taken)}
    return wanted


def move_blobs(source: Source, push: Push, moving: dict[Digest, int], progress: Progress) -> None:
    """Stream blobs, several at a time, the large ones first. The first failure stops the rest.

    Bytes may be garbled on their way: a blob that is not what its name says is fetched once more.
    """
    progress.plan(len(moving), sum(moving.values()))
    stop = threading.Event()

    def move(digest: Digest) -> None:
        blob = Moving(source, digest, moving[digest], progress, stop)
        try:
            size = push.fetch(blob)
        except IntegrityError:
            size = push.fetch(blob)
        if size != blob.size:
            raise IntegrityError(f"blob {digest} has {size} bytes, its manifest says {blob.size}")

    run_parallel(move, sorted(moving, key=lambda digest: -moving[digest]), stop)


@dataclass(frozen=True)
class Moving:
    """A blob at its source, whose bytes are counted as they come."""

    source: Source
    digest: Digest
    size: int
    progress: Progress
    stop: threading.Event

    def open(self, start: int) -> BinaryIO:
        what = f"reading blob {self.digest} from {self.source.url}"
        stream = self.source.open_blob(self.digest, start)
        return cast(BinaryIO, Metered(stream, self.progress, self.stop, what, self.size - start))

    def pieces(self) -> Sequence[Piece]:
        return ()


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


class Metered(io.RawIOBase):
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

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._stream.close()
        super().close()

    def readinto(self, block: Any, /) -> int:
        if self._stop.is_set():
            raise InterruptedError("stopped")
        with host_errors(self._what):
            count: int = self._stream.readinto(block)
        self._left -= count
        if self._left < 0:
            raise IntegrityError(f"{self._what}: it is longer than its manifest says", "run reg verify there")
        self._progress.moved(count)
        return count
