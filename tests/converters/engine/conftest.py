"""A small graph of two matrices, and recipes run on it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support.progress import RecordedSteps

from onnxreg.converters.engine.cache import StepCache
from onnxreg.converters.engine.plan import ExportPlan, plan_export
from onnxreg.converters.engine.read_recipe import from_value
from onnxreg.converters.engine.run_plan import execute
from onnxreg.schema.manifest.draft import Draft

MLP = """
<ir_version: 8, opset_import: ["" : 17]>
mlp (float[batch,64] x) => (float[batch,8] y) <float[64,32] w1, float[32,8] w2>
{ h = MatMul(x, w1) r = Relu(h) y = MatMul(r, w2) }
"""

Run = Callable[..., Draft]


def build(text: str = MLP, **weights: Any) -> onnx.ModelProto:
    """A model of ONNX text, with these weights, or seeded ones for `MLP`."""
    draw = np.random.default_rng(0)
    arrays = weights or {"w1": draw.normal(size=(64, 32)), "w2": draw.normal(size=(32, 8))}
    model = onnx.parser.parse_model(text)
    del model.graph.initializer[:]
    tensors = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()]
    model.graph.initializer.extend(tensors)
    return model


def placed(value: dict[str, Any], directory: Path, source: str | None = "mlp.onnx") -> ExportPlan:
    """The order of a recipe over the graph `mlp.onnx` in a directory, task and name given."""
    recipe = from_value({"task": "onnx", **value}, "recipe.yaml")
    start = None if source is None else str(directory / source)
    return plan_export(recipe, start, "acme/mlp", directory)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory with the graph, the same with external data, and calibration data of eight rows."""
    onnx.save(build(), tmp_path / "mlp.onnx")
    external = tmp_path / "external.onnx"
    onnx.save(build(), external, save_as_external_data=True, location="weights.bin", size_threshold=16)
    np.savez(tmp_path / "rows.npz", x=np.random.default_rng(1).normal(size=(8, 64)).astype(np.float32))
    return tmp_path


@pytest.fixture
def ran() -> list[str]:
    """What was reported of the last run: the steps that really ran are among it."""
    return []


@pytest.fixture
def run(home: Path, tmp_path_factory: pytest.TempPathFactory, ran: list[str]) -> Run:
    """Run a recipe in JSON form on `mlp.onnx`; the draft has its files in a directory of its own."""

    def run(value: dict[str, Any], cache: StepCache | None = None, source: str | None = "mlp.onnx") -> Draft:
        ran.clear()
        order = placed(value, home, source)
        return execute(order, tmp_path_factory.mktemp("workspace"), cache, RecordedSteps(ran.append))

    return run
