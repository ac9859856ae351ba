"""One copy is push, pull and mirror: blobs in parallel, verified while they stream; then manifest; then the index."""

import os
import threading
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar, cast

from onnxreg.registry.blobs import read_blob
from onnxreg.registry.commit import commit, load
from onnxreg.registry.disk import host_errors
from onnxreg.registry.ledger import Ledger
from onnxreg.registry.manifests import read_manifest
from onnxreg.registry.storage import Push, Remote
from onnxreg.registry.transfer import apply, missing_lines
from onnxreg.schema.digest import Digest
from onnxreg.schema.errors import IntegrityError
from onnxreg.schema.events import Attest, LogLine, Publish
from onnxreg.schema.manifest import Manifest
from onnxreg.schema.summary import operator_set
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
) -> Transferred:
    """Bring versions of a model from one registry to another, with their events.

    Blobs of these versions that the destination has lost are brought again. Raises what `transfer.missing_lines`
    and the two places raise. Nothing is visible at the destination before all of it is there; running it again
    transfers nothing.
    """
    ours, _ = load(source, name)
    theirs, index = load(destination, name, source)
    lines = missing_lines(ours, theirs, versions)
    wanted = blobs_of(source, ours, lines, versions)
    present = destination.has(wanted)
    moving = {digest: size for digest, size in wanted.items() if digest not in present}
    appended = 0

    def change(ledger: Ledger) -> bool:
        nonlocal appended
        again = lines if ledger.head == theirs.head else missing_lines(ours, ledger, versions)
        apply(again, ours, ledger)
        appended = len(again)
        return bool(again)

    if lines or moving:
        with destination.push() as push:
            move_blobs(source, push, moving, progress or Progress())
            if lines:
                commit(destination, push, name, change, source)
            elif index is not None:
                push.publish(name, index.data, index.token)
    return Transferred(name, tuple(sorted(versions)), appended, len(moving), sum(moving.values()), ours)


def blobs_of(
    source: Remote, ledger: Ledger, lines: Iterable[LogLine], versions: Iterable[Version]
) -> dict[Digest, int]:
    """Every blob that these lines and versions refer to, with its size in bytes."""
    manifests = {ledger.entries[version].manifest for version in versions}
    wanted: dict[Digest, int] = {}
    for line in lines:
        match line.event:
            case Publish(manifest=manifest):
                manifests.add(manifest)
            case Attest(statement=statement):
                wanted[statement] = len(read_blob(source, statement))
    for digest in sorted(manifests):
        data = read_blob(source, digest)
        wanted |= {digest: len(data)} | refers_to(read_manifest(data, digest, ledger.name))
    return wanted


def refers_to(manifest: Manifest) -> dict[Digest, int]:
    """The blobs of a manifest, with their sizes: its files, and the operator sets that summaries name."""
    sets = [operators for artifact in manifest.artifacts if (operators := operator_set(artifact)) is not None]
    files = {entry.digest: entry.size for entry in manifest.all_files()}
    return files | {Digest.of(operators): len(operators) for operators in sets}


def move_blobs(source: Remote, push: Push, moving: dict[Digest, int], progress: Progress) -> None:
    """Stream blobs, several at a time, the large ones first. The first failure stops the rest."""
    progress.plan(len(moving), sum(moving.values()))
    stop = threading.Event()

    def move(digest: Digest) -> None:
        with source.open_blob(digest) as stream:
            metered = Metered(stream, progress, stop, f"reading blob {digest} from {source.url}")
            found, size = push.put(cast(BinaryIO, metered), digest)
        if size != moving[digest]:
            raise IntegrityError(f"blob {found} has {size} bytes, its manifest says {moving[digest]}")

    run_parallel(move, sorted(moving, key=lambda digest: -moving[digest]), stop)


def run_parallel(
    work: Callable[[Item], Result], items: Iterable[Item], stop: threading.Event
) -> list[Result]:
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
    """A stream that reports the bytes read from it, names its side where reading fails, and ends when stopped."""

    def __init__(self, stream: BinaryIO, progress: Progress, stop: threading.Event, what: str) -> None:
        self._stream = cast(Any, stream)
        self._progress = progress
        self._stop = stop
        self._what = what

    def readinto(self, block: bytearray) -> int:
        if self._stop.is_set():
            raise InterruptedError("stopped")
        with host_errors(self._what):
            count: int = self._stream.readinto(block)
        self._progress.moved(count)
        return count
