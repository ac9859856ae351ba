"""Taking files into a store on this machine, and reading them again: against `dvc add`, `sha256sum`, `cp` and bare hashing."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import onnx

from benchmarks.clients import HALF, MIB, REG, SMALL, make_input, scratch
from benchmarks.measure import Command, Row, Run, pairs, processor, rows, run
from benchmarks.peers import installed
from onnxreg.registry import Registry
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile

GRAPH = '<ir_version: 8, opset_import: ["" : 17]> least (float[1] x) => (float[1] y) { y = Identity(x) }'
INGEST = """
import sys
from pathlib import Path
from onnxreg.registry import Registry
from onnxreg.schema.manifest.draft import Draft, DraftArtifact
registry = Registry(Path(sys.argv[1]))
with registry.workspace() as workspace:
    (workspace / "big.onnx").symlink_to(sys.argv[2])
    registry.add(Draft("acme/big", workspace, (DraftArtifact("onnx", "float32", "big.onnx"),)))
"""
THREADS = """
import hashlib, os, sys
from concurrent.futures import ThreadPoolExecutor
def digest(path):
    hasher, block = hashlib.sha256(), bytearray(2**20)
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(block):
            hasher.update(memoryview(block)[:count])
    assert hasher.hexdigest() == os.path.basename(path)
found = [os.path.join(top, name) for top, _, names in os.walk(sys.argv[1]) for name in names]
found.sort(key=os.path.getsize, reverse=True)
with ThreadPoolExecutor(os.cpu_count()) as pool:
    list(pool.map(digest, found))
"""
SHELL = 'find "$1" -type f -print0 | xargs -0 -n 1 -P "$(nproc)" sha256sum > /dev/null'


def add(cache: Path, count: int = 2) -> list[Row]:
    """`reg add` reads a graph, hashes and copies, and ends durable; `dvc add` hashes too, and is followed by a sync.

    Each time is the first one: what the last one left is removed before.
    """
    with make_input(HALF) as made:
        work, home, model = made.scratch / "work", made.scratch / "home", made.scratch / "model.onnx"
        shutil.copytree(made.files, work / "files")
        onnx.save(onnx.parser.parse_model(GRAPH), model)
        dvc = installed(cache, "dvc") / "dvc"
        env = {**os.environ, "DVC_NO_ANALYTICS": "1", "DVC_SITE_CACHE_DIR": str(work / "site")}
        files = [model, *sorted((work / "files").iterdir())]
        command: Command = [REG, "--registry", home, "add", *files, "--name", "acme/set"]
        synced: Command = ["sh", "-c", 'cd "$0" && "$@" && sync -f .', work, dvc, "add", "--quiet", "files"]

        def ours() -> Run:
            shutil.rmtree(home, ignore_errors=True)
            os.sync()
            return run(command, env)

        def theirs() -> Run:
            for path in (work / ".dvc", work / "site"):
                shutil.rmtree(path, ignore_errors=True)
            run([dvc, "--cd", work, "init", "--no-scm", "--quiet"], env)
            os.sync()
            return run(synced, env)

        what, measured = f"reg add of {made.amount}, first", pairs(ours, theirs, count, warm_up=False)
        return [*rows(what, "dvc add + sync", measured, "<= 1"), processor(what, "dvc add + sync", measured)]


def write_random(path: Path, mebibytes: int) -> None:
    """A file that does not compress."""
    with path.open("wb") as file:
        for _ in range(mebibytes):
            file.write(os.urandom(MIB))


def ingest(count: int = 3) -> list[Row]:
    """Both sides end durable: ours syncs by itself, the peer is `sha256sum`, `cp` and `sync` of the copy."""
    with scratch() as directory:
        file, copy, home = (directory / name for name in ("big.onnx", "copy", "registry"))
        write_random(file, 1024)
        os.sync()

        def peer() -> Run:
            copy.unlink(missing_ok=True)
            return run(["sh", "-c", 'sha256sum "$1" && cp "$1" "$2" && sync "$2"', "sh", file, copy])

        def ours() -> Run:
            shutil.rmtree(home, ignore_errors=True)
            return run([sys.executable, "-c", INGEST, home, file])

        return rows("ingest of 1 GiB", "sha256sum + cp + sync", pairs(ours, peer, count), "<= 1.15")[:1]


@contextmanager
def filled() -> Iterator[Path]:
    """A registry with a version of eight files of 512 MiB and 300 of 64 KiB, all of it in the page cache."""
    with scratch() as directory:
        registry = Registry(directory / "home")
        with registry.workspace() as workspace:
            artifacts = []
            for number in range(8):
                write_random(workspace / f"{number}.onnx", 512)
                fields = {"role": f"part{number}"}
                artifacts.append(DraftArtifact("onnx", "float32", f"{number}.onnx", fields=fields))
            for number in range(SMALL):
                (workspace / f"{number}.txt").write_bytes(os.urandom(MIB // 16))
            files = tuple(DraftFile("text", f"{number}.txt") for number in range(SMALL))
            registry.add(Draft("acme/big", workspace, tuple(artifacts), files))
        os.sync()
        yield registry.store.root


def verify(count: int = 5) -> list[Row]:
    """Whole processes; ours also replays the log and looks for what does not belong there."""
    with filled() as home:
        command, found = [REG, "--registry", home, "verify"], []
        for peer, aim, words in (
            ("threads, readinto + sha256", "near 1", [sys.executable, "-c", THREADS, home / "blobs"]),
            ("find, xargs -P, sha256sum", "", ["sh", "-c", SHELL, "sh", home / "blobs"]),
        ):
            measured = pairs(partial(run, command), partial(run, words), count, warm_up=False)
            found += rows("verify of 4 GiB", peer, measured, aim)[:1]
        return found
