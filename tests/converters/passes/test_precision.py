"""`OnnxFloatToFloat16` and `OnnxDynamicQuantization` on small graphs."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnxruntime.quantization import QuantType, quantize_dynamic

from onnxreg.converters.onnx.quiet import quiet
from onnxreg.converters.passes.base import run
from onnxreg.converters.passes.float16 import OnnxFloatToFloat16
from onnxreg.converters.passes.quantization import OnnxDynamicQuantization
from onnxreg.converters.passes.tools.graph import count_operators
from onnxreg.converters.runtime.sessions import session_options
from onnxreg.schema.core.errors import ConversionError

GRAPH = """
<ir_version: 8, opset_import: ["" : 18]>
g (int64[batch, sequence] ids) => (float[batch, sequence, 3] logits) {
    hidden = Gather(table, ids)
    logits = MatMul(hidden, weight)
}
"""


def model() -> Any:
    graph = onnx.parser.parse_model(GRAPH)
    draw = np.random.default_rng(0)
    scales = np.array([1, 10, 100], np.float32)
    for name, value in {
        "table": draw.normal(size=(20, 8)).astype(np.float32),
        "weight": draw.normal(size=(8, 3)).astype(np.float32) * scales,
    }.items():
        graph.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    return graph


def logits(graph: Any) -> Any:
    session = ort.InferenceSession(
        graph.SerializeToString(), session_options(), providers=["CPUExecutionProvider"]
    )
    return session.run(["logits"], {"ids": np.arange(20).reshape(2, 10)})[0]


def error(graph: Any) -> Any:
    """The largest difference to the float32 graph, relative to the largest logit, for each label."""
    expected = logits(model())
    return np.abs(expected - logits(graph)).max(axis=(0, 1)) / np.abs(expected).max(axis=(0, 1))


def test_float16_without_weights_is_an_error() -> None:
    graph = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[n] a) => (float[n] y) { y = Add(a, a) }'
    )
    with pytest.raises(ConversionError, match="0 weights were float16 before"):
        run("fp16", OnnxFloatToFloat16(), graph)


def test_per_channel_is_the_default_and_better() -> None:
    per_channel, step = run("int8", OnnxDynamicQuantization(), model())
    per_tensor, _ = run("int8", OnnxDynamicQuantization(per_channel=False), model())
    assert step.params["per_channel"] is True
    assert step.result["operators"]["MatMulInteger"] == 1
    assert error(per_channel)[0] < 0.05 < error(per_tensor)[0]
    kinds = {tensor.name: tensor.data_type for tensor in per_channel.graph.initializer}
    assert kinds["weight_quantized"] == onnx.TensorProto.INT8
    assert kinds["table"] == onnx.TensorProto.FLOAT


def test_embeddings_on_request_with_the_cosine_of_the_worst_row() -> None:
    quantized, step = run("int8", OnnxDynamicQuantization(op_types_to_quantize=("MatMul", "Gather")), model())
    found = step.result["embeddings"]
    assert (found["tables"], found["tables_quantized"]) == (1, 1)
    assert 0.99 < found["min_row_cosine"] < 1
    assert "table" not in {tensor.name for tensor in quantized.graph.initializer}


def test_zero_weights_quantized_is_an_error() -> None:
    graph = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[a, b] x, float[b, c] w) => (float[a, c] y) { y = MatMul(x, w) }'
    )
    with pytest.raises(ConversionError, match="reached none of the weights"):
        run("int8", OnnxDynamicQuantization(), graph)


@pytest.mark.parametrize("through", ["Transpose(weight)"])
def test_a_weight_that_stays_in_floating_point_is_an_error(through: str) -> None:
    graph = model()
    square = np.ones((3, 3), np.float32)
    graph.graph.initializer.append(onnx.numpy_helper.from_array(square, "second"))
    extra = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[3, 3] second, float[batch, sequence, 3] first)'
        f" => (float[batch, sequence, 3] logits) {{ w = {through.replace('weight', 'second')}"
        " logits = MatMul(first, w) }"
    )
    graph.graph.node[1].output[0] = "first"
    graph.graph.node.extend(extra.graph.node)
    with pytest.raises(ConversionError, match="left weights in floating point: second"):
        run("int8", OnnxDynamicQuantization(), graph)


def test_a_gemm_that_is_no_matmul_is_an_error() -> None:
    graph = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[a, 8] x) => (float[a, 3] y)'
        " { z = MatMul(x, weight) y = Gemm<alpha = 0.5>(z, other) }"
    )
    graph.graph.initializer.append(model().graph.initializer[1])
    graph.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((3, 3), np.float32), "other"))
    with pytest.raises(ConversionError, match="left weights in floating point: other"):
        run("int8", OnnxDynamicQuantization(), graph)


@pytest.mark.parametrize("name", ["", "product"])
def test_integer_products_stay_and_hide_no_other(name: str) -> None:
    graph = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (int64[n, 2] a, float[n, 8] x) => (int64[n, 2] b, float[n, 3] y)'
        " { b = MatMul(a, whole) y = MatMul(x, weight) }"
    )
    graph.graph.node[0].name = name
    graph.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(2, dtype=np.int64), "whole"))
    graph.graph.initializer.append(model().graph.initializer[1])
    after, step = run("int8", OnnxDynamicQuantization(), graph)
    assert step.result["operators"]["MatMulInteger"] == step.result["weights"] == 1
    assert count_operators(after)["MatMul"] == 1


def test_large_weights_come_back_and_nothing_else_stands_in_for_them() -> None:
    graph = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[n, 64] x) => (float[n, 64] y)'
        " { z = Gemm<transB = 1>(x, turned, bias) u = MatMul(z, straight) v = Add(u, kept) y = Mul(v, v) }"
    )
    draw = np.random.default_rng(3)
    shapes = {"turned": (64, 64), "straight": (64, 64), "bias": (64,), "kept": (1, 64)}
    stored = {name: draw.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    stored["unread"] = draw.normal(size=(64, 64)).astype(np.float32)
    graph.graph.initializer.extend(onnx.numpy_helper.from_array(a, name) for name, a in stored.items())
    original = onnx.ModelProto.FromString(graph.SerializeToString())
    after, step = run("int8", OnnxDynamicQuantization(), graph)
    assert step.result["weights"] == 2
    assert [value.name for value in after.graph.input] == ["x"]
    kinds = {tensor.name: tensor.data_type for tensor in after.graph.initializer}
    assert not {"turned", "straight"} & kinds.keys()
    assert {"turned_quantized", "straight_quantized", "bias", "kept"} <= kinds.keys()
    assert tensors(after) == tensors(by_onnx_runtime(original))


def tensors(graph: Any) -> dict[str, bytes]:
    stored = graph.graph.initializer
    return {tensor.name: onnx.numpy_helper.to_array(tensor).tobytes() for tensor in stored}


def by_onnx_runtime(graph: Any, **options: Any) -> Any:
    """What the public entry point of ONNX Runtime's quantizer makes of a graph."""
    with tempfile.TemporaryDirectory() as directory:
        source, target = Path(directory, "model.onnx"), Path(directory, "int8.onnx")
        onnx.save(graph, source)
        with quiet():
            quantize_dynamic(
                source,
                target,
                op_types_to_quantize=["MatMul", "Gemm"],
                **{"per_channel": True, "weight_type": QuantType.QInt8, **options},
            )
        return onnx.load(target)


ODD = np.array(
    [
        [0, 1, -1e-40, 3e38, 1e-37, 5, -0.0],
        [0, -2, 1e-40, -3e38, -2e-37, 5, 0],
        [0, 0.5, 0, 1, 0, 4.999999, 0],
    ],
    np.float32,
)
"""Channels of zeros, denormals, the largest and smallest scales, of one sign only."""


@pytest.mark.parametrize("reduce_range", [False, True])
@pytest.mark.parametrize("operator", ["MatMul(x, w)", "Gemm(x, w)", "Gemm<transB = 1>(x, w)"])
def test_numbers_are_those_of_onnx_runtime(operator: str, reduce_range: bool) -> None:
    draw = np.random.default_rng(5)
    weight = np.vstack([ODD, np.zeros((60, 7), np.float32)])
    weight = np.hstack([weight, draw.normal(size=(63, 40)).astype(np.float32) * np.geomspace(1e-6, 1e6, 40)])
    weight = weight.astype(np.float32)
    graph = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 18]> g (float[n, 63] x) => (float[n, 47] y) {{ y = {operator} }}'
    )
    stored = np.ascontiguousarray(weight.T) if "trans" in operator else weight
    graph.graph.initializer.append(onnx.numpy_helper.from_array(stored, "w"))
    expected = tensors(by_onnx_runtime(graph, reduce_range=reduce_range))
    after, _ = run("int8", OnnxDynamicQuantization(reduce_range=reduce_range), graph)
    assert tensors(after) == expected
    assert {"w_quantized", "w_scale", "w_zero_point"} <= expected.keys()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_weight_that_is_not_a_number_is_an_error(value: float) -> None:
    graph = model()
    weight = onnx.numpy_helper.to_array(graph.graph.initializer[1]).copy()
    weight[0, 0] = value
    graph.graph.initializer[1].CopyFrom(onnx.numpy_helper.from_array(weight, "weight"))
    with pytest.raises(ConversionError, match="the weight weight holds NaN or infinity"):
        run("int8", OnnxDynamicQuantization(), graph)


def test_large_weights_become_half_or_stay_as_onnx_runtime_says() -> None:
    graph = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[n, 40] x) => (float[n, 40] y, float[n, 40] z)'
        " { y = MatMul(x, halved) z = Add(y, kept) }"
    )
    draw = np.random.default_rng(2)
    stored = {"halved": draw.normal(size=(40, 40)), "kept": draw.normal(size=(40, 40))}
    graph.graph.initializer.extend(
        onnx.numpy_helper.from_array(array.astype(np.float32), name) for name, array in stored.items()
    )
    half, step = run("fp16", OnnxFloatToFloat16(op_block_list=("Add",)), graph)
    assert (step.result["float16_weights"], step.result["float32_weights"]) == (1, 1)
    for tensor in half.graph.initializer:
        kind = np.float16 if tensor.name == "halved" else np.float32
        expected = stored[tensor.name].astype(np.float32).astype(kind)
        np.testing.assert_array_equal(onnx.numpy_helper.to_array(tensor), expected, strict=True)
