"""One copy is push, pull and mirror: blobs in parallel, verified while they stream; then manifest; then the index."""

import io
import os
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from onnxreg.registry.log.commit import commit, load, load_own
from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.log.selection import Held
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.net.limits import one_file
from onnxreg.registry.store.protocol import BlobReader, IndexFile, Piece, Push, RegistryReader, RegistryStore
from onnxreg.registry.support import cancellation
from onnxreg.registry.support.disk import host_errors
from onnxreg.registry.transfer.plan import PlannedFile, TransferPlan, TransferRequest, make_plan
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import EXTENT, IntegrityError, placed
from onnxreg.schema.core.version import Version
from onnxreg.schema.log.events import Tag
from onnxreg.schema.log.state import Channel

WORKERS = min(8, (os.cpu_count() or 1) * 4)
PATIENCE = 1.0
"""Seconds that Ctrl-C waits for threads which do not listen, such as one that a server keeps waiting."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class Progress:
    """Is told what a long piece of work does; the command line draws it. Called from several threads."""

    def plan(self, files: int, size: int) -> None:
        """So many more files and bytes are about to move."""

    def step(self, what: str) -> None:
        """Another part of the work begins, of which no more is known than what it is."""

    @contextmanager
    def file(self, path: str, size: int | None) -> Iterator[Callable[[int], None]]:
        """A file is under way, of so many bytes if that is known. What is given wants to know how many more moved; it may
        be told so later, where files are sent together in the end."""
        yield lambda count: None


@dataclass(frozen=True)
class TransferResult:
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
    source: RegistryReader,
    destination: RegistryStore,
    wish: TransferRequest,
    progress: Progress | None = None,
    *,
    known: Ledger | None = None,
    near: Collection[BlobReader] = (),
    look: Callable[[str, IndexFile | None], None] = lambda name, index: None,
) -> TransferResult:
    """Bring versions of a model from one registry to another, with their events, in one swap.

    `known` is the model's ledger at the source, where it was read before; `near` are further places where documents of the
    destination's may be read; `look` sees the destination's index file before anything is
    added to it, and may refuse it.

    Raises what `make_plan` and the two places raise; GateError where a channel to be moved is governed there. Nothing is visible at the destination before all of it is there;
    running it again transfers nothing.
    """
    ours = known or load(source, wish.name, destination)[0]
    theirs, index = load_own(destination, wish.name, source, *near)
    look(wish.name, index)
    work = _Work(
        source, destination, make_plan(wish, ours, theirs), dict(theirs.channels), progress or Progress()
    )
    if work.plan.moves:
        from onnxreg.registry.gates.policy_log import check_free

        for tag in work.plan.moves:
            check_free(destination, wish.name, tag.tag)
    present = destination.has(work.plan.blobs) if work.plan.blobs else set()
    moving = {digest: file for digest, file in work.plan.blobs.items() if digest not in present}
    if work.plan.changes or moving:
        theirs = work.do(moving, near)
    else:
        destination.confirm(wish.name)
    held = {version: theirs.entries[version].held for version in wish.versions if version in theirs.entries}
    size = sum(file.size for file in moving.values())
    channels = tuple(work.plan.moves)
    return TransferResult(
        wish.name, tuple(wish.versions), work.appended, len(moving), size, theirs, held, channels
    )


@dataclass
class _Work:
    """A copy under way: its plan as it stands, the channels when the destination was looked at first, the lines added."""

    source: RegistryReader
    destination: RegistryStore
    plan: TransferPlan
    before: Mapping[str, Channel]
    progress: Progress
    appended: int = 0

    def do(self, moving: Mapping[Digest, PlannedFile], near: Collection[BlobReader]) -> Ledger:
        """Move blobs, then swap the index; the destination's ledger as it is then."""
        with self.destination.push() as push:
            self._move(push, moving)

            def bring(missing: Collection[Digest]) -> None:
                self._move(push, {digest: self.plan.blobs[digest] for digest in missing})

            name = self.plan.wish.name
            self.progress.step(f"{push.last_step} {name}")
            return commit(self.destination, push, name, self._change, self.source, *near, bring=bring)

    def _move(self, push: Push, moving: Mapping[Digest, PlannedFile]) -> None:
        move_blobs(self.source, push, moving, self.progress)

    def _change(self, ledger: Ledger) -> Collection[Digest]:
        """Add what is missing to the destination's ledger; after a lost race that is decided again."""
        if ledger.head != self.plan.head:
            self.plan = make_plan(self.plan.wish, self.plan.source, ledger, self.before)
        self.appended = self.plan.apply(ledger)
        return self.plan.blobs.keys()


def move_blobs(
    source: RegistryReader, push: Push, moving: Mapping[Digest, PlannedFile], progress: Progress
) -> None:
    """Stream blobs, several at a time, the large ones first. The first failure stops the rest.

    Bytes may be garbled on their way: a blob that is not what its name says is fetched once more.
    """
    progress.plan(len(moving), sum(file.size for file in moving.values()))
    stop = threading.Event()

    def move(digest: Digest) -> None:
        file = moving[digest]
        with progress.file(file.path, file.size) as moved, one_file():
            blob = BlobTransfer(source, digest, file, moved, stop)
            try:
                size = push.fetch(blob)
            except IntegrityError:
                with placed(source.url):
                    size = push.fetch(blob)
        if size != file.size:
            raise IntegrityError(f"blob {digest} has {size} bytes, its manifest says {file.size}")

    run_parallel(move, sorted(moving, key=lambda digest: -moving[digest].size), stop)


@dataclass
class BlobTransfer:
    """A blob at its source, whose bytes are counted as they come; those before the offset where reading begins too."""

    source: RegistryReader
    digest: Digest
    file: PlannedFile
    moved: Callable[[int], None]
    stop: threading.Event
    counted: int = 0

    @property
    def size(self) -> int:
        return self.file.size

    @property
    def path(self) -> Path | None:
        return self.source.blob_path(self.digest) if isinstance(self.source, DirectoryRegistry) else None

    def open(self, start: int) -> BinaryIO:
        self._count(start - self.counted)
        what = f"reading blob {self.digest} from {self.source.url}"
        stream = self.source.open_blob(self.digest, start)
        return cast(BinaryIO, MeteredReader(stream, self._count, self.stop, what, self.size - start))

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
        with cancellation.ended_by(stop):
            for item in items:
                futures.append(cancellation.submit(pool, work, item))
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


class MeteredReader(io.RawIOBase):
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

    @property
    def take(self) -> Callable[[int], memoryview] | None:
        """As that of `RangedReader`, where the stream has one."""
        return self._take if hasattr(self._stream, "take") else None

    def _take(self, limit: int) -> memoryview:
        self._check_stop()
        with host_errors(self._what):
            data: memoryview = self._stream.take(limit)
        self._count(len(data))
        return data

    def readinto(self, block: Any, /) -> int:
        self._check_stop()
        with host_errors(self._what):
            count: int = self._stream.readinto(block)
        self._count(count)
        return count

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise InterruptedError("stopped")

    def _count(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise IntegrityError(f"{self._what}: it is longer than its manifest says", EXTENT)
        self._moved(count)
