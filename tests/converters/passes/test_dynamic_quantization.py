"""`OnnxDynamicQuantization`: every choice, and what it says it did."""

from typing import Any

import numpy as np
import onnx
import pytest

from onnxreg.converters.passes.base import run
from onnxreg.converters.passes.dynamic_quantization import OnnxDynamicQuantization
from onnxreg.converters.passes.pass_contract import PassContract, run_and_compare
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


def test_the_error_of_unsigned_weights_is_what_their_codes_lose() -> None:
    after, step = run("int8", OnnxDynamicQuantization(weight_type="QUInt8", per_channel=False), model())
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in after.graph.initializer}
    whole = lost = 0.0
    for tensor in model().graph.initializer:
        weight = onnx.numpy_helper.to_array(tensor)
        code, zero, scale = (stored[f"{tensor.name}_{part}"] for part in ("quantized", "zero_point", "scale"))
        whole += float((weight**2).sum())
        lost += float(((weight - (code.astype(float) - zero) * scale) ** 2).sum())
    assert step.result["weight_error"]["per_tensor"] == pytest.approx((lost / whole) ** 0.5, rel=0.2)


def test_excluded_nodes_stay() -> None:
    after, step = run_and_compare("int8", OnnxDynamicQuantization(nodes_to_exclude=["node1"]), model())
    assert step.result["weights"] == 1
    assert "second" in {tensor.name for tensor in after.graph.initializer}


def test_an_excluded_node_that_is_not_there_is_an_input_error() -> None:
    with pytest.raises(InputError, match="no node called nod1"):
        run("int8", OnnxDynamicQuantization(nodes_to_exclude=["nod1"]), model())


def test_a_weight_that_is_used_twice_under_two_names() -> None:
    """As the layers of ALBERT come out of PyTorch."""
    before = model("again = Identity(first) h = MatMul(x, first) y = MatMul(h, again)", first=(40, 40))
    after, step = run_and_compare("int8", OnnxDynamicQuantization(), before)
    assert [tensor.name for tensor in after.graph.initializer if "quantized" in tensor.name] == [
        "first_quantized"
    ]
    assert (step.result["weights"], step.result["operators"]["MatMulInteger"]) == (1, 2)
    assert "Identity" not in {node.op_type for node in after.graph.node}
    assert [node.op_type for node in before.graph.node] == ["Identity", "MatMul", "MatMul"]


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
