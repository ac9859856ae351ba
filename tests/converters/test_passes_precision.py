"""`OnnxFloatToFloat16` and `OnnxDynamicQuantization` on small graphs."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from onnxreg.converters.passes.base import run
from onnxreg.converters.passes.dynamic_quantization import OnnxDynamicQuantization
from onnxreg.converters.passes.float16 import OnnxFloatToFloat16
from onnxreg.schema.errors import ConversionError, InputError

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
    session = ort.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(["logits"], {"ids": np.arange(20).reshape(2, 10)})[0]


def error(graph: Any) -> Any:
    """The largest difference to the float32 graph, relative to the largest logit, for each label."""
    expected = logits(model())
    return np.abs(expected - logits(graph)).max(axis=(0, 1)) / np.abs(expected).max(axis=(0, 1))


def test_float16_halves_the_weights_and_keeps_the_public_types() -> None:
    half, step = run("fp16", OnnxFloatToFloat16(), model())
    onnx.checker.check_model(half, full_check=True)
    assert step.result == {"float16_weights": 2, "float32_weights": 0}
    assert logits(half).dtype == np.float32
    assert 0 < error(half).max() < 1e-2


def test_float16_without_weights_is_an_error() -> None:
    graph = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[n] a) => (float[n] y) { y = Add(a, a) }'
    )
    with pytest.raises(ConversionError, match="left every weight in float32"):
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


def test_no_embedding_table_to_quantize_is_an_error() -> None:
    graph = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[a, 8] x) => (float[a, 3] y) { y = MatMul(x, weight) }'
    )
    graph.graph.initializer.append(model().graph.initializer[1])
    with pytest.raises(ConversionError, match="none of the embedding tables"):
        run("int8", OnnxDynamicQuantization(op_types_to_quantize=("MatMul", "Gather")), graph)


def test_an_operator_that_is_not_offered_is_an_input_error() -> None:
    with pytest.raises(InputError, match="pass OnnxDynamicQuantization: parameter op_types_to_quantize"):
        OnnxDynamicQuantization(op_types_to_quantize=("Conv",))


def test_nothing_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    handlers = logging.root.handlers[:]
    run("int8", OnnxDynamicQuantization(), model())
    run("fp16", OnnxFloatToFloat16(), model())
    assert list(tmp_path.iterdir()) == []
    assert logging.root.handlers == handlers
    assert capfd.readouterr() == ("", "")
