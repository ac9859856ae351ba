"""Verbs that need no ML library: against a bare interpreter, and against the nearest that each peer has.

Ours is an installed wheel: an editable install would flatter the ratio, since its import hook makes every start of the
interpreter slower. Each side has one model of 20 versions (dvc: 20 tracked files), on this machine, without a server.
"""

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Command, Row, pairs, rows, run
from benchmarks.peers import installed as peer_installed
from onnxreg.registry import Registry
from onnxreg.schema.manifest.draft import Draft, DraftArtifact

ROOT = Path(__file__).parents[2]
VERSIONS = 20
STANDARD = "argparse, dataclasses, hashlib, json, pathlib, re, typing"
"""The modules of the standard library that `reg show` imports, and the parser that is the fastest to import."""
MLFLOW = "import sys; from mlflow import MlflowClient; client = MlflowClient(sys.argv[1], sys.argv[1]); "
FILL = (
    MLFLOW
    + f"""client.create_registered_model("model")
for number in range({VERSIONS}):
    client.create_model_version("model", f"s3://models/{{number}}")
client.set_registered_model_alias("model", "stable", "{VERSIONS}")
"""
)


@functools.cache
def installed(cache: Path) -> Path:
    """The interpreter of an environment that holds the project as its users install it."""
    python = cache / "peers" / "installed" / "bin" / "python"
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
    python = installed(cache)
    reg = python.with_name("reg")
    found: list[Row] = []
    with tempfile.TemporaryDirectory() as directory:
        env = _environment(Path(directory))
        _fill(Path(env["REG_HOME"]))
        for verb in (["--version"], ["ls"], ["resolve", "acme/model", "--json"], ["show", "acme/model"]):
            measured = pairs(
                lambda verb=verb: run([reg, *verb], env),
                lambda: run([python, "-c", "pass"], env),
                count,
            )
            found += rows(f"reg {' '.join(verb)}", "python -c pass", measured, "<= 8")[:1]
        for modules in ("typer", STANDARD):
            measured = pairs(
                lambda modules=modules: run([python, "-c", f"import {modules}"], env),
                lambda: run([python, "-c", "pass"], env),
                count,
            )
            found += rows(f"python -c 'import {modules}'", "python -c pass", measured, "")[:1]
        for verb, peer, command in _peers(cache, Path(directory), env):
            measured = pairs(
                lambda verb=verb: run([reg, *verb], env),
                lambda command=command: run(command, env),
                2,
            )
            found += rows(f"reg {' '.join(verb)}", peer, measured, "<= 0.6")
    return found


def _peers(cache: Path, directory: Path, env: dict[str, str]) -> Iterator[tuple[list[str], str, Command]]:
    """What we are asked, the peer's name for it, and its command."""
    programs = {peer: peer_installed(cache, peer) for peer in ("aws", "dvc", "hf", "mlflow")}
    for peer, word in (("aws", "--version"), ("dvc", "--version"), ("hf", "version")):
        yield ["--version"], f"{peer} {word}", [programs[peer] / peer, word]
    listing, resolving = ["ls", "acme/model"], ["resolve", "acme/model:stable"]
    gto = [programs["dvc"] / "gto", "show", "--repo", _dvc(programs["dvc"], directory / "dvc", env)]
    yield listing, "dvc list", [programs["dvc"] / "dvc", "list", "--dvc-only", directory / "dvc"]
    yield listing, "gto show (of dvc)", [*gto, "model"]
    yield resolving, "gto show (of dvc)", [*gto, "model@greatest", "--ref"]
    _hub_cache(Path(env["HF_HOME"]))
    yield listing, "hf cache ls", [programs["hf"] / "hf", "cache", "ls", "--revisions"]
    yield resolving, "hf download, cached", [programs["hf"] / "hf", "download", "acme/model", "model.onnx"]
    python, store = programs["mlflow"] / "python", f"sqlite:///{directory}/mlflow.db"
    run([python, "-c", FILL, store], env)
    search = "client.search_model_versions(\"name='model'\")"
    yield listing, "MLflow's client, SQLite", [python, "-c", MLFLOW + search, store]
    alias = 'client.get_model_version_by_alias("model", "stable")'
    yield resolving, "MLflow's client, SQLite", [python, "-c", MLFLOW + alias, store]


def _environment(directory: Path) -> dict[str, str]:
    """Each program's own place; nothing is asked of a network."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env |= {"REG_HOME": str(directory / "registry"), "HF_HOME": str(directory / "hf"), "HF_HUB_OFFLINE": "1"}
    env |= {"DVC_NO_ANALYTICS": "1", "DVC_SITE_CACHE_DIR": str(directory / "dvc-site")}
    return env | {"MLFLOW_DISABLE_TELEMETRY": "true", "CI": "true"}


def _fill(home: Path) -> None:
    registry = Registry(home)
    for number in range(VERSIONS):
        with registry.workspace() as workspace:
            (workspace / "model.onnx").write_text(str(number))
            registry.add(Draft("acme/model", workspace, (DraftArtifact("onnx", "float32", "model.onnx"),)))
    registry.tag("acme/model", "stable")


def _dvc(programs: Path, repository: Path, env: dict[str, str]) -> Path:
    """A repository of git with the files as dvc tracks them, and the versions of a model as GTO tags them."""
    repository.mkdir()
    for number in range(VERSIONS):
        (repository / f"model-{number}.onnx").write_text(str(number))
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    git: list[str | Path] = ["git", "-C", repository, *identity]
    run([*git, "init", "--quiet"], env)
    run([programs / "dvc", "--cd", repository, "init", "--quiet"], env)
    files = [f"model-{number}.onnx" for number in range(VERSIONS)]
    run([programs / "dvc", "--cd", repository, "add", "--quiet", *files], env)
    run([*git, "add", "."], env)
    run([*git, "commit", "--quiet", "-m", "models"], env)
    for number in range(VERSIONS):
        run([*git, "tag", "-a", f"model@v0.1.{number}", "-m", "a version"], env)
    return repository


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
