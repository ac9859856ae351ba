"""Verbs that need no ML library: against a bare interpreter, and against the nearest that hf has.

Ours is an installed wheel: an editable install would flatter the ratio, since its import hook makes every start of the
interpreter slower. Each side has one model of 20 versions, on this machine, without a server.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache, partial
from pathlib import Path

from benchmarks.measure import Command, Row, pairs, rows, run
from benchmarks.peers import installed as peer_installed
from onnxreg.registry import Registry
from onnxreg.schema.manifest.draft import Draft, DraftArtifact

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


def benchmark(cache: Path, count: int = 7) -> list[Row]:
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
