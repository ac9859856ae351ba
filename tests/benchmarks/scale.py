"""The cost of a registry as it grows: ten models against ten thousand, twenty versions against five thousand.

Times are ratios of whole `reg` processes, in pairs; requests and bytes are counted, in this process.
"""

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from support.registries import grow
from support.registries.opened import opened

from benchmarks.measure import Row, Run, pairs, rows, run
from benchmarks.startup import installed
from onnxreg.registry import Registry
from onnxreg.registry.search.catalogs import MODELS, PIECES
from onnxreg.registry.store.layout import index_path
from onnxreg.schema.manifest.draft import Draft, DraftArtifact

FEW, MANY, VERSIONS, LONG = 10, 10_000, 20, 5_000
NAME = grow.model_name(0)

QUERY = """
import sys, time
from pathlib import Path
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.search.catalogs import LocalCatalog
from onnxreg.schema.query.expression import parse
started, used = time.perf_counter(), time.process_time()
catalog = LocalCatalog(DirectoryRegistry.open(Path(sys.argv[1])))
if sys.argv[2] == "list":
    catalog.refresh().readable()
else:
    list(catalog.refresh(artifacts=True).query(parse(sys.argv[2])))
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
"""The limit of a first search in Python: each index file is read, and its state line parsed, on all cores."""


def benchmark(cache: Path, count: int = 5) -> list[Row]:
    python = installed(cache)
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as directory:
        few = grow.grow(Path(directory) / "few", FEW, VERSIONS, whole=[0])
        many = grow.grow(Path(directory) / "many", MANY, VERSIONS, whole=[0])
        os.sync()  # or the kernel writes a hundred thousand files during the first questions
        return [
            *_one_model(python, few, many, count),
            *_all_models(python, few, many, count),
            *_artifacts(python, Path(directory) / "artifacts", count),
            *_versions(Path(directory)),
        ]


def _one_model(python: Path, few: Registry, many: Registry, count: int) -> Iterator[Row]:
    """The aim of `models`: what concerns one model costs the same among ten and among ten thousand."""
    for verb in ("ls", "show", "resolve"):

        def call(registry: Registry, verb: str = verb) -> Run:
            return run([python.with_name("reg"), "--registry", registry.store.root, verb, NAME])

        measured = pairs(lambda: call(many), lambda: call(few), count)
        yield rows(f"reg {verb} NAME, {MANY:,} models", f"the same, {FEW} models", measured, "< 1.5")[0]


def _all_models(python: Path, few: Registry, many: Registry, count: int) -> Iterator[Row]:
    """A question over all models, timed inside its process; beside it a bare interpreter, for the scale."""
    bare = "python -c pass", [python, "-c", "pass"]
    parse = "all cores, read and json.loads", [python, "-c", PARSE, many.store.root]
    for state, prepare, times, (peer, command), aim in (
        ("warm", _leave, count, bare, "< 0.1 s"),
        ("one model changed", _touch, count, bare, ""),
        ("no catalog yet", _forget, 3, parse, "<= 1.5 s"),
    ):
        ask = _asker(python, many, "list", prepare)
        measured = pairs(ask, lambda command=command: run(command), times)
        yield rows(f"list over {MANY:,} models, {state}", peer, measured, aim)[0]


def _artifacts(python: Path, directory: Path, count: int) -> Iterator[Row]:
    """An expression over 10,000 artifacts, two or three of each of four versions, timed as the questions above are."""
    registry = grow.grow(directory, 1_000, 4)
    for text in (
        "certified and size <= 30MB",
        "version >= 1.2.0 and recall.NAME >= 0.9",
        "format = onnx-int8",
    ):
        ask = _asker(python, registry, text, _leave)
        measured = pairs(ask, lambda: run([python, "-c", "pass"]), count)
        yield rows(f"query '{text}', 10,000 artifacts, warm", "python -c pass", measured, "< 0.3 s")[0]


def _asker(
    python: Path, registry: Registry, what: str, prepare: Callable[[Registry], object]
) -> Callable[[], Run]:
    def ask() -> Run:
        prepare(registry)
        command = [python, "-c", QUERY, registry.store.root, what]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        wall, cpu = map(float, done.stdout.split())
        return Run(wall, 1, cpu)

    return ask


def _leave(registry: Registry) -> None:
    pass


def _touch(registry: Registry) -> None:
    """As a push does: the index file is replaced."""
    path = registry.store.root / index_path(NAME)
    (registry.store.root / "local" / "next").write_bytes(path.read_bytes())
    (registry.store.root / "local" / "next").replace(path)


def _forget(registry: Registry) -> None:
    for name in (MODELS, PIECES):
        (registry.store.root / "local" / name).unlink(missing_ok=True)


def _versions(directory: Path) -> Iterator[Row]:
    """Requests and bytes of a resolve and of a push, of a model with so many versions."""
    short = _counted(directory, VERSIONS)
    long = _counted(directory, LONG)
    units = {"resolve, files read": "files", "resolve, bytes read": "B"}
    units |= {"push, files rewritten": "files", "push, bytes rewritten": "B", "push, bytes new": "B"}
    for what, unit in units.items():
        ratio = long[what] / short[what]
        yield Row(
            f"{what}, {LONG:,} versions",
            f"the same, {VERSIONS}",
            long[what],
            short[what],
            ratio,
            ratio,
            ratio,
            unit,
        )


def _counted(directory: Path, versions: int) -> dict[str, int]:
    source = grow.grow(directory / f"source-{versions}", 1, versions)
    target = grow.grow(directory / f"target-{versions}", 1, versions)
    with opened(source.store.root) as files:
        source.resolve(NAME)
    read = [path for path in files if path != "registry.json"]
    with source.workspace() as workspace:
        (workspace / "model.onnx").write_text("new")
        source.add(Draft(NAME, workspace, (DraftArtifact("onnx", "float32", "model.onnx"),)))
    before = _tree(target)
    source.push(NAME, str(target.store.root))
    after = _tree(target)
    changed = [path for path in before if after[path] != before[path]]
    return {
        "resolve, files read": len(read),
        "resolve, bytes read": sum((source.store.root / path).stat().st_size for path in read),
        "push, files rewritten": len(changed),
        "push, bytes rewritten": sum(after[path][1] for path in changed),
        "push, bytes new": sum(after[path][1] for path in after.keys() - before.keys()),
    }


def _tree(registry: Registry) -> dict[str, tuple[int, int]]:
    """Every file but those of `local/`: its number and its size."""
    found = {}
    for part in ("registry.json", "index", "blobs"):
        for path in [registry.store.root / part, *(registry.store.root / part).rglob("*")]:
            if path.is_file():
                found[str(path)] = (path.stat().st_ino, path.stat().st_size)
    return found
