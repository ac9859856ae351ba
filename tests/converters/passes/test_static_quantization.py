"""`OnnxStaticQuantization`: formats, methods, and the data it is calibrated on."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from onnxreg.converters.passes.base import run
from onnxreg.converters.passes.pass_contract import PassContract, run_and_compare
from onnxreg.converters.passes.static_quantization import OnnxStaticQuantization
from onnxreg.converters.passes.tools import samples
from onnxreg.schema.core.errors import ConversionError, InputError, NotFoundError


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
@pytest.mark.parametrize("quant_format", ["QDQ", "QOperator"])
def test_formats_and_methods(quant_format: str, method: str) -> None:
    work = OnnxStaticQuantization(data(), quant_format=quant_format, calibrate_method=method)
    after, step = run_and_compare("int8", work, model(), feeds=data(3))
    operators = step.result["operators"]
    assert ("QLinearConv" in operators) is (quant_format == "QOperator")
    assert ("Conv" in operators) is (quant_format == "QDQ")
    assert step.result["weights"] == 2
    assert step.result["quantized_bytes"] == 4 * (4 * 27 + 144 * 5)
    assert step.result["calibration"]["samples"] == 8
    assert step.result["parity"]["outputs"]["y"]["cosine"] > 0.99
    assert len(after.metadata_props) == 0
    assert [entry.domain for entry in after.opset_import if entry.domain not in ("", "com.microsoft")] == []


def test_other_data_gives_other_ranges_and_is_on_record() -> None:
    wide = [{"x": 100 * feed["x"]} for feed in data()]
    (one, first), (other, second) = (
        run("int8", OnnxStaticQuantization(feeds), model()) for feeds in (data(), wide)
    )
    assert one != other
    assert first.result["calibration"]["dataset"] != second.result["calibration"]["dataset"]


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


def test_data_of_another_shape_is_an_error() -> None:
    with pytest.raises(ConversionError, match="could not quantize"):
        run("int8", OnnxStaticQuantization([{"x": np.ones((1, 3), np.float32)}]), model())


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


def test_files_that_hold_no_rows(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.npz").write_text("no archive")
    pickled = np.empty(1, dtype=object)
    cases = [
        tmp_path / "empty",
        tmp_path / "missing.npz",
        tmp_path / "text.npz",
        write(tmp_path / "ragged.npz", x=np.ones(2), y=np.ones(3)),
        write(tmp_path / "scalar.npz", x=np.float32(1)),
        write(tmp_path / "pickled.npz", x=pickled),
    ]
    for case in cases:
        with pytest.raises((InputError, NotFoundError)):
            samples.read(case)
