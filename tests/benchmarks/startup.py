"""Verbs that need no ML library, against a bare interpreter; both from an installed wheel.

An editable install would flatter the ratio: its import hook makes every start of the interpreter slower.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import Row, pairs, rows, run

from onnxreg.registry import Registry
from onnxreg.schema.draft import Draft, DraftArtifact

ROOT = Path(__file__).parents[2]


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


def benchmark(cache: Path, count: int = 15) -> list[Row]:
    python = installed(cache)
    reg = python.with_name("reg")
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory) / "registry"
        _fill(home)
        env = {**os.environ, "REG_HOME": str(home)}
        found: list[Row] = []
        for verb in (["--version"], ["ls"], ["resolve", "acme/model", "--json"], ["show", "acme/model"]):
            measured = pairs(
                lambda verb=verb: run([reg, *verb], env),
                lambda: run([python, "-c", "pass"], env),
                count,
            )
            aim = "" if verb[0] == "show" else "< 5"
            found += rows(f"reg {' '.join(verb)}", "python -c pass", measured, aim)[:1]
        return found


def _fill(home: Path) -> None:
    registry = Registry(home)
    for number in range(20):
        with registry.workspace() as workspace:
            (workspace / "model.onnx").write_text(str(number))
            registry.add(Draft("acme/model", workspace, (DraftArtifact("onnx", "float32", "model.onnx"),)))
