"""`OnnxDynamicQuantization`: every choice, and what it says it did."""

from typing import Any

import numpy as np
import onnx
import pytest

from onnxreg.converters.passes.base import run
from onnxreg.converters.passes.pass_contract import PassContract, run_and_compare
from onnxreg.converters.passes.quantization import OnnxDynamicQuantization
from onnxreg.schema.core.errors import InputError


def model(body: str = "h = MatMul(x, first) y = MatMul(h, second)", **shapes: tuple[int, ...]) -> Any:
    parsed = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 18]> g (float[n, 40] x) => (float[n, 40] y) {{ {body} }}'
    )
    for index, node in enumerate(parsed.graph.node):
        node.name = f"node{index}"
    draw = np.random.default_rng(0)
    for name, shape in (shapes or {"first": (40, 40), "second": (40, 40)}).items():
        value = draw.normal(size=shape).astype(np.float32) * np.geomspace(
            0.01, 1, shape[-1], dtype=np.float32
        )
        parsed.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    return parsed


class TestContract(PassContract):
    def make(self) -> OnnxDynamicQuantization:
        return OnnxDynamicQuantization()

    def subject(self) -> Any:
        return model()


@pytest.mark.parametrize("reduce_range", [False, True])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("weight_type", ["QInt8", "QUInt8"])
def test_every_choice_is_what_the_file_holds(weight_type: str, per_channel: bool, reduce_range: bool) -> None:
    work = OnnxDynamicQuantization(
        weight_type=weight_type, per_channel=per_channel, reduce_range=reduce_range
    )
    after, step = run_and_compare("int8", work, model())
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in after.graph.initializer}
    codes = stored["first_quantized"].astype(int)
    assert str(stored["first_quantized"].dtype) == {"QInt8": "int8", "QUInt8": "uint8"}[weight_type]
    assert stored["first_scale"].size == (40 if per_channel else 1)
    assert (int(np.ptp(codes)) <= 128) is reduce_range
    assert step.result["quantized_bytes"] == 2 * 6400
    assert step.result["weights"] == step.result["operators"]["MatMulInteger"] == 2
    assert step.result["parity"]["outputs"]["y"]["cosine"] > 0.98


def test_excluded_nodes_stay() -> None:
    after, step = run_and_compare("int8", OnnxDynamicQuantization(nodes_to_exclude=["node1"]), model())
    assert step.result["weights"] == 1
    assert "second" in {tensor.name for tensor in after.graph.initializer}


def test_an_excluded_node_that_is_not_there_is_an_input_error() -> None:
    with pytest.raises(InputError, match="no node called nod1"):
        run("int8", OnnxDynamicQuantization(nodes_to_exclude=["nod1"]), model())


def test_a_weight_that_is_used_twice_under_two_names() -> None:
    """As the layers of ALBERT come out of PyTorch."""
    body = "again = Identity(first) h = MatMul(x, first) y = MatMul(h, again)"
    after, step = run_and_compare("int8", OnnxDynamicQuantization(), model(body, first=(40, 40)))
    assert [tensor.name for tensor in after.graph.initializer if "quantized" in tensor.name] == [
        "first_quantized"
    ]
    assert (step.result["weights"], step.result["operators"]["MatMulInteger"]) == (1, 2)
    assert "Identity" not in {node.op_type for node in after.graph.node}


def test_convolutions() -> None:
    graph = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[n, 3, 8, 8] x) => (float[n, 4, 6, 6] y) { y = Conv(x, w) }'
    )
    weight = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    graph.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    work = OnnxDynamicQuantization(op_types_to_quantize=["Conv"], weight_type="QUInt8", per_channel=False)
    _, step = run_and_compare("int8", work, graph)
    assert (step.result["weights"], step.result["operators"]["ConvInteger"]) == (1, 1)
    assert step.result["parity"]["outputs"]["y"]["cosine"] > 0.99


SHARED = {
    "two Gemm": "h = Gemm<transB=1>(x, first) y = Gemm<transB=1>(h, first)",
    "three Gemm": "h = Gemm<transB=1>(x, first) i = Gemm<transB=1>(h, first) y = Gemm<transB=1>(i, first)",
    "Gemm and MatMul": "h = Gemm<transB=1>(x, first) y = MatMul(h, first)",
    "Gemm both ways": "h = Gemm<transB=1>(x, first) y = Gemm(h, first)",
    "under a second name": "again = Identity(first) h = Gemm<transB=1>(x, first) y = Gemm<transB=1>(h, again)",
    "with a bias": "b = Constant<value_float=1.0>() h = Gemm<transB=1>(x, first, b) y = Gemm<transB=1>(h, first, b)",
}


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("body", SHARED.values(), ids=SHARED)
def test_a_matrix_that_nodes_share_gives_the_numbers_of_a_copy_for_each(body: str, per_channel: bool) -> None:
    _, step = run_and_compare(
        "int8", OnnxDynamicQuantization(per_channel=per_channel), model(body, first=(40, 40))
    )
    assert step.result["parity"]["outputs"]["y"]["cosine"] > 0.999


def test_a_shared_matrix_that_is_not_square_is_quantized() -> None:
    body = "down = Gemm<transB=1>(x, a) up = Gemm<transB=1>(down, b) again = Gemm<transB=1>(up, a) y = Gemm<transB=1>(again, b)"
    _, step = run_and_compare("int8", OnnxDynamicQuantization(), model(body, a=(8, 40), b=(40, 8)))
    assert step.result["operators"]["MatMulInteger"] == 4
    assert step.result["parity"]["outputs"]["y"]["cosine"] > 0.99


@pytest.mark.parametrize(
    ("params", "left"),
    [
        ({"nodes_to_exclude": ["node1"]}, {"second"}),
        ({"op_types_to_quantize": ["MatMul"]}, {"second"}),
        ({"op_types_to_quantize": ["Gemm"]}, {"first"}),
        ({"op_types_to_quantize": ["Gemm"], "nodes_to_exclude": ["node0"]}, {"first"}),
    ],
)
def test_a_gemm_is_quantized_if_it_was_asked_for(params: Any, left: set[str]) -> None:
    body = "h = MatMul(x, first) y = Gemm<transB=1>(h, second)"
    after, step = run_and_compare(
        "int8", OnnxDynamicQuantization(**params), model(body, first=(40, 40), second=(40, 40))
    )
    floats = {t.name for t in after.graph.initializer if t.data_type == t.FLOAT and len(t.dims) == 2}
    assert floats == left
    assert step.result["weights"] == step.result["operators"]["MatMulInteger"] == 1


def test_a_stack_of_matrices_has_one_scale_and_the_others_one_for_each_channel() -> None:
    graph = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[4, n, 8] x) => (float[4, n, 5] y) {'
        " h = MatMul(x, stack) y = MatMul(h, last) }"
    )
    draw = np.random.default_rng(0)
    for name, shape in {"stack": (4, 8, 6), "last": (6, 5)}.items():
        graph.graph.initializer.append(
            onnx.numpy_helper.from_array(draw.normal(size=shape).astype(np.float32), name)
        )
    after, step = run_and_compare("int8", OnnxDynamicQuantization(), graph)
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in after.graph.initializer}
    assert (stored["stack_scale"].size, stored["last_scale"].size) == (1, 5)
    assert (step.result["weights"], step.result["per_tensor"]) == (2, ["stack"])
    assert step.result["parity"]["outputs"]["y"]["cosine"] > 0.99
