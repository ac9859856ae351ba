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
    "static": ("OnnxStaticQuantization", {"op_types_to_quantize": ("MatMul", "Gemm")}),
    "other types outside": ("OnnxIODataTypeConverter", {"source_dtype": 1, "target_dtype": 10}),
}


STEPS = {name: [step] for name, step in PASSES.items()} | {
    f"search: {item.name}": [(work["pass"], dict(work["params"])) for work in item.passes]
    for item in library(True, None)
}


@pytest.mark.parametrize("name", STEPS)
def test_children_of_passes(family: dict[str, Path], name: str, tmp_path: Path) -> None:
    model, path = parent(), tmp_path / "child.onnx"
    for kind, params in STEPS[name]:
        model, _ = run("step", find(kind)(list(feeds(2)), **params), model)
    onnx.save(model, path)
    report = verdict_of(family[""], path)
    assert report.verdict == judge(onnx.load(family[""]), onnx.load(path))
    assert report.verdict == ("bounded" if name == "static" else "proven"), report.reasons
    assert bool(report.ranges) == bool(report.reasons) == (name == "static")
