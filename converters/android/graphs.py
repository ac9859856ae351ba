"""The graphs of the android profile: fp32 from the checkpoint, and fp16, INT8 and ORT format from fp32."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnxreg.converters.passes.base import run, skip
from onnxreg.converters.passes.conversion import OnnxConversion
from onnxreg.converters.passes.dynamic_quantization import OnnxDynamicQuantization
from onnxreg.converters.passes.float16 import OnnxFloatToFloat16
from onnxreg.converters.passes.mobile_safe import MobileSafeRewrite
from onnxreg.converters.passes.ort_format import OrtFormat
from onnxreg.converters.passes.torch_model import TorchModel
from onnxreg.schema.errors import HostError
from onnxreg.schema.recipe import Step

FP32, FP16, INT8, ORT = "model.onnx", "model_fp16.onnx", "model_int8.onnx", "model.ort"


@dataclass(frozen=True)
class Graph:
    """One graph that was written, by its file name (None where its step was skipped), and how it was made.

    `config` is the operator config beside it; `metadata` what version 1 of the manifest says about this format;
    `requested` what was asked of a quantization; `checks` are `manifest.Check` in JSON form.
    """

    path: str | None
    steps: tuple[Step, ...]
    config: str | None = None
    reproducible: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict)
    requested: Mapping[str, Any] | None = None
    checks: tuple[Mapping[str, Any], ...] = ()


def write_float32(
    module: Any, inputs: Mapping[str, Any], workspace: Path, opset: int, rewrite: bool
) -> tuple[Graph, Any]:
    """Convert a torch module and write `model.onnx`, rewritten for mobile unless `rewrite` is False.

    The second result is what was written (`onnx.ModelProto`), which a derived graph may be made from.
    """
    model, step = run("fp32", OnnxConversion(target_opset=opset), TorchModel(module, inputs))
    steps = [step]
    if rewrite:
        model, step = run("mobile-safe", MobileSafeRewrite(), model, "fp32")
        steps.append(step)
    _save(model, workspace / FP32)
    return Graph(FP32, tuple(steps)), model


def write_float16(model: Any, parent: str, workspace: Path) -> Graph:
    """Write `model_fp16.onnx`: float16 weights, the same public types.

    Args:
        model: the fp32 graph; it is changed in place.
        parent: the step that made it.
    """
    half, step = run("fp16", OnnxFloatToFloat16(), model, parent)
    _save(half, workspace / FP16)
    return Graph(FP16, (step,))


def write_int8(model: Any, parent: str, workspace: Path, embeddings: bool) -> Graph:
    """Write `model_int8.onnx`: per-channel weights of MatMul and Gemm, on request embedding tables too.

    Args:
        model: the fp32 graph; it is left as it is.
        parent: the step that made it.
    """
    base = quantization(embeddings)
    work = OnnxDynamicQuantization(op_types_to_quantize=tuple(base["op_types"]))
    quantized, step = run("int8", work, model, parent)
    _save(quantized, workspace / INT8)
    requested = {**base, "per_channel": work.params.per_channel, "reduce_range": work.params.reduce_range}
    metadata = {"format": "onnx-int8", "quantization": base}
    return Graph(INT8, (step,), metadata=metadata, requested=requested, checks=_embedding_checks(step))


def _embedding_checks(step: Step) -> tuple[dict[str, Any], ...]:
    found = step.result.get("embeddings")
    if found is None:
        return ()
    value = {
        "name": "embeddings",
        "metric": "min_row_cosine",
        "value": found["min_row_cosine"],
        "verdict": "info",
    }
    return ({**value, "samples": found["tables_quantized"]},)


def quantization(embeddings: bool) -> dict[str, Any]:
    """What is asked of the INT8 file, in the six keys of manifest version 1."""
    return {
        "scheme": "dynamic",
        "weight_type": "qint8",
        "op_types": ["MatMul", "Gemm", *(["Gather"] if embeddings else [])],
        "calibration": "none",
        "target": "arm64-cpu",
        "output": INT8,
    }


def write_ort(parent: str, workspace: Path, feed: Mapping[str, Any]) -> Graph:
    """Write `model.ort` and its operator config; a skipped step where ONNX Runtime's tools are not installed."""
    work = OrtFormat(feed)
    try:
        work.requires(workspace / FP32)
    except HostError as error:
        return Graph(None, (skip("ort", work, parent, error.message),))
    files, step = run("ort", work, workspace / FP32, parent)
    metadata = {
        "format": "ort-android",
        "source_onnx_path": FP32,
        "ort_path": ORT,
        "op_config_path": files.config.name,
        "op_config_type": "required_operators_and_types",
        **work.params.model_dump(mode="json"),
    }
    return Graph(ORT, (step,), files.config.name, files.reproducible, metadata)


def _save(model: Any, path: Path) -> None:
    path.write_bytes(model.SerializeToString(deterministic=True))
