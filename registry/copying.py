"""One copy is push, pull and mirror: blobs in parallel, verified while they stream; then manifest; then the index."""

import os
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar, cast

from onnxreg.registry import stopping
from onnxreg.registry.backends.local import LocalRemote
from onnxreg.registry.blobs import fetcher
from onnxreg.registry.channels import Channels
from onnxreg.registry.commit import check_buried, commit, load, load_own
from onnxreg.registry.disk import host_errors
from onnxreg.registry.ledger import Ledger
from onnxreg.registry.references import documents, files
from onnxreg.registry.storage import Push, Remote
from onnxreg.registry.transfer import apply, missing_lines
from onnxreg.schema.digest import Digest
from onnxreg.schema.errors import IntegrityError
from onnxreg.schema.events import Attest, LogLine, Publish, Restore, Tag
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
    """What a blob is called in its version, and its size in bytes."""

    path: str
    size: int


@dataclass(frozen=True)
class Transferred:
    """What a copy did: the versions asked for, how many events, blobs and bytes it moved, what it read, and the channels
    that it moved."""

    name: str
    versions: tuple[Version, ...]
    events: int
    blobs: int
    size: int
    source: Ledger
    channels: tuple[Tag, ...] = ()


def copy(
    source: Remote,
    destination: Remote,
    name: str,
    versions: Collection[Version],
    progress: Progress | None = None,
    restore: Callable[[str, Version, Entry], Restore] | None = None,
    channels: Channels | None = None,
) -> Transferred:
    """Bring versions of a model from one registry to another, with their events.

    Blobs of these versions that the destination has lost are brought again; with `restore`, which makes the event, so
    are those of versions that it expired. `channels` are made to hold there what they hold in the source, where one of
    these versions, in the same swap; ConflictError where somebody moves one meanwhile. Raises what `transfer.missing_lines` and the two places raise. Nothing is
    visible at the destination before all of it is there; running it again transfers nothing.
    """
    ours, _ = load(source, name)
    if isinstance(destination, LocalRemote):
        ours.fetch = fetcher(destination, source)
    theirs, _ = load_own(destination, name, source)
    lines = missing_lines(ours, theirs, versions, restore is not None)
    wanted = blobs_of(ours, lines, versions)
    check_buried(theirs, wanted)
    present = destination.has(wanted)
    moving = {digest: file for digest, file in wanted.items() if digest not in present}
    held = dict(theirs.channels)
    watching = progress or Progress()
    appended = 0
    tags: list[Tag] = []

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
        tags[:] = channels.moves(ours, ledger, held) if channels else ()
        for tag in tags:
            ledger.append(tag)
        appended = ledger.seq - before
        return wanted

    returning = restore is not None and any(
        version in theirs.entries and theirs.entries[version].gone is not None for version in versions
    )
    if not lines:
        _check_arrived(ours, theirs, versions)
    if lines or moving or returning or (channels and channels.moves(ours, theirs, held)):
        with destination.push() as push:
            move_blobs(source, push, moving, watching)

            def bring(missing: Collection[Digest]) -> None:
                move_blobs(source, push, {digest: wanted[digest] for digest in missing}, watching)

            commit(destination, push, name, change, source, bring=bring)
    else:
        destination.confirm(name)
    size = sum(file.size for file in moving.values())
    return Transferred(name, tuple(versions), appended, len(moving), size, ours, tuple(tags))


def _check_arrived(source: Ledger, destination: Ledger, versions: Iterable[Version]) -> None:
    """IntegrityError where the source's log does not publish what its state line says of a version."""
    for version in versions if source.registry != destination.registry else ():
        held, said = destination.entries.get(version), source.entries.get(version)
        if held is None or said is None or held.manifest != said.manifest:
            raise IntegrityError(
                f"the log of {source.name} does not publish {version} as its state line says",
                "run reg verify in the registry that it comes from",
            )


def blobs_of(ledger: Ledger, lines: Iterable[LogLine], versions: Iterable[Version]) -> dict[Digest, File]:
    """Every blob that these lines and versions refer to and that is to be had."""
    events = [line.event for line in lines]
    published = {event.version for event in events if isinstance(event, Publish | Restore)} | set(versions)
    kept = {reference.digest for reference in documents(ledger)}
    statements = {event.statement for event in events if isinstance(event, Attest)} & kept
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
            named = files(ledger, version, entry)
            wanted |= {each.digest: File(each.path, each.size or 0) for each in named}
    return wanted


def move_blobs(source: Remote, push: Push, moving: Mapping[Digest, File], progress: Progress) -> None:
    """Stream blobs, several at a time, the large ones first. The first failure stops the rest."""
    progress.plan(len(moving), sum(file.size for file in moving.values()))
    stop = threading.Event()

    def move(digest: Digest) -> None:
        file = moving[digest]
        with progress.file(file.path, file.size) as moved, source.open_blob(digest) as stream:
            what = f"reading blob {digest} from {source.url}"
            metered = Metered(stream, moved, stop, what, file.size)
            found, size = push.put(cast(BinaryIO, metered), digest)
        if size != file.size:
            raise IntegrityError(f"blob {found} has {size} bytes, its manifest says {file.size}")

    run_parallel(move, sorted(moving, key=lambda digest: -moving[digest].size), stop)


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


class Metered:
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

    def hand_over(self) -> Callable[[int], None]:
        """What is told of the bytes, for one who knows better when they moved; from now on reading is not moving."""
        moved, self._moved = self._moved, lambda count: None
        return moved

    def readinto(self, block: bytearray) -> int:
        if self._stop.is_set():
            raise InterruptedError("stopped")
        with host_errors(self._what):
            count: int = self._stream.readinto(block)
        self._left -= count
        if self._left < 0:
            raise IntegrityError(f"{self._what}: it is longer than its manifest says", "run reg verify there")
        self._moved(count)
        return count
