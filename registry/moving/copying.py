"""One copy is push, pull and mirror: blobs in parallel, verified while they stream; then manifest; then the index."""

import io
import os
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, TypeVar, cast

from onnxreg.registry import stopping
from onnxreg.registry.disk import host_errors
from onnxreg.registry.gates.holding import check_free
from onnxreg.registry.history.channels import Channels
from onnxreg.registry.history.commit import check_buried, commit, load, load_own
from onnxreg.registry.history.holdings import (
    EVERYTHING,
    Held,
    Selection,
    asked_of,
    held_after,
    held_otherwise,
    holds,
)
from onnxreg.registry.history.ledger import Ledger
from onnxreg.registry.history.references import documents, files
from onnxreg.registry.history.transfer import apply, missing_lines
from onnxreg.registry.manifests import check_summary
from onnxreg.registry.storage import BlobReader, IndexFile, Piece, Push, Remote, Source
from onnxreg.schema.digest import Digest
from onnxreg.schema.errors import IntegrityError
from onnxreg.schema.events import Attest, Hold, LogLine, Publish, Restore, Tag
from onnxreg.schema.state import Entry
from onnxreg.schema.version import Version

WORKERS = min(8, (os.cpu_count() or 1) * 4)
PATIENCE = 1.0
"""Seconds that Ctrl-C waits for threads which do not listen, such as one that a server keeps waiting."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class Progress:
    """Is told what a long piece of work does; the command line draws it. Called from several threads."""

    def plan(self, files: int, size: int) -> None:
        """So many more files and bytes are about to move."""

    @contextmanager
    def file(self, path: str, size: int | None) -> Iterator[Callable[[int], None]]:
        """A file is under way, of so many bytes if that is known. What is given wants to know how many more moved."""
        yield lambda count: None


@dataclass(frozen=True, slots=True)
class File:
    """What a blob is called in its version, its size in bytes, and its parts where their digests are known."""

    path: str
    size: int
    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True)
class Transferred:
    """What a copy did: the versions asked for, how many events, blobs and bytes it moved, and the log as it is there now.

    `held` are the artifacts of each version that are there now, `channels` the moves of channels.
    """

    name: str
    versions: tuple[Version, ...]
    events: int
    blobs: int
    size: int
    ledger: Ledger
    held: Mapping[Version, Held]
    channels: tuple[Tag, ...] = ()


def copy(
    source: Source,
    destination: Remote,
    name: str,
    versions: Collection[Version],
    progress: Progress | None = None,
    restore: Callable[[str, Version, Entry], Restore] | None = None,
    *,
    selection: Selection = EVERYTHING,
    channels: Channels | None = None,
    heal: bool = True,
    actor: str | None = None,
    known: Ledger | None = None,
    near: Collection[BlobReader] = (),
    look: Callable[[str, IndexFile | None], None] = lambda name, index: None,
) -> Transferred:
    """Bring versions of a model from one registry to another, with their events.

    With `restore`, which makes the event, files of versions that the destination expired are brought back. With a
    `selection` only these artifacts are brought, beside those that are there, and in the same swap an event of `actor`
    says which are held. `channels` are made to hold there what they hold in the source, where one of these versions, in
    the same swap. With `heal` files that the destination has lost are brought again; without, one whose log lacks nothing
    is believed to have them, and not asked. `known` is the model's ledger at the source, where it was read before; `near`
    are further places where documents of the destination's may be read; `look` sees the destination's index file before
    anything is added to it, and may refuse it.

    Raises what `transfer.missing_lines` and the two places raise; ConflictError where somebody moves a channel meanwhile.
    Nothing is visible at the destination before all of it is there; running it again transfers nothing.
    """
    ours = known or load(source, name, destination)[0]
    theirs, index = load_own(destination, name, source, *near)
    look(name, index)
    lines = missing_lines(ours, theirs, versions, restore is not None, selection)
    asked = asked_of(ours, versions, selection) if ours.registry != theirs.registry else {}
    holding = held_otherwise(theirs, held_after(ours, theirs, asked))
    returning = restore is not None and any(
        version in theirs.entries and theirs.entries[version].gone is not None for version in versions
    )
    asking = bool(lines) or holding or returning or heal
    if asking:
        _check_summaries(ours, versions)
    wanted = blobs_of(ours, lines, versions, asked) if asking else {}
    check_buried(theirs, wanted)
    present = destination.has(wanted) if wanted else set()
    moving = {digest: file for digest, file in wanted.items() if digest not in present}
    before = dict(theirs.channels)
    for tag in channels.moves(ours, theirs, before) if channels else ():
        check_free(destination, name, tag.tag)
    watching = progress or Progress()
    appended = 0
    tags: list[Tag] = []

    def change(ledger: Ledger) -> Collection[Digest]:
        nonlocal appended, wanted
        seq, held = ledger.seq, held_after(ours, ledger, asked)
        again = lines
        if ledger.head != theirs.head:
            again = missing_lines(ours, ledger, versions, bool(restore), selection)
            wanted = blobs_of(ours, again, versions, asked)
        apply(again, ours, ledger)
        if restore is not None:
            for version in versions:
                if ledger.entries[version].gone is not None:
                    ledger.append(restore(name, version, ledger.entries[version]))
        _check_arrived(ours, ledger, versions)
        for event in holds(ledger, held, actor):
            ledger.append(event)
        tags[:] = channels.moves(ours, ledger, before) if channels else ()
        for tag in tags:
            ledger.append(tag)
        appended = ledger.seq - seq
        return wanted

    if not lines:
        _check_arrived(ours, theirs, versions)
    if lines or moving or returning or holding or (channels and channels.moves(ours, theirs, before)):
        with destination.push() as push:
            move_blobs(source, push, moving, watching)

            def bring(missing: Collection[Digest]) -> None:
                move_blobs(source, push, {digest: wanted[digest] for digest in missing}, watching)

            theirs = commit(destination, push, name, change, source, *near, bring=bring)
    else:
        destination.confirm(name)
    held = {version: theirs.entries[version].held for version in versions if version in theirs.entries}
    size = sum(file.size for file in moving.values())
    return Transferred(name, tuple(versions), appended, len(moving), size, theirs, held, tuple(tags))


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


def _check_summaries(source: Ledger, versions: Iterable[Version]) -> None:
    """IntegrityError where the source's index says other things of a version than its manifest: apps resolve by it."""
    for version in versions:
        held, entry = source.summaries.get(str(version)), source.entries.get(version)
        if held is not None and entry is not None and entry.gone is None:
            check_summary(held, source.fetch(entry.manifest), entry.manifest, source.name)


def blobs_of(
    ledger: Ledger, lines: Iterable[LogLine], versions: Iterable[Version], asked: Mapping[Version, Held]
) -> dict[Digest, File]:
    """Every blob that these lines and versions refer to and that is to be had.

    Of a version's artifacts those that are `asked` for, or else those that the ledger holds.
    """
    events = [line.event for line in lines]
    published = {event.version for event in events if isinstance(event, Publish | Restore | Hold)} | set(
        versions
    )
    kept = {reference.digest for reference in documents(ledger)}
    statements = {event.statement for event in events if isinstance(event, Attest)}
    statements |= {event.evidence for event in events if isinstance(event, Tag) and event.evidence}
    statements &= kept
    wanted = {digest: File("statement", len(ledger.fetch(digest))) for digest in sorted(statements)}
    for version in sorted(published & ledger.entries.keys()):
        entry = ledger.entries[version]
        if entry.manifest in kept:
            wanted[entry.manifest] = File("manifest", len(ledger.fetch(entry.manifest)))
            if wanted[entry.manifest].size != entry.size:
                raise IntegrityError(
                    f"{ledger.name}:{version} was published with another size than its manifest has"
                )
        if entry.gone is None:
            taken = replace(entry, held=asked.get(version, entry.held))
            named = files(ledger, version, taken)
            wanted |= {each.digest: File(each.path, each.size or 0, each.pieces) for each in named}
    return wanted


def move_blobs(source: Source, push: Push, moving: Mapping[Digest, File], progress: Progress) -> None:
    """Stream blobs, several at a time, the large ones first. The first failure stops the rest.

    Bytes may be garbled on their way: a blob that is not what its name says is fetched once more.
    """
    progress.plan(len(moving), sum(file.size for file in moving.values()))
    stop = threading.Event()

    def move(digest: Digest) -> None:
        file = moving[digest]
        with progress.file(file.path, file.size) as moved:
            blob = Moving(source, digest, file, moved, stop)
            try:
                size = push.fetch(blob)
            except IntegrityError:
                size = push.fetch(blob)
        if size != file.size:
            raise IntegrityError(f"blob {digest} has {size} bytes, its manifest says {file.size}")

    run_parallel(move, sorted(moving, key=lambda digest: -moving[digest].size), stop)


@dataclass
class Moving:
    """A blob at its source, whose bytes are counted as they come; those before the offset where reading begins too."""

    source: Source
    digest: Digest
    file: File
    moved: Callable[[int], None]
    stop: threading.Event
    counted: int = 0

    @property
    def size(self) -> int:
        return self.file.size

    def open(self, start: int) -> BinaryIO:
        self._count(start - self.counted)
        what = f"reading blob {self.digest} from {self.source.url}"
        stream = self.source.open_blob(self.digest, start)
        return cast(BinaryIO, Metered(stream, self._count, self.stop, what, self.size - start))

    def _count(self, moved: int) -> None:
        self.counted += moved
        self.moved(moved)

    def pieces(self) -> Sequence[Piece]:
        return self.file.pieces


def run_parallel(
    work: Callable[[Item], Result], items: Iterable[Item], stop: threading.Event, workers: int = WORKERS
) -> list[Result]:
    """Apply `work` to every item on several threads; results in order. The first failure or Ctrl-C stops the others.

    After Ctrl-C a thread may go on for a while that waits for something outside of this process.
    """
    pool = ThreadPoolExecutor(workers)
    futures: list[Future[Result]] = []
    try:
        with stopping.ended_by(stop):
            for item in items:
                futures.append(stopping.submit(pool, work, item))
        wait(futures, return_when=FIRST_EXCEPTION)
        failed = [future for future in futures if future.done() and future.exception() is not None]
        return [future.result() for future in (failed or futures)]
    except BaseException as error:
        stop.set()
        pool.shutdown(wait=False, cancel_futures=True)
        running = [future for future in futures if not future.cancelled()]
        wait(running, timeout=None if isinstance(error, Exception) else PATIENCE)
        raise
    finally:
        pool.shutdown(wait=False)


class Metered(io.RawIOBase):
    """A stream that reports the bytes read from it, names its side where reading fails, and ends when stopped.

    With a `size` it gives no more bytes than that: IntegrityError where there are more.
    """

    def __init__(
        self,
        stream: BinaryIO,
        moved: Callable[[int], None],
        stop: threading.Event,
        what: str,
        size: int | None = None,
    ) -> None:
        self._stream = cast(Any, stream)
        self._left = sys.maxsize if size is None else size
        self._moved = moved
        self._stop = stop
        self._what = what

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._stream.close()
        super().close()

    def hand_over(self) -> Callable[[int], None]:
        """What is told of the bytes, for one who knows better when they moved; from now on reading is not moving."""
        moved, self._moved = self._moved, lambda count: None
        return moved

    def readinto(self, block: Any, /) -> int:
        if self._stop.is_set():
            raise InterruptedError("stopped")
        with host_errors(self._what):
            count: int = self._stream.readinto(block)
        self._left -= count
        if self._left < 0:
            raise IntegrityError(f"{self._what}: it is longer than its manifest says", "run reg verify there")
        self._moved(count)
        return count
