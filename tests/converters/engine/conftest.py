"""A small graph of two matrices, and recipes run on it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.graphs import graph
from support.progress import RecordedSteps

from onnxreg.converters.engine.cache import StepCache
from onnxreg.converters.engine.plan import from_value, plan_export
from onnxreg.converters.engine.run_plan import execute
from onnxreg.schema.manifest.draft import Draft

Run = Callable[..., Draft]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory with the graph, the same with external data, and calibration data of eight rows."""
    body = "h = MatMul(x, w1) r = Relu(h) y = MatMul(r, w2)"
    model = graph(body, "float[batch, 64] x", "float[batch, 8] y", opset=17, w1=(64, 32), w2=(32, 8))
    onnx.save(model, tmp_path / "mlp.onnx")
    external = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 16}
    onnx.save(model, tmp_path / "external.onnx", **external)
    np.savez(tmp_path / "rows.npz", x=np.random.default_rng(1).normal(size=(8, 64)).astype(np.float32))
    return tmp_path


@pytest.fixture
def ran() -> list[str]:
    """The steps that really ran in the last run."""
    return []


@pytest.fixture
def run(home: Path, tmp_path_factory: pytest.TempPathFactory, ran: list[str]) -> Run:
    """Run a recipe in JSON form on a graph of `home`; the draft has its files in a directory of its own."""

    def run(value: dict[str, Any], cache: StepCache | None = None, source: str = "mlp.onnx") -> Draft:
        def note(label: str) -> None:
            if label.startswith("running "):
                ran.append(label.removeprefix("running "))

        ran.clear()
        recipe = from_value({"task": "onnx", **value}, "recipe.yaml")
        plan = plan_export(recipe, str(home / source), "acme/mlp", home)
        return execute(plan, tmp_path_factory.mktemp("workspace"), cache, RecordedSteps(note))

    return run
