"""The list of ten thousand models, in the catalog's own process: warm, after a push, and with no catalog yet."""

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from support.registries import grow

from benchmarks.measure import Row, Run, pairs, rows, run
from benchmarks.startup import installed
from onnxreg.registry import Registry
from onnxreg.registry.search.catalogs import MODELS, PIECES
from onnxreg.registry.store.layout import index_path

MANY, VERSIONS = 10_000, 20
LIST = """
import sys, time
from pathlib import Path
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.search.catalogs import LocalCatalog
started, used = time.perf_counter(), time.process_time()
LocalCatalog(DirectoryRegistry.open(Path(sys.argv[1]))).refresh().readable()
print(time.perf_counter() - started, time.process_time() - used)
"""
PARSE = """
import json, os, sys
from pathlib import Path
files, cores = list(Path(sys.argv[1], "index").glob("*/*.jsonl")), os.cpu_count()
for start in range(cores):
    if os.fork() == 0:
        for file in files[start::cores]:
            json.loads(file.read_bytes().partition(b"\\n")[0])
        os._exit(0)
assert all(os.wait()[1] == 0 for _ in range(cores))
"""
"""The limit of a first list in Python: each index file is read, and its state line parsed, on all cores."""


def benchmark(cache: Path, count: int = 5) -> list[Row]:
    """Timed inside its process; beside it a bare interpreter, for the scale."""
    python = installed(cache)
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as directory:
        many = grow.grow(Path(directory) / "many", MANY, VERSIONS, whole=[0])
        os.sync()  # or the kernel writes a hundred thousand files during the first questions
        bare = "python -c pass", [python, "-c", "pass"]
        parse = "all cores, read and json.loads", [python, "-c", PARSE, many.store.root]
        found = []
        for state, prepare, times, (peer, command), aim in (
            ("warm", lambda registry: None, count, bare, "< 0.1 s"),
            ("one model changed", _touch, count, bare, ""),
            ("no index yet", _forget, 3, parse, "<= 1.5 s"),
        ):
            ask = _asker(python, many, prepare)
            measured = pairs(ask, lambda command=command: run(command), times)
            found += rows(f"list over {MANY:,} models, {state}", peer, measured, aim)[:1]
        return found


def _asker(python: Path, registry: Registry, prepare: Callable[[Registry], object]) -> Callable[[], Run]:
    def ask() -> Run:
        prepare(registry)
        command = [python, "-c", LIST, registry.store.root]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        wall, cpu = map(float, done.stdout.split())
        return Run(wall, 1, cpu)

    return ask


def _touch(registry: Registry) -> None:
    """As a push does: the index file is replaced."""
    path = registry.store.root / index_path(grow.model_name(0))
    (registry.store.root / "local" / "next").write_bytes(path.read_bytes())
    (registry.store.root / "local" / "next").replace(path)


def _forget(registry: Registry) -> None:
    for name in (MODELS, PIECES):
        (registry.store.root / "local" / name).unlink(missing_ok=True)
