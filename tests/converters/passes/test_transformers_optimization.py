"""`OrtTransformersOptimization`: fusions are counted, none is said."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from onnxreg.converters.passes.base import run
from onnxreg.converters.passes.conversion import OnnxConversion, TorchModel
from onnxreg.converters.passes.float16 import OnnxFloatToFloat16
from onnxreg.converters.passes.graph_passes import (
    DynamicToFixedShape,
    OnnxIODataTypeConverter,
    OrtTransformersOptimization,
)
from onnxreg.converters.passes.pass_contract import PassContract, run_and_compare
from onnxreg.converters.passes.quantization import OnnxBlockWiseRtnQuantization, OnnxDynamicQuantization
from onnxreg.schema.core.errors import InputError


def model(body: str = "a = MatMul(x, weight) b = Add(a, bias) y = Gelu(b)") -> Any:
    parsed = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 20]> g (float[n, s, 40] x) => (float[n, s, 40] y) {{ {body} }}'
    )
    draw = np.random.default_rng(0)
    for name, shape in {"weight": (40, 40), "bias": (40,)}.items():
        value = draw.normal(size=shape).astype(np.float32)
        parsed.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    return parsed


class TestContract(PassContract):
    def make(self) -> OrtTransformersOptimization:
        return OrtTransformersOptimization()

    def subject(self) -> Any:
        return model()


def test_no_fusion_is_a_result() -> None:
    _, step = run_and_compare(
        "fused", OrtTransformersOptimization(opt_level=0), model("y = MatMul(x, weight)")
    )
    assert (step.result["fused"], step.result["fusions"]) == ({}, 0)
    assert step.result["nodes"] == {"before": 1, "after": 1}


@pytest.fixture(scope="module")
def encoder(bert: Path) -> bytes:
    import torch
    from transformers import AutoModelForTokenClassification

    module = AutoModelForTokenClassification.from_pretrained(bert, attn_implementation="eager").eval()
    ids = torch.ones(2, 8, dtype=torch.int64)
    inputs = {"input_ids": ids, "attention_mask": ids, "token_type_ids": 0 * ids}
    converted, _ = run("fp32", OnnxConversion(), TorchModel(module, inputs))
    return bytes(converted.SerializeToString())


def test_an_encoder_gets_one_attention_for_each_layer(encoder: bytes) -> None:
    subject = onnx.ModelProto.FromString(encoder)
    after, step = run_and_compare("fused", OrtTransformersOptimization(num_heads=4, hidden_size=32), subject)
    assert step.result["fused"]["com.microsoft:Attention"] == 2
    assert step.result["nodes"]["after"] < step.result["nodes"]["before"] / 5
    assert step.result["parity"]["outputs"]["logits"]["max_abs_diff"] < 1e-3
    assert {entry.domain for entry in after.opset_import} == {"", "com.microsoft"}


def test_onnx_runtime_alone(encoder: bytes) -> None:
    work = OrtTransformersOptimization(only_onnxruntime=True, opt_level=1)
    _, step = run_and_compare("fused", work, onnx.ModelProto.FromString(encoder))
    assert step.result["fused"] == {}
    assert step.result["nodes"]["after"] < step.result["nodes"]["before"]


@pytest.mark.parametrize(
    "params",
    [{"model_type": "brt"}, {"opt_level": 3}, {"num_heads": -1}],
)
def test_invalid_parameters_are_refused(params: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        run("fused", OrtTransformersOptimization(**params), model())


@pytest.mark.parametrize("level", [0, 1, 2, None])
def test_every_level_gives_a_graph_that_the_next_pass_takes(encoder: bytes, level: int | None) -> None:
    """The usual chain: fusion, float16, fixed axes, float32 outputs."""
    subject = onnx.ModelProto.FromString(encoder)
    fused = OrtTransformersOptimization(opt_level=level, num_heads=4, hidden_size=32)
    subject, step = run_and_compare("fused", fused, subject)
    assert step.result["fused"]["com.microsoft:Attention"] == 2
    subject, _ = run_and_compare("half", OnnxFloatToFloat16(keep_io_types=False), subject)
    subject, _ = run_and_compare("fixed", DynamicToFixedShape(dim_param=["batch"], dim_value=[1]), subject)
    work = OnnxIODataTypeConverter(source_dtype=10, target_dtype=1)
    after, _ = run_and_compare("io", work, subject)
    assert [value.type.tensor_type.elem_type for value in after.graph.output] == [1]


@pytest.mark.parametrize("quantize", [OnnxDynamicQuantization(), OnnxBlockWiseRtnQuantization(block_size=16)])
def test_a_graph_with_fused_operators_is_quantized(encoder: bytes, quantize: Any) -> None:
    fused = OrtTransformersOptimization(opt_level=0, num_heads=4, hidden_size=32)
    subject, _ = run("fused", fused, onnx.ModelProto.FromString(encoder))
    _, step = run_and_compare("int8", quantize, subject)
    assert step.result["weights"] >= 5
