"""`reg export --scales-from`: the scales of the version before, recorded, repeated, or refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from onnxreg.cli.batch.jobs import read_jobs
from onnxreg.converters.engine.plan import ExportPlan
from onnxreg.registry import Registry

pytestmark = pytest.mark.usefixtures("reader_in_process")
Reg = Callable[..., Any]
MLP = """
<ir_version: 8, opset_import: ["" : 17]>
mlp (float[batch,64] x) => (float[batch,8] logits) <float[64,32] w1, float[32,8] w2>
{ h = MatMul(x, w1) r = Relu(h) logits = MatMul(r, w2) }
"""
TASK = "task: onnx\nsteps:\n"
INT8 = "  - {name: int8, pass: OnnxDynamicQuantization}\n"
FP16 = "  - {name: fp16, pass: OnnxFloatToFloat16}\n"
BLOCKS = "  - {name: blocks, pass: OnnxBlockWiseRtnQuantization, params: {bits: 8}}\n"


def save(path: Path, drift: float, prefix: str = "w") -> None:
    model, draw = onnx.parser.parse_model(MLP.replace("w", prefix)), np.random.default_rng(0)
    del model.graph.initializer[:]
    for name, shape in {f"{prefix}1": (64, 32), f"{prefix}2": (32, 8)}.items():
        value = draw.normal(size=shape) * (1 + drift * draw.uniform(-1, 1, size=shape))
        model.graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), name))
    onnx.save(model, path)


@pytest.fixture
def here(tmp_path: Path, reg: Reg) -> Path:
    """The working directory: 0.1.0 is quantized, 0.2.0 has only halves, 0.3.0 two quantized files."""
    save(tmp_path / "old.onnx", 0)
    save(tmp_path / "new.onnx", 0.02)
    save(tmp_path / "other.onnx", 0, "v")
    for name, steps in {"int8": INT8, "fp16": FP16, "both": INT8 + BLOCKS}.items():
        (tmp_path / f"{name}.yaml").write_text(TASK + steps)
    for version, recipe in {"0.1.0": "int8", "0.2.0": "fp16", "0.3.0": "both"}.items():
        done = export(reg, "old.onnx", f"{recipe}.yaml", "--version", version)
        assert done.status == 0, done.err
    return tmp_path


def export(reg: Reg, source: str, recipe: str, *more: str) -> Any:
    return reg("--registry", "r", "export", source, "--recipe", recipe, "--name", "acme/x", *more)


def versions() -> list[str]:
    return sorted(str(version) for version in Registry(Path("r")).state("acme/x").versions)


def scales(version: str) -> list[Any]:
    """The scales of the INT8 file of a version."""
    registry = Registry(Path("r"))
    (artifact,) = registry.get(f"acme/x:{version}").manifest.artifacts
    model = onnx.load_from_string(registry.store.blob_path(artifact.digest).read_bytes())
    return [numpy_helper.to_array(tensor) for tensor in model.graph.initializer if "scale" in tensor.name]


def test_the_scales_are_the_parents_and_the_recipe_says_so(reg: Reg, here: Path) -> None:
    done = export(
        reg, "new.onnx", "int8.yaml", "--version", "0.4.0", "--scales-from", "acme/x:0.1.0", "--json"
    )
    assert done.status == 0, done.err
    assert all((new == old).all() for new, old in zip(scales("0.4.0"), scales("0.1.0"), strict=True))
    parent = str(Registry(Path("r")).get("acme/x:0.1.0").manifest.artifacts[0].digest)
    recipe = json.loads(done.out)["manifest"]["recipe"]
    assert recipe["parameters"]["recipe"]["steps"][0]["scales_from"] == parent
    record = next(step for step in recipe["steps"] if step["name"] == "int8")["result"]["scales"]
    assert (record["parent"], record["weights"], record["scales"]) == (parent, 2, 40)
    assert str(here) not in done.out


def test_it_is_rebuilt_from_the_registry_or_from_the_same_file_alone(reg: Reg, here: Path) -> None:
    parent = Registry(Path("r")).get("acme/x:0.1.0").manifest.artifacts[0].digest
    blob = Registry(Path("r")).store.blob_path(parent)
    (here / "parent.onnx").write_bytes(blob.read_bytes())
    assert (
        export(reg, "new.onnx", "int8.yaml", "--version", "0.4.0", "--scales-from", "parent.onnx").status == 0
    )

    def rebuild(*more: str) -> Any:
        return reg("--registry", "r", "rebuild", "acme/x:0.4.0", "--source", "new.onnx", *more)

    done = rebuild()
    assert (done.status, "acme/x:0.4.0 was rebuilt" in done.out) == (0, True), done.err
    blob.unlink()
    for words, said in {
        (): "--data int8=PATH",
        ("--data", "int8=old.onnx"): "no weight in it is quantized",
        ("--data", "int8=nowhere.onnx"): "no file exists at",
    }.items():
        refused = rebuild(*words)
        assert (refused.status, said in refused.err) == (2, True), refused.err
    assert rebuild("--data", "int8=parent.onnx").status == 0
    model = onnx.load("parent.onnx")
    model.doc_string = "other bytes"
    onnx.save(model, "parent.onnx")
    refused = rebuild("--data", "int8=parent.onnx")
    assert (refused.status, "int8 is not what" in refused.err) == (2, True), refused.err


def test_an_equal_request_is_recognised_and_one_with_another_parent_is_not(reg: Reg, here: Path) -> None:
    assert export(reg, "new.onnx", "int8.yaml", "--scales-from", "acme/x:0.1.0").status == 0
    again = export(reg, "new.onnx", "int8.yaml", "--scales-from", "acme/x:0.1.0")
    assert again.status == 0
    assert len(versions()) == 4
    assert export(reg, "new.onnx", "int8.yaml").status == 0
    assert len(versions()) == 5


@pytest.mark.parametrize(
    ("source", "recipe", "parent", "status", "said"),
    [
        ("new.onnx", "int8", "acme/x:9.0.0", 3, "9.0.0"),
        ("new.onnx", "int8", "acme/nobody", 3, "acme/nobody"),
        (
            "new.onnx",
            "int8",
            "acme/x:0.2.0",
            2,
            "has no files of the format onnx-int8",
        ),
        (
            "new.onnx",
            "int8",
            "acme/x:0.3.0",
            2,
            "2 files of the format onnx-int8 to take scales of: int8.onnx, blocks.onnx",
        ),
        ("new.onnx", "int8", "old.onnx", 2, "no weight in it is quantized"),
        ("other.onnx", "int8", "acme/x:0.1.0", 2, "is of another model"),
        ("new.onnx", "fp16", "acme/x:0.1.0", 2, "the recipe has no step that takes scales"),
        ("new.onnx", "broken", "acme/x:0.1.0", 2, "step fp16: OnnxFloatToFloat16 takes no scales"),
        ("new.onnx", "twice", "acme/x:0.1.0", 2, "a step has data or scales_from, not both"),
        ("new.onnx", "missing", None, 2, "step int8: no file exists at nowhere.onnx"),
    ],
)
def test_a_parent_that_does_not_fit_publishes_nothing(
    reg: Reg, here: Path, source: str, recipe: str, parent: str | None, status: int, said: str
) -> None:
    (here / "broken.yaml").write_text(TASK + INT8 + FP16.replace("}", ", scales_from: old.onnx}"))
    (here / "twice.yaml").write_text(TASK + INT8.replace("}", ", data: rows.npz, scales_from: old.onnx}"))
    (here / "missing.yaml").write_text(TASK + INT8.replace("}", ", scales_from: nowhere.onnx}"))
    more = () if parent is None else ("--scales-from", parent)
    done = export(reg, source, f"{recipe}.yaml", *more)
    assert (done.status, said in done.err) == (status, True), done.err
    assert versions() == ["0.1.0", "0.2.0", "0.3.0"]


def test_a_job_names_a_file_beside_the_job_file(reg: Reg, here: Path, bert: Path) -> None:
    task = ("--task", "token-classification", "--quantize")
    assert reg("--registry", "r", "export", bert, *task, "--name", "acme/old").status == 0
    registry = Registry(here / "r")
    (parent,) = (item for item in registry.get("acme/old").manifest.artifacts if item.format == "onnx-int8")
    (here / "jobs").mkdir()
    (here / "jobs" / "parent.onnx").write_bytes(registry.store.blob_path(parent.digest).read_bytes())
    options = {"quantize": True, "scales_from": "parent.onnx"}
    row = {"source": str(bert), "name": "acme/new", "task": "token-classification", "options": options}
    (here / "jobs" / "jobs.yaml").write_text(json.dumps([row]))
    (job,) = read_jobs(Path("jobs/jobs.yaml"))
    plan = job.request.plan()
    assert isinstance(plan, ExportPlan)
    assert plan.recorded_recipe()["steps"][1]["scales_from"] == str(parent.digest)


def test_a_search_takes_no_scales(reg: Reg, here: Path) -> None:
    done = export(
        reg, "new.onnx", "int8.yaml", "--certify", "--eval-suite", "s.jsonl", "--scales-from", "acme/x:0.1.0"
    )
    assert (done.status, "--scales-from and --certify contradict" in done.err) == (2, True), done.err
