"""No false alarm on what the program's own passes make, alone and in the lines of a search."""

from pathlib import Path
from typing import Any

import onnx
import pytest
from support.prove.children import feeds, parent, verdict_of
from support.prove.oracle import judge

from onnxreg.converters.passes.base import run
from onnxreg.converters.passes.pass_catalog import find
from onnxreg.converters.search.search import library

PASSES: dict[str, tuple[str, dict[str, Any]]] = {
    "int8": ("OnnxDynamicQuantization", {}),
    "int8 with tables": ("OnnxDynamicQuantization", {"op_types_to_quantize": ("MatMul", "Gemm", "Gather")}),
    "uint8 per tensor": ("OnnxDynamicQuantization", {"weight_type": "QUInt8", "per_channel": False}),
    "reduced": ("OnnxDynamicQuantization", {"reduce_range": True}),
    "tables by rows": ("EmbeddingQuantization", {}),
    "4 bits": ("OnnxBlockWiseRtnQuantization", {"gemm": True}),
    "4 bits with zero points": ("OnnxBlockWiseRtnQuantization", {"is_symmetric": False, "block_size": 32}),
    "8 bits": ("OnnxBlockWiseRtnQuantization", {"bits": 8, "block_size": 32, "gemm": True}),
    "float16": ("OnnxFloatToFloat16", {}),
    "float16 outside": ("OnnxFloatToFloat16", {"keep_io_types": False}),
    "float16 tables": ("OnnxFloatToFloat16", {"op_include_list": ("Gather",)}),
    "mixed": ("OrtMixedPrecision", {"atol": 1e-2}),
    "other types outside": ("OnnxIODataTypeConverter", {"source_dtype": 1, "target_dtype": 10}),
}


def apply(model: Any, name: str, params: dict[str, Any], path: Path) -> Any:
    result, _ = run("step", find(name)(list(feeds(2)), **params), model)
    onnx.save(result, path)
    return result


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_is_proven(family: dict[str, Path], name: str, tmp_path: Path) -> None:
    kind, params = PASSES[name]
    apply(parent(), kind, params, tmp_path / "child.onnx")
    report = verdict_of(family[""], tmp_path / "child.onnx")
    assert (report.verdict, report.reasons) == ("proven", ())
    assert judge(onnx.load(family[""]), onnx.load(tmp_path / "child.onnx")) == "proven"


@pytest.mark.parametrize("candidate", library(True, None), ids=lambda item: item.name)
def test_a_candidate_of_the_search_is_proven(family: dict[str, Path], candidate: Any, tmp_path: Path) -> None:
    model = parent()
    for work in candidate.passes:
        model = apply(model, work["pass"], dict(work["params"]), tmp_path / "child.onnx")
    report = verdict_of(family[""], tmp_path / "child.onnx")
    assert (report.verdict, report.reasons) == ("proven", ())
    assert judge(onnx.load(family[""]), onnx.load(tmp_path / "child.onnx")) == "proven"


def test_static_quantization_is_bounded(family: dict[str, Path], tmp_path: Path) -> None:
    params = {"op_types_to_quantize": ("MatMul", "Gemm")}
    apply(parent(), "OnnxStaticQuantization", params, tmp_path / "child.onnx")
    report = verdict_of(family[""], tmp_path / "child.onnx")
    assert report.verdict == judge(onnx.load(family[""]), onnx.load(tmp_path / "child.onnx")) == "bounded"
    assert report.ranges
