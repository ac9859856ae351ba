"""Timing the outputs of a draft."""

from dataclasses import replace
from pathlib import Path

import onnx
import onnxruntime as ort
import pytest

from onnxreg.converters.evaluation.latency import LatencyTable, measure
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.inputs.recipe_file import Benchmark
from onnxreg.schema.manifest.draft import Draft, DraftArtifact

GRAPH = """<ir_version: 8, opset_import: ["" : 17]>
net (float[{axis}, 3] x) => (float[{axis}, 3] y) {{ y = Relu(x) }}"""


def draft(root: Path, **axes: object) -> Draft:
    for name, axis in axes.items():
        onnx.save(onnx.parser.parse_model(GRAPH.format(axis=axis)), str(root / f"{name}.onnx"))
    return Draft("acme/net", root, tuple(DraftArtifact("onnx", "float32", f"{name}.onnx") for name in axes))


def batches(table: LatencyTable) -> dict[str, list[int]]:
    """The batch sizes of each path."""
    sizes: dict[str, list[int]] = {}
    for latency in table.latencies:
        sizes.setdefault(*latency.paths, []).append(latency.rows)
    return sizes


def test_every_output_is_timed_at_every_batch_that_it_takes(tmp_path):
    asked = Benchmark(runs=7, threads=1, batches=(1, 4))
    found = measure(draft(tmp_path, free="batch", fixed=2), asked)
    assert batches(found) == {"free.onnx": [1, 4], "fixed.onnx": [2]}
    assert all(0 < latency.median <= latency.p95 for latency in found.latencies)


def save_as_ort(path: Path) -> None:
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(path.with_suffix(".ort"))
    ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def test_a_file_in_ort_format_says_itself_what_it_takes(tmp_path):
    """Its parent may not be published, and another graph may take other shapes."""
    both = draft(tmp_path, free="batch", fixed=2)
    for name in ("free", "fixed"):
        save_as_ort(tmp_path / f"{name}.onnx")
    made = [DraftArtifact("ort", "float32", f"{name}.ort") for name in ("fixed", "free")]
    asked = Benchmark(runs=1, batches=(1, 4))
    for artifacts in ((both.artifacts[0], *made), tuple(made)):
        sizes = batches(measure(replace(both, artifacts=artifacts), asked))
        assert (sizes["fixed.ort"], sizes["free.ort"]) == ([2], [1, 4])


def test_indices_of_a_file_in_ort_format_lie_in_its_table(tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 17]> net (int64[batch, n] ids) => (float[batch, n, 2] y)
    <float[1, 2] table = {1.0, 2.0}> { y = Gather(table, ids) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "net.onnx")
    save_as_ort(tmp_path / "net.onnx")
    files = tuple(DraftArtifact(kind, "float32", f"net.{kind}") for kind in ("onnx", "ort"))
    assert batches(measure(Draft("acme/net", tmp_path, files), Benchmark(runs=1)))["net.ort"]


def test_text_cannot_be_drawn(tmp_path):
    text = '<ir_version: 8, opset_import: ["" : 17]> net (string[n] x) => (string[n] y) { y = Identity(x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "net.onnx")
    lone = Draft("acme/net", tmp_path, (DraftArtifact("onnx", "float32", "net.onnx"),))
    with pytest.raises(InputError, match="the input x is not a tensor of numbers"):
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
def test_batches_are_counted_on_the_input_that_has_them(tmp_path, inputs, rows):
    text = f'<ir_version: 8, opset_import: ["" : 17]> net ({inputs}) => (float y) {{ p = Mul(x, s) y = ReduceSum <keepdims = 0> (p) }}'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "net.onnx")
    lone = Draft("acme/net", tmp_path, (DraftArtifact("onnx", "float32", "net.onnx"),))
    found = measure(lone, Benchmark(runs=1, threads=1, batches=(1, 4)))
    assert batches(found) == {"net.onnx": rows}
