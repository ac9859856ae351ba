"""Verbs that need no ML library, against a bare interpreter."""

import os
import sys
import tempfile
from pathlib import Path

from measure import Row, pairs, rows, run

from onnxreg.registry import Registry
from onnxreg.schema.draft import Draft, DraftArtifact


def benchmark(count: int = 15) -> list[Row]:
    reg = str(Path(sys.executable).with_name("reg"))
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory) / "registry"
        _fill(home)
        env = {**os.environ, "REG_HOME": str(home)}
        found: list[Row] = []
        for verb in (["--version"], ["ls"], ["resolve", "acme/model", "--json"], ["show", "acme/model"]):
            measured = pairs(
                lambda verb=verb: run([reg, *verb], env),
                lambda: run([sys.executable, "-c", "pass"], env),
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
