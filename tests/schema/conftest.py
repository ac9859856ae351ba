"""A manifest with every field filled in, as its JSON value."""

from collections.abc import Callable
from typing import Any

import pytest
from support.schema.edits import copied, replaced_at, sha

from onnxreg.schema.compare.manifests import Change, diff
from onnxreg.schema.manifest.manifest import Manifest


def entry(role: str, path: str, number: int, size: int = 100, **fields: Any) -> dict[str, Any]:
    return {"role": role, "path": path, "digest": sha(number), "size": size, **fields}


def pieces(*numbers: int) -> dict[str, Any]:
    return {"pieces": {"size": 2**23, "digests": [sha(number) for number in numbers]}}


def tensor(name: str, dtype: str, *axes: str | int) -> dict[str, Any]:
    dims = [
        {"kind": "static", "value": axis} if isinstance(axis, int) else {"kind": "dynamic", "name": axis}
        for axis in axes
    ]
    labels = ["labels" if isinstance(axis, int) else axis for axis in axes]
    return {"name": name, "dtype": dtype, "axes": labels, "shape": dims}


def operator(name: str, **sides: dict[str, list[str]]) -> dict[str, Any]:
    return {"domain": "ai.onnx", "name": name, "opset": 13, **sides}


def artifact(form: str, precision: str, path: str, number: int, **fields: Any) -> dict[str, Any]:
    inputs = [tensor(name, "int64", "batch", "sequence") for name in ("input_ids", "attention_mask")]
    return {
        "format": form,
        "path": path,
        "precision": precision,
        "digest": sha(number),
        "size": 1000 + number,
        "files": [],
        "metadata": {
            "profile": "android",
            "opset": 18,
            "execution_providers": ["NNAPI", "XNNPACK"],
            "inputs": inputs,
            "outputs": [tensor("logits", "float32", "batch", "sequence", 3)],
            "operators": ["Gather", "MatMul", "com.microsoft:FusedMatMul"],
            "unsupported_ops": ["Einsum"],
            "warnings": ["Einsum is not in the safe set"],
        },
        "opset_imports": {"ai.onnx": 18, "com.microsoft": 1},
        "ir_version": 8,
        "semantic": {"graph": sha(number + 60), "weights": sha(number + 70)},
        "operators": [
            operator("MatMul", inputs={"0": ["float"]}, outputs={"0": ["float"]}),
            operator("Gather", inputs={"0": ["float"], "1": ["int64_t"]}),
        ],
        "contrib": ["BiasGelu", "MatMulNBits bits=8"],
        "kv_cache": {"bytes_per_token": 4096, "max_tokens": 2048},
        "reproducible": True,
        **fields,
    }


def check(name: str, metric: str, value: float, verdict: str, **fields: str) -> dict[str, Any]:
    measured = {"value": value, "limit": 0.005, "samples": 40, "dataset": sha(90)}
    interval = [value - 0.001, value + 0.001]
    return {"name": name, "metric": metric, **measured, "interval": interval, "verdict": verdict, **fields}


def int8() -> dict[str, Any]:
    evidence = {"artifact": sha(2), "parent": sha(80), "suite": sha(90), "report": sha(33)}
    measured = {"weights_quantized": 4, "weights_total": 6, "bytes_quantized": 400, "bytes_total": 900}
    return artifact(
        *("onnx-int8", "int8", "model_int8.onnx", 2),
        **pieces(40),
        files=[
            entry("external-data", "model_int8.onnx.data", 12, **pieces(42)),
            entry("golden", "model_int8.golden.json", 14),
        ],
        parent=sha(1),
        quantization={
            "requested": {"scheme": "dynamic", "op_types": ["MatMul", "Gemm"]},
            "measured": measured,
        },
        checks=[
            check("recall", "quant_recall_delta", 0.001, "pass"),
            check("parity", "argmax_agreement", 0.99, "info"),
            check("parity", "max_abs_diff", 0.004, "pass"),
            check("sts/spearman", "spearman", 0.83, "pass", direction="higher"),
            check("sts/spearman/loss", "spearman_loss", 0.002, "pass", direction="lower"),
        ],
        certification={
            "state": "certified",
            "rule": "G4/point",
            "reasons": ["every loss is below the limit"],
            "evidence": evidence | {"synthetic": False},
        },
    )


def step(name: str, pass_: str, version: int, params: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "pass": pass_, "version": version, "params": params, **more}


def manifest() -> dict[str, Any]:
    config = entry("operator-config", "model.required_operators_and_types.config", 13)
    mobile = {"parent": sha(1), "ort_format": 5, "files": [config]}
    return {
        "format": "openmed-onnx",
        "format_version": 2,
        "name": "acme/pii-small",
        "formats": ["onnx-android", "onnx-int8", "ort-android"],
        "artifacts": [
            artifact("onnx-android", "float32", "model.onnx", 1),
            int8(),
            artifact("ort-android", "float32", "model.ort", 3, **mobile),
        ],
        "files": [
            entry("config", "config.json", 30),
            entry("labels", "id2label.json", 31),
            entry("tokenizer", "tokenizer.json", 32, **pieces(44)),
            entry("report", "recall_delta.json", 33),
        ],
        "source": {"id": "acme/pii-small", "revision": "abc", "digest": sha(80)},
        "recipe": {
            "profile": "android",
            "profile_version": 1,
            "code": {"name": "net:build", "digest": sha(81), "distribution": "net", "version": "1.0"},
            "steps": [
                step("export", "torch-export", 1, {"opset": 18}, result={"nodes": 12}),
                step("int8", "quantize", 2, {"op_types": ["MatMul"]}, input="export"),
                step("ort", "to-ort", 1, {}, input="export", skipped="needs onnxruntime"),
            ],
            "tools": {"onnx": "1.23.2", "torch": "2.13.0"},
            "parameters": {"opset": 18},
            "trust_remote_code": False,
        },
        "description": "Names in letters",
        "license": "Apache-2.0",
        "labels": ["O", "B-NAME", "B-EMAIL"],
        "task": "token-classification",
        "family": "bert",
        "source_model_id": "acme/pii-small",
        "config_path": "config.json",
        "label_map_path": "id2label.json",
        "minimum_opset": 18,
        "max_sequence_length": 512,
        "dynamic_shapes": {"batch_axis": "dynamic", "shape_buckets": {"buckets": [8, 16]}},
        "optimization": {"enabled": False},
        "validation": {"passed": True},
        "operator_fallbacks": [{"op_type": "Einsum"}],
        "tokenizer": {"path": ".", "files": ["tokenizer.json"]},
        "segmenter": {"id": "none"},
        "preprocessing": {
            "size": [192, 224],
            "mean": [0.485, 0.456, 0.406],
            "std": [0.229, 0.224, 0.225],
            "layout": "NCHW",
            "color": "RGB",
            "resize": 256,
            "resample": "bilinear",
            "sample": [0.25, -1.5],
        },
        "audio_preprocessing": {
            "sampling_rate": 16000,
            "normalize": False,
            "samples": 480000,
            "mels": 80,
            "window": 400,
            "hop": 160,
        },
        "quantization": {"scheme": "dynamic", "certified": True},
        "quant_recall_delta": 0.001,
        "certified": True,
        "recall_delta_path": "recall_delta.json",
        "certification": {"gate": "G4", "limit": 0.005},
    }


_MANIFEST = manifest()


@pytest.fixture
def full() -> dict[str, Any]:
    value: dict[str, Any] = copied(_MANIFEST)
    return value


@pytest.fixture(scope="session")
def full_once() -> dict[str, Any]:
    """The same value, for tests that copy it themselves."""
    value: dict[str, Any] = copied(_MANIFEST)
    return value


@pytest.fixture
def replaced(full) -> Callable[[str, Any], dict[str, Any]]:
    """The full manifest with one value replaced, see `replaced_at`."""
    return lambda pointer, to: replaced_at(full, pointer, to)


@pytest.fixture
def found_after(full, replaced) -> Callable[[str, Any], tuple[Change, ...]]:
    """The changes that the diff finds after such a replacement."""
    before = Manifest.from_json(full)
    return lambda pointer, to: diff(before, Manifest.from_json(replaced(pointer, to))).changes
