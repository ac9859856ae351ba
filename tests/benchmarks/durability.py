"""What durability costs: 1,000 small blobs published in one go, against the same without a single sync on the same disk.

And against a sync of every file and of its directory, one after the other, which is what batching saves.
"""

import os
import resource
import tempfile
import time
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from benchmarks.measure import Row, Run, pairs, rows
from onnxreg.registry import Registry
from onnxreg.registry.support.disk import Disk
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile

BLOBS = 1000


class NoSync(Disk):
    """Leaves everything to the operating system."""

    def sync_file(self, path: Path) -> None:
        pass

    def sync_files(self, paths: Sequence[Path]) -> None:
        pass

    def sync_directory(self, path: Path) -> None:
        pass

    def sync_directories(self, paths: Sequence[Path]) -> None:
        pass

    def sync_all(self, path: Path) -> None:
        pass


class OneByOne(Disk):
    """Makes each file and its name durable before the next one."""

    def write_all(
        self,
        files: Iterable[tuple[Path, Path]],
        root: Path,
        relied: Collection[Path] = (),
        shared: bool = False,
    ) -> None:
        for source, target in files:
            self.make_directory(target.parent, root)
            self.sync_file(source)
            self.rename(source, target)
            self.sync_directory(target.parent)


def publish(disk: Disk) -> Run:
    """The time of one `Registry.add` of so many files, in a fresh registry on a quiet disk."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as directory:
        registry = Registry(Path(directory) / "home")
        registry.store.disk = disk
        with registry.workspace() as root:
            (root / "model.onnx").write_bytes(b"weights")
            for number in range(BLOBS - 1):
                (root / f"{number}.txt").write_text(f"note {number}")
            notes = tuple(DraftFile("report", f"{number}.txt") for number in range(BLOBS - 1))
            draft = Draft("acme/many", root, (DraftArtifact("onnx", "float32", "model.onnx"),), notes)
            os.sync()
            started, used = time.perf_counter(), time.process_time()
            registry.add(draft)
            wall, cpu = time.perf_counter() - started, time.process_time() - used
            return Run(wall, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, cpu)


def benchmark(count: int = 7) -> list[Row]:
    def ours() -> Run:
        return publish(Disk())

    batched = pairs(ours, lambda: publish(NoSync()), count)
    single = pairs(ours, lambda: publish(OneByOne()), 3)
    what = f"publish of {BLOBS:,} small blobs"
    return [
        *rows(what, "the same without fsync", batched, "<= 5")[:1],
        *rows(what, "fsync of each file and directory", single, "< 1")[:1],
    ]
