"""Two versions of the demo's model as the android profile exports them. A process exports each kind once."""

import os
import sys
from pathlib import Path

from support.made_once import made_once

from benchmarks.measure import run

NAME = "demo/pii"
VERSIONS = ("0.1.0", "0.2.0")
KINDS: dict[str, list[str]] = {"plain": [], "int8": ["--int8-embeddings"]}


def exported(checkpoints: Path, kind: str = "plain") -> Path:
    """A directory with the files of each version in a folder of its name, and the `registry` that holds both as `NAME`.

    Groups share it: who changes the registry copies it first.
    """
    return made_once(_export, checkpoints, kind)


def _export(directory: Path, checkpoints: Path, kind: str) -> None:
    env = os.environ | {"REG_HOME": str(directory / "registry"), "REG_STATE": str(directory / "state")}
    command = [sys.executable, "-m", "onnxreg.cli", "export", "--profile", "android", *KINDS[kind]]
    for version in VERSIONS:
        names = ["--name", NAME, "--version", version, "--output", directory / version]
        run([*command, checkpoints / version, *names], env)
