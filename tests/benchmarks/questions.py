"""Questions on this machine, without a server: how fast verbs start, list ten thousand models, and resolve.

Ours is an installed wheel: an editable install would flatter the ratio, since its import hook makes every start of the
interpreter slower.
"""

import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from support.registries import grow

from benchmarks.measure import Command, Row, Run, pairs, rows, run
from benchmarks.peers import installed as peer_installed
from onnxreg.registry import Registry
from onnxreg.registry.log.log import Log
from onnxreg.registry.search.catalogs import MODELS, PIECES
from onnxreg.registry.store.protocol import index_path
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.events import Publish
from onnxreg.schema.log.state import VersionSummary
from onnxreg.schema.manifest.draft import Draft, DraftArtifact
from onnxreg.schema.query.expression import parse
from onnxreg.schema.query.resolve import Query

ROOT = Path(__file__).parents[2]
VERSIONS = 20


@cache
def installed(store: Path) -> Path:
    """The interpreter of an environment that holds the project as its users install it."""
    python = store / "peers" / "installed" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "source"
        ignored = shutil.ignore_patterns(".*", "build", "tests", "*.egg-info")
        shutil.copytree(ROOT, source, ignore=ignored)
        pip = [python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt"]
        subprocess.run([*pip, source], check=True)
        subprocess.run([*pip, "--force-reinstall", "--no-deps", source], check=True)
    return python


def startup(cache: Path, count: int = 7) -> list[Row]:
    python, programs = installed(cache), peer_installed(cache, "hf")
    reg, hf, found = python.with_name("reg"), programs / "hf", []
    with tempfile.TemporaryDirectory() as directory:
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        env |= {"REG_HOME": f"{directory}/registry", "HF_HOME": f"{directory}/hf", "HF_HUB_OFFLINE": "1"}
        _fill(Path(env["REG_HOME"]))
        _hub_cache(Path(env["HF_HOME"]))
        bare: Command = [python, "-c", "pass"]
        listed: Command = [hf, "cache", "ls", "--revisions"]
        cached: Command = [hf, "download", "acme/model", "model.onnx"]
        for words, peer, command, aim in (
            *((words, "python -c pass", bare, "<= 8") for words in ("--version", "ls", "show acme/model")),
            ("resolve acme/model --json", "python -c pass", bare, "<= 8"),
            ("ls acme/model", "hf cache ls", listed, "<= 0.6"),
            ("resolve acme/model:stable", "hf download, cached", cached, "<= 0.6"),
        ):
            sides = partial(run, [reg, *words.split()], env), partial(run, command, env)
            found += rows(f"reg {words}", peer, pairs(*sides, count if command is bare else 2), aim)
    return found


def _fill(home: Path) -> None:
    registry = Registry(home)
    for number in range(VERSIONS):
        with registry.workspace() as workspace:
            (workspace / "model.onnx").write_text(str(number))
            registry.add(Draft("acme/model", workspace, (DraftArtifact("onnx", "float32", "model.onnx"),)))
    registry.tag("acme/model", "stable")


def _hub_cache(home: Path) -> None:
    """The cache as it is once so many revisions of one repository were fetched."""
    repository = home / "hub" / "models--acme--model"
    for part in ("blobs", "refs"):
        (repository / part).mkdir(parents=True)
    for number in range(VERSIONS):
        snapshot = repository / "snapshots" / f"{number:040x}"
        snapshot.mkdir(parents=True)
        (repository / "blobs" / f"{number:064x}").write_text(str(number))
        (snapshot / "model.onnx").symlink_to(f"../../blobs/{number:064x}")
    (repository / "refs" / "main").write_text(f"{VERSIONS - 1:040x}")


MANY = 10_000
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


def scale(cache: Path, count: int = 5) -> list[Row]:
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


NAME, VERSION = "acme/many", Version(1, 0, 0)
ARTIFACTS = 64
"""Of the version that is resolved, far more than most have."""
FORMATS = ("onnx", "onnx-int8", "ort", "onnx-android")


def artifact(number: int) -> dict[str, Any]:
    found = {
        "format": FORMATS[number % 4],
        "precision": "int8" if number % 4 == 1 else "float32",
        "path": f"model-{number}",
        "digest": str(Digest.of(str(number).encode())),
        "size": 1_000_000 + number,
        "state": "certified" if number % 3 else "unknown",
        "opset": 15 + number % 12,
        "operators": str(Digest.of(b"operators")),
        "recall": {"PHONE": number % 100 / 100},
    }
    return found | {"ort_format": 6} if number % 4 == 2 else found


def index_file(registry: str) -> bytes:
    manifest = Digest.of(b"manifest")
    ledger = Log(registry, NAME, {}.__getitem__)
    about = {"time": "2026-01-02T03:04:05Z", "actor": "ada", "name": NAME, "nonce": "0" * 32}
    ledger.append(Publish(**about, version=VERSION, manifest=manifest, size=1))
    artifacts = [artifact(number) for number in range(ARTIFACTS)]
    summary = {"manifest": str(manifest), "size": 1, "artifacts": artifacts, "files": []}
    ledger.summaries[VERSION] = VersionSummary.read(summary)
    return ledger.encode()


def resolve(count: int = 15) -> list[Row]:
    """A question in process: the index file is read each time, and parsed once. The peer parses it and asks nothing."""
    with tempfile.TemporaryDirectory() as directory:
        registry = Registry(Path(directory))
        data = index_file(registry.id)
        path = registry.store.root / index_path(NAME)
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        line, query = data.split(b"\n")[0], Query(certified=True, where=parse("opset <= 18"))
        ours, theirs = lambda: registry.resolve(NAME, query), lambda: json.loads(line)
        measured = pairs(lambda: timed(ours), lambda: timed(theirs), count)
    name = f"Registry.resolve, an index file of {len(line) / 1e3:.0f} kB"
    return rows(name, "json.loads of it", measured)[:1]


def timed(work: Callable[[], object]) -> Run:
    """Seconds of wall time; memory is not looked at here."""
    gc.collect()
    gc.disable()
    started, used = time.perf_counter(), time.process_time()
    work()
    wall, cpu = time.perf_counter() - started, time.process_time() - used
    gc.enable()
    return Run(wall, 1, cpu)
