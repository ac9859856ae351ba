"""The demo's model as the android profile exports it: each version and kind once in a process."""

import os
import sys
from pathlib import Path

from support.made_once import made_once

from benchmarks.measure import run

NAME = "demo/pii"
KINDS: dict[str, list[str]] = {"plain": [], "int8": ["--int8-embeddings"]}


def exported(checkpoint: Path, kind: str = "plain") -> Path:
    """A directory with the `files` of the export, and the `registry` that holds them as `NAME`."""
    return made_once(_export, checkpoint, kind)


def _export(directory: Path, checkpoint: Path, kind: str) -> None:
    home, output = directory / "registry", directory / "files"
    command = [
        sys.executable,
        "-m",
        "onnxreg.cli",
        "export",
        checkpoint,
        "--profile",
        "android",
        *KINDS[kind],
    ]
    command += ["--name", NAME, "--version", checkpoint.name, "--output", output]
    run(command, os.environ | {"REG_HOME": str(home), "REG_STATE": str(directory / "state")})
