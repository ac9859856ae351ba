"""Stable quantization: the scales of a parent release, and what becomes of weights that they do not fit."""

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from onnxreg.converters.delta.extents import read_extents
from onnxreg.converters.delta.make import ModelFile, make_delta
from onnxreg.converters.passes.base import GraphPass
from onnxreg.converters.passes.float16 import OnnxFloatToFloat16
from onnxreg.converters.passes.pass_contract import run_and_compare
from onnxreg.converters.passes.quantization import (
    EmbeddingQuantization,
    OnnxDynamicQuantization,
)
from onnxreg.converters.passes.tools.parent_scales import ParentScales
from onnxreg.converters.source.source_files import digest_file
from onnxreg.schema.core.digest import Descriptor
from onnxreg.schema.core.errors import InputError

SIZE, ROWS = 64, 30
MODEL = f"""<ir_version: 9, opset_import: ["" : 18]>
net (int64[n] ids) => (float[n, {SIZE}] y)
{{ h = Gather(table, ids) a = MatMul(h, first) b = Relu(a) y = Gemm <transB = 1> (b, second) }}"""
GATHER = ["MatMul", "Gemm", "Gather"]
PASSES: dict[str, tuple[type[GraphPass], dict[str, Any]]] = {
    "per channel": (OnnxDynamicQuantization, {}),
    "per tensor, with tables": (
        OnnxDynamicQuantization,
        {"per_channel": False, "op_types_to_quantize": GATHER},
    ),
    "with zero points": (OnnxDynamicQuantization, {"weight_type": "QUInt8"}),
    "reduced": (OnnxDynamicQuantization, {"reduce_range": True}),
    "rows": (EmbeddingQuantization, {}),
}


def model(drift: float = 0.0, change: Callable[[dict[str, Any]], None] = lambda weights: None) -> Any:
    parsed, draw = onnx.parser.parse_model(MODEL), np.random.default_rng(0)
    shapes = {"table": (ROWS, SIZE), "first": (SIZE, SIZE), "second": (SIZE, SIZE)}
    weights = {name: draw.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    for name, value in weights.items():
        weights[name] = value * (1 + drift * draw.uniform(-1, 1, size=value.shape)).astype(np.float32)
    change(weights)
    parsed.graph.initializer.extend(
        onnx.numpy_helper.from_array(value, name) for name, value in weights.items()
    )
    for index, node in enumerate(parsed.graph.node):
        node.name = f"node{index}"
    return parsed


def run(kind: str, subject: Any, scales: ParentScales | None = None) -> tuple[Any, Mapping[str, Any]]:
    work, params = PASSES[kind]
    after, step = run_and_compare("step", work(scales=scales, **params), subject)
    return after, step.to_json()["result"]


def parent(directory: Path, kind: str) -> ParentScales:
    path = directory / "old.onnx"
    onnx.save(run(kind, model())[0], path)
    return ParentScales(path)


def arrays(graph: Any) -> dict[str, Any]:
    return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.graph.initializer}


def codes(graph: Any) -> Any:
    return np.concatenate(
        [value.reshape(-1) for value in arrays(graph).values() if value.dtype.itemsize == 1]
    )


@pytest.mark.parametrize("kind", PASSES)
def test_the_same_weights_with_their_own_scales_give_the_same_bytes(kind: str, tmp_path: Path) -> None:
    scales = parent(tmp_path, kind)
    after, result = run(kind, model(), scales)
    assert after.SerializeToString(deterministic=True) == scales.path.read_bytes()
    record = result["scales"]
    assert record["parent"] == scales.digest
    assert record["weights"] >= 1
    assert record["scales"] >= 1
    assert [record[key] for key in ("own_weights", "own_scales")] == [0, 0]
    assert record["clipped"] == 0


@pytest.mark.parametrize("kind", PASSES)
def test_weights_that_drift_keep_the_scales_and_more_of_the_codes(kind: str, tmp_path: Path) -> None:
    old, (own, before) = run(kind, model())[0], run(kind, model(0.02))
    after, result = run(kind, model(0.02), parent(tmp_path, kind))
    floats = [name for name, value in arrays(old).items() if value.dtype == np.float32 and "scale" in name]
    assert floats
    assert all((arrays(after)[name] == arrays(old)[name]).all() for name in floats)
    assert not all((arrays(own)[name] == arrays(old)[name]).all() for name in floats)
    assert (codes(after) != codes(old)).sum() < (codes(own) != codes(old)).sum()
    assert result["scales"]["own_scales"] == 0
    assert result["parity"]["outputs"]["y"]["cosine"] > before["parity"]["outputs"]["y"]["cosine"] - 1e-3


def test_the_delta_is_smaller(tmp_path: Path) -> None:
    def save(name: str, drift: float, scales: ParentScales | None = None) -> Path:
        onnx.save(run("per tensor, with tables", model(drift), scales)[0], tmp_path / name)
        return tmp_path / name

    def delta_bytes(new: Path) -> int:
        extents = read_extents({path.name: path for path in (old, new)})
        files = [
            ModelFile(path, Descriptor(digest_file(path), path.stat().st_size), extents[path.name])
            for path in (old, new)
        ]
        size = make_delta(files[0], files[1], io.BytesIO())
        assert size is not None
        return size

    old = save("old.onnx", 0)
    own, stable = save("own.onnx", 0.005), save("stable.onnx", 0.005, ParentScales(old))
    assert delta_bytes(stable) < 0.8 * delta_bytes(own)


def test_weights_outside_of_the_old_range_are_clipped_and_counted(tmp_path: Path) -> None:
    def grow(weights: dict[str, Any]) -> None:
        row = np.abs(weights["table"][3]).argmax()
        weights["table"][3, row] *= 1.05

    after, result = run("rows", model(0, grow), parent(tmp_path, "rows"))
    assert result["scales"]["clipped"] == 1
    assert result["scales"]["own_scales"] == 0
    assert codes(after).tolist() == codes(run("rows", model())[0]).tolist()


@pytest.mark.parametrize("factor", [0.5, 1.2])
def test_a_row_of_another_range_takes_its_own_scale(factor: float, tmp_path: Path) -> None:
    def scale(weights: dict[str, Any]) -> None:
        weights["table"][3] *= factor

    after, result = run("rows", model(0, scale), parent(tmp_path, "rows"))
    assert result["scales"]["own_scales"] == 1
    assert result["scales"]["scales"] == ROWS - 1
    own, _ = run("rows", model(0, scale))
    assert after.SerializeToString(deterministic=True) == own.SerializeToString(deterministic=True)


def test_a_weight_that_the_parent_lacks_has_its_own_scales(tmp_path: Path) -> None:
    scales = parent(tmp_path, "per channel")
    renamed = model()
    renamed.graph.initializer[1].name = renamed.graph.node[1].input[1] = "new"
    _, result = run("per channel", renamed, scales)
    assert (result["scales"]["weights"], result["scales"]["own_weights"]) == (1, 1)


def other(path: Path) -> None:
    unlike = model()
    for tensor, node in zip(unlike.graph.initializer, (0, 1, 3), strict=True):
        position = list(unlike.graph.node[node].input).index(tensor.name)
        tensor.name = unlike.graph.node[node].input[position] = f"other.{tensor.name}"
    onnx.save(run("per channel", unlike)[0], path)


def external(path: Path) -> None:
    onnx.save(
        run("per channel", model())[0],
        path,
        save_as_external_data=True,
        location="old.data",
        size_threshold=0,
    )


@pytest.mark.parametrize("kind", PASSES)
def test_a_parent_with_a_truncated_tensor(kind: str, tmp_path: Path) -> None:
    damaged = onnx.load(parent(tmp_path, kind).path)
    for tensor in damaged.graph.initializer:
        if tensor.data_type in (tensor.INT8, tensor.UINT8) and len(tensor.raw_data) > 1:
            tensor.raw_data = tensor.raw_data[:-1]
    onnx.save(damaged, tmp_path / "old.onnx")
    with pytest.raises(InputError, match=r"old\.onnx is damaged: .* is shorter than its shape"):
        run(kind, model(), ParentScales(tmp_path / "old.onnx"))


@pytest.mark.parametrize("number", [np.nan, np.inf, 0.0])
def test_scales_that_are_no_numbers_are_not_taken(number: float, tmp_path: Path) -> None:
    damaged = onnx.load(parent(tmp_path, "rows").path)
    (scales,) = (tensor for tensor in damaged.graph.initializer if tensor.name == "table_scales")
    values = np.array(onnx.numpy_helper.to_array(scales))
    values[4] = number
    scales.CopyFrom(onnx.numpy_helper.from_array(values, scales.name))
    onnx.save(damaged, tmp_path / "old.onnx")
    after, result = run("rows", model(), ParentScales(tmp_path / "old.onnx"))
    assert result["scales"]["own_scales"] == 1
    own, _ = run("rows", model())
    assert after.SerializeToString(deterministic=True) == own.SerializeToString(deterministic=True)


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (other, "old.onnx is of another model"),
        (lambda path: onnx.save(model(), path), "no weight in it is quantized to 8 bits"),
        (external, "its weights in it"),
        (lambda path: path.write_bytes(b"nothing"), "old.onnx"),
    ],
)
def test_a_parent_without_scales_to_take(write: Callable[[Path], None], said: str, tmp_path: Path) -> None:
    write(tmp_path / "old.onnx")
    with pytest.raises(InputError, match=said):
        run("per channel", model(), ParentScales(tmp_path / "old.onnx"))


def test_passes_that_do_not_quantize_take_no_scales() -> None:
    assert not OnnxFloatToFloat16.takes_scales
