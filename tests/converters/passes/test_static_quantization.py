"""`OnnxStaticQuantization`: formats, methods, and the data it is calibrated on."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from onnxreg.converters.passes.base import run
from onnxreg.converters.passes.pass_contract import PassContract, run_and_compare
from onnxreg.converters.passes.quantization import OnnxStaticQuantization
from onnxreg.converters.passes.tools import samples
from onnxreg.schema.core.errors import ConversionError, InputError


def model() -> Any:
    parsed = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[n, 3, 8, 8] x) => (float[n, 5] y) {'
        " c = Conv(x, kernel) r = Relu(c) f = Flatten(r) y = Gemm(f, weight, bias) }"
    )
    for index, node in enumerate(parsed.graph.node):
        node.name = f"node{index}"
    draw = np.random.default_rng(0)
    for name, shape in {"kernel": (4, 3, 3, 3), "weight": (144, 5), "bias": (5,)}.items():
        value = draw.normal(size=shape).astype(np.float32)
        parsed.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    return parsed


def data(count: int = 8) -> list[dict[str, Any]]:
    draw = np.random.default_rng(1)
    return [{"x": draw.normal(size=(1, 3, 8, 8)).astype(np.float32)} for _ in range(count)]


class TestContract(PassContract):
    def make(self) -> OnnxStaticQuantization:
        return OnnxStaticQuantization(data())

    def subject(self) -> Any:
        return model()


@pytest.mark.parametrize("method", ["MinMax", "Entropy", "Percentile"])
def test_methods(method: str) -> None:
    work = OnnxStaticQuantization(data(), calibrate_method=method)
    after, step = run_and_compare("int8", work, model(), feeds=data(3))
    operators = step.result["operators"]
    assert {"Conv", "DequantizeLinear", "QuantizeLinear"} <= operators.keys()
    assert step.result["weights"] == 2
    assert step.result["quantized_bytes"] == 4 * (4 * 27 + 144 * 5)
    assert step.result["calibration"]["samples"] == 8
    assert step.result["parity"]["outputs"]["y"]["cosine"] > 0.99
    assert len(after.metadata_props) == 0
    assert [entry.domain for entry in after.opset_import if entry.domain not in ("", "com.microsoft")] == []


def test_per_tensor_and_per_channel() -> None:
    sizes = {}
    for per_channel in (False, True):
        after, _ = run("int8", OnnxStaticQuantization(data(), per_channel=per_channel), model())
        sizes[per_channel] = {t.name: list(t.dims) for t in after.graph.initializer}["kernel_scale"]
    assert sizes == {False: [], True: [4]}


def test_excluded_nodes_stay() -> None:
    after, step = run("int8", OnnxStaticQuantization(data(), nodes_to_exclude=["node3"]), model())
    assert step.result["weights"] == 1
    assert "weight" in {tensor.name for tensor in after.graph.initializer}


@pytest.mark.parametrize(
    ("feeds", "message"),
    [(None, "needs sample inputs"), ([], "needs sample"), ([{"z": 1}], "the graph takes x")],
)
def test_without_fitting_data_there_is_no_calibration(feeds: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        run("int8", OnnxStaticQuantization(feeds), model())


def test_nothing_to_quantize_is_an_error() -> None:
    with pytest.raises(ConversionError, match="none of the weights"):
        run("int8", OnnxStaticQuantization(data(), op_types_to_quantize=["MatMul"]), model())


def write(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def test_samples_are_rows_of_files_drawn_with_a_seed(tmp_path: Path) -> None:
    rows = np.arange(10, dtype=np.float32).reshape(10, 1)
    write(tmp_path / "a.npz", x=rows[:6])
    write(tmp_path / "b.npz", x=rows[6:])
    assert [feed["x"].tolist() for feed in samples.read(tmp_path)] == [[[float(n)]] for n in range(10)]
    some = samples.read(tmp_path, 4)
    assert [feed["x"].tolist() for feed in some] == [feed["x"].tolist() for feed in samples.read(tmp_path, 4)]
    assert samples.digest(some) != samples.digest(samples.read(tmp_path, 4, seed=1))
    with pytest.raises(InputError, match=r"11 samples were asked for, .* holds 10"):
        samples.read(tmp_path, 11)


MASKS = {
    "added": "pad = Where(keep, zero, low) masked = Add(scores, pad)",
    "chosen": "masked = Where(keep, scores, low)",
    "multiplied": "number = Cast<to=1>(keep) away = Sub(one, number) pad = Mul(away, low) masked = Add(scores, pad)",
}


@pytest.mark.parametrize("is_padded", [True, False])
@pytest.mark.parametrize("low", [-1e4, float(np.finfo(np.float32).min), -np.inf])
@pytest.mark.parametrize("mask", MASKS)
def test_attention_masks_stay_in_floating_point(mask: str, low: float, is_padded: bool) -> None:
    """A mask in 8 bits makes every score 0; one that was never seen while calibrating lets padding through."""
    if mask == "multiplied" and np.isinf(low):
        pytest.skip("0 times infinity is NaN")
    graph = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[n, 16] x, bool[n] keep) => (float[n, 16] y) {'
        " one = Constant<value_float=1.0>() zero = Constant<value_float=0.0>()"
        " q = MatMul(x, a) k = MatMul(x, b) kt = Transpose<perm=[1, 0]>(k) scores = MatMul(q, kt) "
        f"{MASKS[mask]} shares = Softmax(masked) v = MatMul(x, c) y = MatMul(shares, v) }}"
    )
    draw = np.random.default_rng(0)
    for name in "abc":
        value = draw.normal(size=(16, 16)).astype(np.float32) / 4
        graph.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    graph.graph.initializer.append(onnx.numpy_helper.from_array(np.array(low, np.float32), "low"))
    x = draw.normal(size=(16, 9, 16)).astype(np.float32)
    feeds = [{"x": row, "keep": np.arange(9) < 3 + index % 6} for index, row in enumerate(x)]
    seen = feeds if is_padded else [{**feed, "keep": np.ones(9, bool)} for feed in feeds]
    _, step = run_and_compare("int8", OnnxStaticQuantization(seen), graph, feeds=feeds)
    assert step.result["parity"]["outputs"]["y"]["cosine"] > 0.99
    assert step.result["float_nodes"]
    assert step.result["weights"] == 3


def test_a_graph_without_masks_is_quantized_whole() -> None:
    _, step = run("int8", OnnxStaticQuantization(data()), model())
    assert "float_nodes" not in step.result


def test_indices_are_computed_in_floating_point() -> None:
    """As MPNet and T5 find the row of a relative position."""
    graph = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (int64[n] x) => (float[n, 8] y) {'
        " f = Cast<to=1>(x) l = Log(f) m = Mul(l, five) i = Cast<to=7>(m) r = Gather(table, i) y = MatMul(r, w) }"
    )
    draw = np.random.default_rng(0)
    for name, array in {
        "five": np.array(5),
        "table": draw.normal(size=(50, 8)),
        "w": draw.normal(size=(8, 8)),
    }.items():
        graph.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    feeds = [{"x": np.arange(1, 1000, step)} for step in (7, 90)]
    _, step = run_and_compare("int8", OnnxStaticQuantization(feeds), graph, feeds=feeds)
    assert step.result["parity"]["outputs"]["y"]["cosine"] > 0.99


def product(
    body: str, *, shape: str = "n, 16", **shapes: tuple[int, ...]
) -> tuple[Any, list[dict[str, Any]]]:
    graph = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 18]> g (float[{shape}] x) => (float[{shape}] y) {{ {body} }}'
    )
    draw = np.random.default_rng(0)
    for name, dims in shapes.items():
        value = draw.normal(size=dims).astype(np.float32) * np.geomspace(0.01, 1, dims[-1], dtype=np.float32)
        graph.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    sizes = [3 if size == "n" else int(size) for size in shape.split(", ")]
    return graph, [{"x": draw.normal(size=sizes).astype(np.float32)} for _ in range(8)]


@pytest.mark.parametrize(
    "body", ["h = Gemm<transB=1>(x, a) y = MatMul(h, a)", "h = Gemm<transB=1>(x, a) y = Gemm(h, a)"]
)
def test_a_matrix_that_nodes_read_both_ways_has_the_channels_of_each(body: str) -> None:
    graph, feeds = product(body, a=(16, 16))
    work = OnnxStaticQuantization(feeds)
    _, step = run_and_compare("int8", work, graph, feeds=feeds)
    assert step.result["parity"]["outputs"]["y"]["cosine"] > 0.999


@pytest.mark.parametrize("weight_type", ["QInt8", "QUInt8"])
def test_a_stack_of_matrices_has_one_scale(weight_type: str) -> None:
    graph, feeds = product("h = MatMul(x, a) y = MatMul(h, b)", shape="4, n, 8", a=(4, 8, 6), b=(6, 8))
    work = OnnxStaticQuantization(feeds, weight_type=weight_type)
    after, step = run_and_compare("int8", work, graph, feeds=feeds)
    sizes = {tensor.name: int(np.prod(tensor.dims)) for tensor in after.graph.initializer}
    assert (sizes["a_scale"], sizes["b_scale"]) == (1, 8)
    assert step.result["per_tensor"] == ["a"]
