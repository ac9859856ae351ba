"""A model of more than 2 GB through the passes, its files, the registry and back. `limit` makes the same of a small one."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.graphs import graph, load, read, stored

from onnxreg.converters.engine.cache import StepCache
from onnxreg.converters.engine.plan import plan_export
from onnxreg.converters.engine.run_plan import execute
from onnxreg.converters.importers.adopt import adopt
from onnxreg.converters.onnx.facts import inspect_file
from onnxreg.converters.passes import models
from onnxreg.converters.passes.base import Pass
from onnxreg.converters.passes.float16 import OnnxFloatToFloat16
from onnxreg.converters.passes.graph_passes import DynamicToFixedShape, OnnxOpVersionConversion
from onnxreg.converters.passes.pass_contract import run_and_compare
from onnxreg.converters.passes.quantization import OnnxDynamicQuantization, OnnxStaticQuantization
from onnxreg.registry import Registry
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.inputs.recipe_file import RecipeFile

TABLES = 4
WIDTH = 64


def write(folder: Path, rows: int) -> Path:
    """A graph of four embedding tables of so many rows and a product, all in one sparse file beside it."""
    tables = "".join(f"h{i} = Gather(table{i}, ids) " for i in range(TABLES))
    sums = " ".join(f"s{i} = Add({'h0' if i == 1 else f's{i - 1}'}, h{i})" for i in range(1, TABLES))
    body = f"{tables} {sums} y = MatMul(s{TABLES - 1}, weight)"
    parsed = graph(body, "int64[batch, sequence] ids", f"float[batch, sequence, {WIDTH}] y")
    draw = np.random.default_rng(0)
    shapes = {**{f"table{i}": (rows, WIDTH) for i in range(TABLES)}, "weight": (WIDTH, WIDTH)}
    with (folder / "weights.bin").open("wb") as file:
        for name, shape in shapes.items():
            offset, length = -(-file.tell() // 4096) * 4096, 4 * shape[0] * shape[1]
            file.seek(offset)
            file.write(draw.normal(size=(min(shape[0], 64), WIDTH)).astype(np.float32).tobytes())
            file.truncate(offset + length)
            file.seek(offset + length)
            tensor = parsed.graph.initializer.add(name=name, data_type=1, dims=shape)
            tensor.data_location = tensor.EXTERNAL
            for key, value in {"location": "weights.bin", "offset": offset, "length": length}.items():
                tensor.external_data.add(key=key, value=str(value))
    (folder / "model.onnx").write_bytes(parsed.SerializeToString())
    return folder / "model.onnx"


def feeds() -> list[dict[str, Any]]:
    return [{"ids": np.array([[0, 1, 63], [5, 62, 7]])}]


def convert(path: Path, work: Pass[Any, Any], limit: int) -> tuple[Path, Any]:
    after, step = run_and_compare("step", work, models.load(path), feeds=feeds())
    target = path.with_name("out") / "model.onnx"
    target.parent.mkdir()
    models.save(after, target, limit)
    return target, step.result


def check_published(path: Path, root: Path) -> None:
    """All files are published, each with its size."""
    workspace = root / "workspace"
    workspace.mkdir(parents=True)
    sizes = {file.name: file.stat().st_size for file in path.parent.iterdir()}
    registry = Registry(root / "registry")
    published = registry.add(adopt([path], workspace, name="acme/large")[0], "1.0.0")
    (artifact,) = published.manifest.artifacts
    assert {file.path: file.size for file in (artifact, *artifact.files)} == sizes


LIMIT = models.MAX_INLINE_WEIGHT_BYTES
SIZES = [(300, 1000), pytest.param(2_200_000, LIMIT, marks=pytest.mark.large)]
"""Rows of a table, and the most bytes of weights inside a file."""


@pytest.mark.parametrize(("rows", "limit"), SIZES)
def test_half_of_a_large_model_is_one_file_and_a_large_result_keeps_external_weights(rows, limit, tmp_path):
    path = write(tmp_path, rows)
    target, result = convert(path, OnnxFloatToFloat16(), LIMIT)
    assert result["weight_bytes"]["before"] == 2 * result["weight_bytes"]["after"]
    assert [file.name for file in target.parent.iterdir()] == ["model.onnx"]
    assert inspect_file(target).precision == "float16"
    check_published(target, tmp_path / "half")
    shutil.rmtree(target.parent)
    target, result = convert(path, OnnxDynamicQuantization(), limit)
    facts = inspect_file(target)
    assert (result["weights"], facts.weights.weights_quantized) == (1, 1)
    assert facts.external_data == ("model.onnx.data",)
    check_published(target, tmp_path / "int8")


@pytest.mark.parametrize(("rows", "limit"), SIZES)
def test_a_recipe_runs_over_a_large_model_and_twice_gives_the_same(rows, limit, tmp_path, monkeypatch):
    real = models.save
    monkeypatch.setattr(models, "save", lambda graph, path: real(graph, path, limit))
    (tmp_path / "source").mkdir()
    source = write(tmp_path / "source", rows)
    steps = [
        {"name": "newer", "pass": "OnnxOpVersionConversion", "params": {"target_opset": 21}},
        {"name": "half", "pass": "OnnxFloatToFloat16", "input": "newer"},
    ]
    outputs = [{"step": "newer", "path": "model.onnx"}, {"step": "half", "path": "half/model.onnx"}]
    recipe = RecipeFile.from_json({"task": "onnx", "steps": steps, "outputs": outputs})
    registry, cache = Registry(tmp_path / "registry"), StepCache(tmp_path / "cache")
    digests = []
    for _ in range(2):
        with registry.workspace() as workspace:
            order = plan_export(recipe, str(source), "acme/large")
            digests.append(registry.add(execute(order, workspace, cache)).digest)
    assert digests[0] == digests[1]
    elsewhere = Registry(tmp_path / "elsewhere")
    elsewhere.pull("acme/large", str(tmp_path / "registry"))
    published = elsewhere.write_out("acme/large", tmp_path / "files")
    large, half = published.manifest.artifacts
    assert {file.role for file in large.files} == {"external-data", "golden"}
    assert half.precision == "float16" and half.parent == large.digest
    assert inspect_file(tmp_path / "files" / "model.onnx").opset == 21


UNTOUCHED = {
    "opset": OnnxOpVersionConversion(target_opset=21),
    "shape": DynamicToFixedShape(dim_param=["batch", "sequence"], dim_value=[2, 3]),
}


def beginnings(path: Path) -> dict[str, bytes]:
    weights = models.load(path).graph.initializers.items()
    return {name: value.const_value.numpy().reshape(-1)[:64].tobytes() for name, value in weights}


@pytest.mark.parametrize("work", UNTOUCHED.values(), ids=UNTOUCHED)
@pytest.mark.parametrize(("rows", "limit"), SIZES)
def test_weights_survive_what_does_not_touch_them(work, rows, limit, tmp_path):
    path = write(tmp_path, rows)
    before = beginnings(path)
    target, result = convert(path, work, limit)
    assert result["parity"]["outputs"]["y"]["max_abs_diff"] == 0
    assert beginnings(target) == before


def test_the_same_model_gives_the_same_files(tmp_path):
    loaded = models.load(write(tmp_path, 300))
    found = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        assert models.save(loaded, tmp_path / name / "m.onnx", 0) == ("m.onnx", "m.onnx.data")
        found.append([(tmp_path / name / file).read_bytes() for file in ("m.onnx", "m.onnx.data")])
    assert found[0] == found[1]
    assert load(tmp_path / "one" / "m.onnx") == models.to_proto(loaded)
    tensors = onnx.load(tmp_path / "one" / "m.onnx", load_external_data=False).graph.initializer
    offsets = [int(e.value) for tensor in tensors for e in tensor.external_data if e.key == "offset"]
    assert offsets == sorted(offsets)
    assert all(offset % 4096 == 0 for offset in offsets)


def test_nothing_half_written_stays(tmp_path, monkeypatch):
    loaded = models.load(write(tmp_path, 300))
    target = tmp_path / "out"
    target.mkdir()

    def fail(self: Path, data: bytes) -> int:
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(OSError, match="no space left"):
        models.save(loaded, target / "m.onnx", 0)
    assert list(target.iterdir()) == []


def test_external_data_is_read_by_the_rules_of_the_inspection(tmp_path):
    parsed = onnx.load(path := write(tmp_path, 300), load_external_data=False)
    parsed.graph.initializer[0].external_data[0].value = "../weights.bin"
    path.write_bytes(parsed.SerializeToString())
    with pytest.raises(InputError, match="not a file beside it"):
        models.load(path)


@pytest.mark.parametrize("work", [OnnxDynamicQuantization, OnnxStaticQuantization, OnnxFloatToFloat16])
def test_weights_that_are_also_inputs_are_changed(tmp_path, work):
    sides = "float[n, 64] x, float[64, 64] W", "float[n, 64] y"
    model = graph("y = MatMul(x, W)", *sides, ir=3, opset=13, W=(64, 64))
    weight = stored(model)["W"]
    onnx.save(model, tmp_path / "model.onnx")
    rows = [{"x": weight[:4]}]
    after, _ = run_and_compare("step", work(rows), models.load(tmp_path / "model.onnx"), feeds=rows)
    assert models.weight_bytes(after) < 3 * weight.nbytes / 4
    assert ([value.name for value in after.graph.inputs], after.ir_version >= 4) == (["x"], True)


def test_a_data_file_with_a_second_link_is_read_as_a_cache_or_registry_keeps_it(tmp_path: Path) -> None:
    path = write(tmp_path, 64)
    before = stored(load(path))
    (tmp_path / "second.bin").hardlink_to(tmp_path / "weights.bin")
    after = stored(load(path))
    assert before.keys() == after.keys() and all(np.array_equal(before[name], after[name]) for name in before)


def test_a_weight_that_leaves_the_graph_keeps_its_notes(tmp_path):
    model = load(write(tmp_path, 300))
    weight = model.graph.initializer[-1]
    weight.doc_string = "trained in May"
    weight.metadata_props.add(key="origin", value="run 3")
    models.save(read(model), tmp_path / "out.onnx", 1000)
    copy = onnx.load(tmp_path / "out.onnx", load_external_data=False).graph.initializer[-1]
    assert copy.external_data and copy.doc_string == "trained in May"
    assert [(note.key, note.value) for note in copy.metadata_props] == [("origin", "run 3")]


@pytest.mark.parametrize("limit", [0, models.MAX_INLINE_WEIGHT_BYTES])
def test_weights_that_are_cut_short_while_a_pass_has_them_are_an_error(tmp_path, limit):
    model = models.load(write(tmp_path, 100))
    (tmp_path / "weights.bin").write_bytes(b"")
    with pytest.raises(InputError, match="cut short while it was read"):
        models.save(model, tmp_path / "out.onnx", limit)
    assert {file.name for file in tmp_path.iterdir()} == {"model.onnx", "weights.bin"}


@pytest.mark.parametrize("name", ["weights.bin", "whole.onnx"])
def test_a_model_keeps_its_weights_when_its_file_is_replaced(tmp_path, name):
    path = write(tmp_path, 100)
    before = stored(load(path))
    models.save(models.load(path), tmp_path / "whole.onnx")
    model = models.load(path if name == "weights.bin" else tmp_path / name)
    (tmp_path / "other").write_bytes(bytes((tmp_path / name).stat().st_size))
    (tmp_path / "other").replace(tmp_path / name)
    models.save(model, tmp_path / "out.onnx")
    after = stored(load(tmp_path / "out.onnx"))
    assert all(np.array_equal(after[key], before[key]) for key in before)
