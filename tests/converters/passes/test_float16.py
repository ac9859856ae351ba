"""`OnnxFloatToFloat16`: what stays float32 on request, and graphs that ONNX Runtime's converter leaves broken."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from onnxreg.converters.passes.base import public_types, run
from onnxreg.converters.passes.float16 import OnnxFloatToFloat16, OrtMixedPrecision, to_float16
from onnxreg.converters.passes.pass_contract import PassContract, run_and_compare
from onnxreg.converters.passes.quantization import OnnxDynamicQuantization
from onnxreg.converters.passes.tools import samples
from onnxreg.schema.core.errors import ConversionError, InputError

FLOAT, FLOAT16 = 1, 10
BODY = "first: h = MatMul(x, weight) r = Relu(h) s = Softmax(h) a = Add(r, s) b = Add(h, a) logits = MatMul(b, weight)"


def model(body: str = BODY) -> Any:
    parsed = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[n, 40] x) => (float[n, 40] logits, float[n, 40] h)'
        f" {{ {body.removeprefix('first: ')} }}"
    )
    parsed.graph.node[0].name = "first"
    weight = np.random.default_rng(0).normal(size=(40, 40)).astype(np.float32) / 6
    parsed.graph.initializer.append(onnx.numpy_helper.from_array(weight, "weight"))
    return parsed


class TestContract(PassContract):
    def make(self) -> OnnxFloatToFloat16:
        return OnnxFloatToFloat16(op_block_list=["Add"])

    def subject(self) -> Any:
        return model()


class TestContractOfPlainHalf(PassContract):
    def make(self) -> OnnxFloatToFloat16:
        return OnnxFloatToFloat16(keep_io_types=False)

    def subject(self) -> Any:
        return model()


@pytest.mark.parametrize(
    "params",
    [
        {"op_block_list": ["Add"]},
        {"op_block_list": ["Relu", "Softmax", "Add"]},
        {"node_block_list": ["first"]},
        {"op_include_list": ["MatMul"]},
        {"op_block_list": ["Add", "SkipSimplifiedLayerNormalization"]},
    ],
)
def test_two_readers_in_float32_of_one_value_do_not_collide(params: dict[str, Any]) -> None:
    half, step = run_and_compare("fp16", OnnxFloatToFloat16(**params), model())
    onnx.checker.check_model(half, full_check=True)
    assert step.result["parity"]["outputs"]["logits"]["cosine"] > 0.999
    assert step.result["weight_bytes"] == {"before": 6400, "after": 3200}


def test_operators_that_stay_read_float32() -> None:
    half, _ = run("fp16", OnnxFloatToFloat16(op_include_list=["MatMul"]), model())
    inferred = onnx.shape_inference.infer_shapes(half).graph
    kinds = {value.name: value.type.tensor_type.elem_type for value in inferred.value_info}
    read = {node.op_type: {kinds.get(name) for name in node.input} for node in half.graph.node}
    assert read["Softmax"] == read["Add"] == {FLOAT}


@pytest.mark.parametrize(
    ("keep", "types"),
    [
        (True, {"x": FLOAT, "logits": FLOAT, "h": FLOAT}),
        (False, {"x": FLOAT16, "logits": FLOAT16, "h": FLOAT16}),
    ],
)
def test_public_types(keep: Any, types: dict[str, int]) -> None:
    half, _ = run_and_compare("fp16", OnnxFloatToFloat16(keep_io_types=keep), model())
    assert public_types(half) == types


@pytest.mark.parametrize(
    "params",
    [
        {"op_block_list": ["Add"], "op_include_list": ["Relu"]},
        {"node_block_list": ["first"], "op_include_list": ["Relu"]},
        {"node_block_list": ["frist"]},
        {"op_include_list": ["Rleu"]},
        {"min_positive_val": 1e-9},
        {"max_finite_val": 1e6},
        {"keep_io_types": "logits"},
    ],
)
def test_invalid_parameters_are_refused(params: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        run("fp16", OnnxFloatToFloat16(**params), model())


def test_weights_are_bounded_as_asked() -> None:
    graph = model()
    huge = np.full((40, 40), -3e38, np.float32)
    graph.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(huge, "weight"))
    half, _ = run("fp16", OnnxFloatToFloat16(max_finite_val=1e4), graph)
    assert set(onnx.numpy_helper.to_array(half.graph.initializer[0]).reshape(-1).tolist()) == {-1e4}


def norm() -> Any:
    """The length of each row: values near 400, the squares of which float16 cannot hold."""
    parsed = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[n, 40] x) => (float[n, 40] logits) {'
        " h = MatMul(x, weight) big = Mul(h, thousand) square = Mul(big, big)"
        " mean = ReduceMean(square, axes) length = Sqrt(mean) logits = Div(big, length) }"
    )
    weight = np.random.default_rng(0).normal(size=(40, 40)).astype(np.float32) / 6
    parsed.graph.initializer.append(onnx.numpy_helper.from_array(weight, "weight"))
    parsed.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(1000), "thousand"))
    parsed.graph.initializer.append(onnx.numpy_helper.from_array(np.array([-1]), "axes"))
    return parsed


def evaluate(graph: Any, rows: int = 4) -> tuple[Any, Any]:
    """The outputs of `norm()` and of `graph` where float16 is computed in float16: onnx's reference."""
    x = np.random.default_rng(1).normal(size=(rows, 40)).astype(np.float32)
    return tuple(ReferenceEvaluator(each).run(None, {"x": x})[0] for each in (norm(), graph))


def test_overflowing_nodes_stay_float32_and_are_recorded() -> None:
    half, step = run_and_compare("fp16", OnnxFloatToFloat16(), norm())
    assert step.result["overflowing"] == ["Mul_2", "ReduceMean_3", "Sqrt_4"]
    expected, got = evaluate(half)
    np.testing.assert_allclose(got, expected, rtol=1e-2, atol=1e-3)


def test_onnx_runtime_on_a_cpu_does_not_show_the_overflow() -> None:
    """Why ranges are looked at: without them the proof holds, and other runtimes get NaN or 0."""
    plain = to_float16(norm())
    feed = {"x": np.random.default_rng(1).normal(size=(4, 40)).astype(np.float32)}
    on_a_cpu = samples.all_outputs(plain, [feed], "the graph")[0]["logits"]
    with pytest.warns(RuntimeWarning, match="overflow encountered in multiply"):
        expected, got = evaluate(plain)
    np.testing.assert_allclose(on_a_cpu, expected, rtol=1e-2, atol=1e-3)
    assert not np.allclose(got, expected, rtol=1e-2, atol=1e-3)


def test_an_include_list_that_names_an_overflow_is_refused() -> None:
    with pytest.raises(ConversionError, match="Mul_2 are beyond float16") as caught:
        run("fp16", OnnxFloatToFloat16(op_include_list=["MatMul", "Mul"]), norm())
    assert "OrtMixedPrecision" in caught.value.hint


def test_samples_of_ones_own_show_the_ranges() -> None:
    small = [{"x": np.full((1, 40), 1e-4, np.float32)}]
    _, step = run("fp16", OnnxFloatToFloat16(small), norm())
    assert step.result["overflowing"] == []


def test_branches_with_weights_of_one_name_are_an_error() -> None:
    branch = "<float[1, 2] w = {1, 2}>"
    subject = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (bool c, float[n, 1] x) => (float[n, 2] y) { y = If(c)'
        f" <then_branch = t () => (float[n, 2] u) {branch} {{ u = MatMul(x, w) }},"
        f" else_branch = e () => (float[n, 2] v) {branch} {{ v = MatMul(x, w) }}> }}"
    )
    with pytest.raises(ConversionError, match="could not convert the graph to float16: AssertionError"):
        run("fp16", OnnxFloatToFloat16(), subject)


def test_a_graph_in_a_circle_is_an_input_error() -> None:
    with pytest.raises(InputError, match="not a valid graph"):
        run("fp16", OnnxFloatToFloat16(), model("h = MatMul(x, b) b = Relu(h) logits = MatMul(b, weight)"))


@pytest.mark.parametrize("again", [OnnxFloatToFloat16(), OrtMixedPrecision()])
def test_a_second_conversion_that_changes_nothing_is_an_error(again: Any) -> None:
    half, _ = run("half", OnnxFloatToFloat16(), model())
    with pytest.raises(ConversionError):
        run("again", again, half)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (OnnxFloatToFloat16(), OnnxDynamicQuantization()),
        (OrtMixedPrecision(), OnnxDynamicQuantization()),
        (OnnxDynamicQuantization(), OnnxFloatToFloat16()),
        (OnnxDynamicQuantization(), OrtMixedPrecision()),
    ],
)
def test_float16_and_dynamic_quantization_exclude_each_other_and_the_way_out_is_named(
    first: Any, second: Any
) -> None:
    changed, _ = run("first", first, model())
    with pytest.raises(InputError) as caught:
        run("second", second, changed)
    assert "input: STEP" in (caught.value.hint or "")
