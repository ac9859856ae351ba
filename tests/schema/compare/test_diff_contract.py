"""What the diff says of artifacts, tensors, operators and opsets: each edit with its kind, path and severity."""

from typing import Any

import pytest

FP32 = "artifacts[onnx-android/float32/model.onnx]"
INT8 = "artifacts[onnx-int8/int8/model_int8.onnx]"
ORT = "artifacts[ort-android/float32/model.ort]"
NEW_OPERATOR = {"domain": "com.microsoft", "name": "FusedMatMul", "opset": 1}
STATIC, DYNAMIC = {"kind": "static", "value": 4}, {"kind": "dynamic", "name": "n"}


def sha(number: int) -> str:
    return f"sha256:{number:064x}"


CASES: dict[str, tuple[str, Any, str, str, str]] = {
    "artifact removed": (
        "",
        lambda old: {**old, "artifacts": old["artifacts"][:2], "formats": old["formats"][:2]},
        "artifact-removed",
        ORT,
        "breaking",
    ),
    "bytes": ("/artifacts/2/digest", sha(9), "artifact-bytes-changed", f"{ORT}.digest", "cosmetic"),
    "weights": (
        "/artifacts/2/semantic/weights",
        sha(9),
        "weights-changed",
        f"{ORT}.semantic.weights",
        "notable",
    ),
    "graph": ("/artifacts/2/semantic/graph", sha(9), "graph-changed", f"{ORT}.semantic.graph", "notable"),
    "size": ("/artifacts/0/size", 9, "artifact-size-changed", f"{FP32}.size", "notable"),
    "precision": (
        "/artifacts/1/precision",
        "int4",
        "artifact-precision-changed",
        "artifacts[onnx-int8/model_int8.onnx].precision",
        "breaking",
    ),
    "file renamed": (
        "/artifacts/0/path",
        "m.onnx",
        "artifact-path-changed",
        "artifacts[onnx-android/float32].path",
        "breaking",
    ),
    "sidecar": (
        "/artifacts/1/files/0/size",
        7,
        "sidecar-changed",
        f"{INT8}.files[external-data:model_int8.onnx.data].size",
        "notable",
    ),
    "input renamed": (
        "/artifacts/0/metadata/inputs/0/name",
        "ids",
        "input-renamed",
        f"{FP32}.metadata.inputs[0].name",
        "breaking",
    ),
    "input retyped": (
        "/artifacts/0/metadata/inputs/0/dtype",
        "int32",
        "input-retyped",
        f"{FP32}.metadata.inputs[input_ids].dtype",
        "breaking",
    ),
    "input fixed": (
        "/artifacts/0/metadata/inputs/0/shape/1",
        STATIC,
        "input-reshaped",
        f"{FP32}.metadata.inputs[input_ids].shape[1]",
        "breaking",
    ),
    "input axis called otherwise": (
        "/artifacts/0/metadata/inputs/0/shape/1",
        DYNAMIC,
        "input-reshaped",
        f"{FP32}.metadata.inputs[input_ids].shape[1]",
        "cosmetic",
    ),
    "input of other rank": (
        "/artifacts/0/metadata/inputs/0",
        lambda old: {**old, "shape": [DYNAMIC], "axes": ["n"]},
        "input-reshaped",
        f"{FP32}.metadata.inputs[input_ids].shape",
        "breaking",
    ),
    "input removed": (
        "/artifacts/0/metadata/inputs/1",
        ...,
        "input-removed",
        f"{FP32}.metadata.inputs[attention_mask]",
        "breaking",
    ),
    "input added": (
        "/artifacts/0/metadata/inputs",
        lambda old: [*old, {"name": "token_type_ids", "dtype": "int64"}],
        "input-added",
        f"{FP32}.metadata.inputs[token_type_ids]",
        "breaking",
    ),
    "output added": (
        "/artifacts/0/metadata/outputs",
        lambda old: [*old, {"name": "hidden", "dtype": "float32"}],
        "output-added",
        f"{FP32}.metadata.outputs[hidden]",
        "notable",
    ),
    "output of other width": (
        "/artifacts/0/metadata/outputs/0/shape/2/value",
        5,
        "output-reshaped",
        f"{FP32}.metadata.outputs[logits].shape[2]",
        "breaking",
    ),
    "inputs in another order": (
        "/artifacts/0/metadata/inputs",
        lambda old: old[::-1],
        "input-reordered",
        f"{FP32}.metadata.inputs",
        "notable",
    ),
    "operator added, ORT": (
        "/artifacts/2/operators",
        lambda old: [*old, NEW_OPERATOR],
        "operator-added",
        f"{ORT}.operators[com.microsoft:FusedMatMul:1]",
        "breaking",
    ),
    "operator added, ONNX": (
        "/artifacts/0/operators",
        lambda old: [*old, NEW_OPERATOR],
        "operator-added",
        f"{FP32}.operators[com.microsoft:FusedMatMul:1]",
        "notable",
    ),
    "operator lost": (
        "/artifacts/2/operators/1",
        ...,
        "operator-removed",
        f"{ORT}.operators[ai.onnx:Gather:13]",
        "notable",
    ),
    "operator of another opset": (
        "/artifacts/2/operators/0/opset",
        9,
        "operator-added",
        f"{ORT}.operators[ai.onnx:MatMul:9]",
        "breaking",
    ),
    "operator type": (
        "/artifacts/2/operators/0/inputs",
        {"0": ["float", "int8_t"]},
        "operator-changed",
        f'{ORT}.operators[ai.onnx:MatMul:13].inputs["0"]',
        "breaking",
    ),
    "opset raised": (
        "/artifacts/0/opset_imports/ai.onnx",
        21,
        "opset-changed",
        f'{FP32}.opset_imports["ai.onnx"]',
        "breaking",
    ),
    "opset lowered": (
        "/artifacts/0/opset_imports/ai.onnx",
        17,
        "opset-changed",
        f'{FP32}.opset_imports["ai.onnx"]',
        "notable",
    ),
    "domain added": (
        "/artifacts/0/opset_imports/ai.onnx.ml",
        3,
        "opset-added",
        f'{FP32}.opset_imports["ai.onnx.ml"]',
        "breaking",
    ),
    "IR raised": ("/artifacts/0/ir_version", 10, "loader-changed", f"{FP32}.ir_version", "breaking"),
    "ORT format": ("/artifacts/2/ort_format", 6, "loader-changed", f"{ORT}.ort_format", "breaking"),
}


@pytest.mark.parametrize(("pointer", "to", "kind", "path", "severity"), CASES.values(), ids=CASES.keys())
def test_a_change_of_the_contract_has_its_severity(
    pointer: str, to: Any, kind: str, path: str, severity: str, found_after: Any
) -> None:
    assert (kind, path, severity) in [
        (found.kind, found.path, found.severity) for found in found_after(pointer, to)
    ]
