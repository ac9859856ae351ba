"""Timing the outputs of a draft."""

from dataclasses import replace
from pathlib import Path

import onnx
import onnxruntime as ort
import pytest

from onnxreg.converters.recipes.benchmarking import WARM_UP, measure
from onnxreg.schema.draft import Draft, DraftArtifact
from onnxreg.schema.errors import ConversionError
from onnxreg.schema.recipe_file import Benchmark

GRAPH = """<ir_version: 8, opset_import: ["" : 17]>
net (float[{axis}, 3] x) => (float[{axis}, 3] y) {{ y = Relu(x) }}"""


def draft(root: Path, **axes: object) -> Draft:
    for name, axis in axes.items():
        onnx.save(onnx.parser.parse_model(GRAPH.format(axis=axis)), str(root / f"{name}.onnx"))
    return Draft("acme/net", root, tuple(DraftArtifact("onnx", "float32", f"{name}.onnx") for name in axes))


def test_every_output_is_timed_at_every_batch_that_it_takes(tmp_path: Path) -> None:
    asked = Benchmark(runs=7, threads=1, batches=(1, 4))
    found = measure(draft(tmp_path, free="batch", fixed=2), asked)
    assert {path: sorted(rows) for path, rows in found.times.items()} == {
        "free.onnx": [1, 4],
        "fixed.onnx": [2],
    }
    assert all(len(times) == 7 for rows in found.times.values() for times in rows.values())
    assert all(one > 0 for rows in found.times.values() for times in rows.values() for one in times)
    assert WARM_UP > 0


def test_a_file_in_ort_format_takes_what_its_parent_takes(tmp_path: Path) -> None:
    both = draft(tmp_path, free="batch", fixed=2)
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "fixed.ort")
    ort.InferenceSession(str(tmp_path / "fixed.onnx"), options, providers=["CPUExecutionProvider"])
    made = DraftArtifact("ort", "float32", "fixed.ort", parent="fixed.onnx")
    found = measure(replace(both, artifacts=(*both.artifacts, made)), Benchmark(runs=1))
    assert sorted(found.times["fixed.ort"]) == [2]


def test_what_no_graph_says_how_to_feed(tmp_path: Path) -> None:
    (tmp_path / "model.ort").write_bytes(b"")
    lone = Draft("acme/net", tmp_path, (DraftArtifact("ort", "float32", "model.ort"),))
    with pytest.raises(ConversionError, match=r"model\.ort cannot be timed"):
        measure(lone, Benchmark(runs=1))


@pytest.mark.parametrize(
    ("inputs", "rows"),
    [
        ("float s, float[batch, 3] x", [1, 4]),
        ("float[3] s, float[batch, 3] x", [1, 4]),
        ("float s, float[2, 3] x", [2]),
        ("float s, float x", [1]),
    ],
)
def test_batches_are_counted_on_the_input_that_has_them(tmp_path: Path, inputs: str, rows: list[int]) -> None:
    text = f'<ir_version: 8, opset_import: ["" : 17]> net ({inputs}) => (float y) {{ p = Mul(x, s) y = ReduceSum <keepdims = 0> (p) }}'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "net.onnx")
    lone = Draft("acme/net", tmp_path, (DraftArtifact("onnx", "float32", "net.onnx"),))
    found = measure(lone, Benchmark(runs=1, threads=1, batches=(1, 4)))
    assert sorted(found.times["net.onnx"]) == rows
