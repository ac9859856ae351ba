"""`OnnxOpVersionConversion`: up, down, and what an opset lacks."""

from typing import Any

import numpy as np
import onnx
import pytest

from onnxreg.converters.passes.base import run
from onnxreg.converters.passes.graph_passes import OnnxOpVersionConversion
from onnxreg.converters.passes.pass_contract import PassContract, run_and_compare
from onnxreg.converters.passes.tools import graph
from onnxreg.schema.core.errors import ConversionError, InputError


def model(body: str = "y = ReduceMax(z, axes)", opset: int = 18) -> Any:
    parsed = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[n, 40] x) => (float[p, q] y)'
        f" {{ z = MatMul(x, weight) {body} }}"
    )
    weight = np.random.default_rng(0).normal(size=(40, 40)).astype(np.float32)
    parsed.graph.initializer.append(onnx.numpy_helper.from_array(weight, "weight"))
    if "axes" in body:
        parsed.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "axes"))
    return parsed


class TestContract(PassContract):
    def make(self) -> OnnxOpVersionConversion:
        return OnnxOpVersionConversion(target_opset=20)

    def subject(self) -> Any:
        return model()


@pytest.mark.parametrize(("target", "ir"), [(17, 8), (20, 9), (21, 10), (23, 11)])
def test_the_file_says_the_opset_and_its_ir_version(target: int, ir: int) -> None:
    after, step = run_and_compare("opset", OnnxOpVersionConversion(target_opset=target), model())
    assert (graph.default_opset(after), after.ir_version) == (target, ir)
    assert step.result["opset"] == target
    assert (step.result["opset_before"], step.result["ir_version"]) == (18, ir)
    assert step.result["parity"]["outputs"]["y"]["max_abs_diff"] < 1e-5
    assert [tensor.name for tensor in after.graph.initializer if len(tensor.raw_data) > 4096] == ["weight"]


def test_down_takes_axes_back_into_attributes() -> None:
    after, _ = run("opset", OnnxOpVersionConversion(target_opset=17), model())
    reduce = after.graph.node[1]
    assert (reduce.op_type, len(reduce.input), reduce.attribute[0].name) == ("ReduceMax", 1, "axes")


def test_the_same_opset_changes_nothing() -> None:
    before = model().SerializeToString(deterministic=True)
    after, _ = run("opset", OnnxOpVersionConversion(target_opset=18), model())
    assert after.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize(
    ("body", "opset", "target"),
    [("y = Gelu(z)", 20, 18), ("y = LayerNormalization(z, z)", 18, 13), ("y = GridSample(z, z)", 16, 15)],
)
def test_operators_absent_from_an_older_opset_are_refused(body: str, opset: int, target: int) -> None:
    with pytest.raises(ConversionError, match=f"cannot be converted to opset {target}"):
        run("opset", OnnxOpVersionConversion(target_opset=target), model(body, opset))


@pytest.mark.parametrize("target", [6, 27])
def test_an_opset_that_nobody_knows_is_an_input_error(target: int) -> None:
    with pytest.raises(InputError):
        run("opset", OnnxOpVersionConversion(target_opset=target), model())


def test_a_subgraph_is_not_left_in_the_old_opset() -> None:
    parsed = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (bool c, float[n, m] x) => (float[p, q] y) {'
        " y = If(c) <then_branch = t () => (float[p, q] u) { u = ReduceMax(x, axes) },"
        " else_branch = e () => (float[p, q] v) { v = Identity(x) }> }"
    )
    parsed.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "axes"))
    with pytest.raises(ConversionError, match="cannot be converted to opset 17"):
        run("opset", OnnxOpVersionConversion(target_opset=17), parsed)


def test_what_the_converter_cannot_read_is_named() -> None:
    subject = model("y = MatMul(z, sparse)")
    values = onnx.numpy_helper.from_array(np.ones(2, np.float32), "sparse")
    places = onnx.numpy_helper.from_array(np.array([0, 3]))
    subject.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, places, [40, 2]))
    with pytest.raises(ConversionError, match="cannot be converted to opset 21: Input sparse is undefined"):
        run("opset", OnnxOpVersionConversion(target_opset=21), subject)


def test_local_functions_are_inlined() -> None:
    parsed = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18, "local" : 1]> g (float[n, m] x) => (float[p, q] y)'
        ' { y = local.f(x) } <domain: "local", opset_import: ["" : 18]>'
        " f (x) => (y) { a = Constant<value = int64[1] {1}>() y = ReduceMax(x, a) }"
    )
    after, _ = run_and_compare("opset", OnnxOpVersionConversion(target_opset=17), parsed)
    assert (len(after.functions), [entry.domain for entry in after.opset_import]) == (0, [""])
