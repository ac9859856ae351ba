"""One copy is push, pull and mirror: blobs in parallel, verified while they stream; then manifest; then the index."""

import os
import threading
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from onnxreg.registry.blobs import read_blob
from onnxreg.registry.commit import commit, load
from onnxreg.registry.ledger import Ledger
from onnxreg.registry.storage import Push, Remote
from onnxreg.registry.transfer import apply, missing_lines
from onnxreg.schema.digest import Digest
from onnxreg.schema.errors import IntegrityError
from onnxreg.schema.events import Attest, LogLine, Publish
from onnxreg.schema.manifest import Manifest
from onnxreg.schema.summary import operator_set
from onnxreg.schema.version import Version

WORKERS = min(8, (os.cpu_count() or 1) * 4)


class Progress:
    """Is told what a long piece of work does; the command line draws it. Called from several threads."""

    def plan(self, files: int, size: int) -> None:
        """So many files and bytes are about to move."""

    def moved(self, size: int) -> None:
        """So many bytes moved since the last call."""


@dataclass(frozen=True)
class Transferred:
    """What a copy did: the versions asked for, how many events, blobs and bytes it moved."""

    name: str
    versions: tuple[Version, ...]
    events: int
    blobs: int
    size: int


def copy(
    source: Remote,
    destination: Remote,
    name: str,
    versions: Collection[Version],
    progress: Progress | None = None,
) -> Transferred:
    """Bring versions of a model from one registry to another, with their events.

    Raises what `transfer.missing_lines` and the two places raise. Nothing is visible at the destination before all
    of it is there; running it again transfers nothing.
    """
    ours, _ = load(source, name)
    theirs, _ = load(destination, name, source)
    wanted = blobs_of(source, missing_lines(ours, theirs, versions))
    present = destination.has(wanted)
    moving = {digest: size for digest, size in wanted.items() if digest not in present}
    appended = 0

    def change(ledger: Ledger) -> bool:
        nonlocal appended
        lines = missing_lines(ours, ledger, versions)
        apply(lines, ours, ledger)
        appended = len(lines)
        return bool(lines)

    if not missing_lines(ours, theirs, versions):
        return Transferred(name, tuple(sorted(versions)), 0, 0, 0)
    with destination.push() as push:
        move_blobs(source, push, moving, progress or Progress())
        commit(destination, push, name, change, source)
    return Transferred(name, tuple(sorted(versions)), appended, len(moving), sum(moving.values()))


def blobs_of(source: Remote, lines: Iterable[LogLine]) -> dict[Digest, int]:
    """Every blob that these lines refer to, with its size in bytes."""
    wanted: dict[Digest, int] = {}
    for line in lines:
        match line.event:
            case Publish(manifest=manifest):
                wanted |= _blobs_of_manifest(source, manifest)
            case Attest(statement=statement):
                wanted[statement] = len(read_blob(source, statement))
    return wanted


def _blobs_of_manifest(source: Remote, digest: Digest) -> dict[Digest, int]:
    data = read_blob(source, digest)
    manifest = Manifest.decode(data, f"manifest {digest.short}...")
    wanted = {entry.digest: entry.size for entry in manifest.all_files()}
    sets = [operators for artifact in manifest.artifacts if (operators := operator_set(artifact)) is not None]
    return wanted | {Digest.of(operators): len(operators) for operators in sets} | {digest: len(data)}


def move_blobs(source: Remote, push: Push, moving: dict[Digest, int], progress: Progress) -> None:
    """Stream blobs, several at a time, the large ones first. The first failure stops the rest."""
    progress.plan(len(moving), sum(moving.values()))
    stop = threading.Event()

    def move(digest: Digest) -> None:
        with source.open_blob(digest) as stream:
            found, size = push.put(cast(BinaryIO, Metered(stream, progress, stop)), digest)
        if size != moving[digest]:
            raise IntegrityError(f"blob {found} has {size} bytes, its manifest says {moving[digest]}")

    run_parallel(move, sorted(moving, key=lambda digest: -moving[digest]), stop)


def run_parallel(work: Any, items: Iterable[Any], stop: threading.Event) -> list[Any]:
    """Apply `work` to every item on several threads; results in order. The first failure or Ctrl-C stops the others."""
    with ThreadPoolExecutor(WORKERS) as pool:
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
    """A stream that reports the bytes read from it, and fails once its work was stopped."""

    def __init__(self, stream: BinaryIO, progress: Progress, stop: threading.Event) -> None:
        self._stream = cast(Any, stream)
        self._progress = progress
        self._stop = stop

    def readinto(self, block: bytearray) -> int:
        if self._stop.is_set():
            raise InterruptedError("stopped")
        count: int = self._stream.readinto(block)
        self._progress.moved(count)
        return count

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._stream.read(size)
        self._progress.moved(len(data))
        return data

    def __iter__(self) -> Iterator[bytes]:
        raise TypeError("read in blocks, not in lines")
