"""Children that quantizers make are proven, or bounded for a stated reason: no false alarm.

An independent judge in numpy agrees on the verdict on every child, and on those whose tensors were edited. Edits of the
graph have a judge of their own: ONNX Runtime. No edit that changes what a child computes leaves its proof standing.
And docs/prove.md lists every rewrite, every rule of scales and every rule of float16, and no other rewrite.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.graphs import run
from support.prove import peers
from support.prove.children import BOUNDED, PROVEN, feeds, parent, verdict_of
from support.prove.edits import change_tensor, changed_models, scale_tensor
from support.prove.oracle import judge
from support.sampling import sampled

from onnxreg.converters.passes.pass_catalog import find
from onnxreg.converters.prove import read_formulas  # noqa: F401  enters the rules
from onnxreg.converters.prove.comparison import HALF_RULES, SCALE_RULES
from onnxreg.converters.prove.rewrites import RULES
from onnxreg.converters.search.candidates import built_in
from onnxreg.schema.gates.statements import FaithfulnessReport


def agreed(source: Path, child: Path, what: str = "") -> FaithfulnessReport:
    """The report on a child, on whose verdict the independent judge agrees."""
    report = verdict_of(source, child)
    assert judge(onnx.load(source), onnx.load(child)) == report.verdict, what
    return report


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stranger") / "stranger.onnx"
    onnx.save(parent(1), path)
    return path


@pytest.mark.parametrize("name", sampled([*PROVEN, *BOUNDED], 3))
def test_a_child_is_proven_or_bounded_by_fixed_ranges_and_no_child_of_a_stranger(family, stranger, name):
    report = agreed(family[""], family[name])
    assert agreed(stranger, family[name]).verdict == "not-provable"
    if name in PROVEN:
        assert (report.verdict, report.reasons, report.unread_nodes) == ("proven", (), 0)
        assert report.weights > 9_000
        return
    assert report.verdict == "bounded"
    assert report.ranges > 10
    assert report.largest is not None and report.largest.steps < 0.51


def deep(names: Iterable[str], *values: int) -> list[Any]:
    """Rows for `make test-more`, two of three for `make test-all` alone."""
    marks = pytest.mark.more, pytest.mark.large, pytest.mark.large
    return [pytest.param(name, *values, marks=marks[n % 3]) for n, name in enumerate(names)]


@pytest.mark.parametrize(("name", "count"), deep(PROVEN, 15))
def test_the_judge_agrees_on_edits(family, name, count, tmp_path):
    rounding = 2.0**-8 if name.startswith("float16") else 0.0
    edits, inputs, verdicts = (change_tensor, scale_tensor), list(feeds(2)), set()
    for edited, what in changed_models(onnx.load(family[name]), inputs, 6, count, rounding, edits):
        onnx.save(edited, tmp_path / "edited.onnx")
        verdicts.add(agreed(family[""], tmp_path / "edited.onnx", what).verdict)
    assert verdicts


@pytest.mark.parametrize(
    ("name", "seed", "count"), [("dynamic QInt8 channels", 1, 20), *deep(PROVEN, 2, 250 // len(PROVEN) + 1)]
)
def test_an_edit_that_changes_outputs_is_not_proven(family, name, seed, count, tmp_path):
    inputs, rounding = list(feeds(3)), 2.0**-8 if name.startswith("float16") else 0.0
    for edited, what in changed_models(onnx.load(family[name]), inputs, seed, count, rounding):
        onnx.save(edited, tmp_path / "edited.onnx")
        assert verdict_of(family[""], tmp_path / "edited.onnx").verdict != "proven", what


_CODES = {"MatMulInteger": (1,), "MatMulNBits": (1,), "Gather": (0,)}


def change_one_code(model: Any, draw: np.random.Generator) -> tuple[str, tuple[int, ...]]:
    """Move one code of one weight by one step; the tensor, and the place of the code in its matrix."""
    names = {node.input[at] for node in model.graph.node for at in _CODES.get(node.op_type, ())}
    codes = [item for item in model.graph.initializer if item.name in names and item.data_type in (2, 3)]
    tensor = codes[draw.integers(len(codes))]
    (node,) = (node for node in model.graph.node if tensor.name in node.input)
    settings = {"bits": 4} | {item.name: item.i for item in node.attribute}
    packed = node.op_type == "MatMulNBits" and settings["bits"] == 4
    array = onnx.numpy_helper.to_array(tensor).copy()
    index = tuple(int(draw.integers(size)) for size in array.shape)
    low, high = (0, 15) if packed else (np.iinfo(array.dtype).min, np.iinfo(array.dtype).max)
    shift, old = (4 * int(draw.integers(2)) if packed else 0), int(array[index])
    code = (old >> shift) & 15 if packed else old
    moved = code + (1 if code == low or (code < high and draw.integers(2)) else -1)
    array[index] = (old & ~(15 << shift)) | (moved << shift) if packed else moved
    tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    if len(index) < 3:
        return tensor.name, index
    column, block, at = index
    return tensor.name, (column, block * settings["block_size"] + (2 * at + shift // 4 if packed else at))


CODED = (
    "dynamic QInt8", "dynamic QInt8 channels reduced", "dynamic QUInt8 channels", "blocks 8 range", "blocks 4 range",
)  # fmt: skip


@pytest.mark.parametrize(("name", "seed", "count"), deep(CODED, 4, 40))
def test_a_weight_that_is_one_step_off_is_named(family, name, seed, count, tmp_path):
    draw = np.random.default_rng(seed)
    for _ in range(count):
        model = onnx.load(family[name])
        place = change_one_code(model, draw)
        onnx.save(model, tmp_path / "changed.onnx")
        report = verdict_of(family[""], tmp_path / "changed.onnx")
        assert report.verdict == "bounded", place
        assert report.largest is not None
        assert (report.largest.tensor, report.largest.index) == place
        assert report.largest.steps > 0.5


@pytest.mark.more
def test_a_float16_weight_that_is_one_unit_off_is_named(family, tmp_path):
    draw = np.random.default_rng(5)
    for _ in range(30):
        model = onnx.load(family["float16 io"])
        tensors = [item for item in model.graph.initializer if item.data_type == 10 and len(item.dims) == 2]
        tensor = tensors[draw.integers(len(tensors))]
        array = onnx.numpy_helper.to_array(tensor).copy()
        index = tuple(int(draw.integers(size)) for size in array.shape)
        array[index] = np.nextafter(array[index], np.float16(draw.choice([-1, 1])))
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
        onnx.save(model, tmp_path / "changed.onnx")
        report = verdict_of(family[""], tmp_path / "changed.onnx")
        assert report.verdict == "bounded"
        assert report.largest is not None
        assert (report.largest.tensor, report.largest.index) == (tensor.name, index)


def test_an_equal_tensor_that_is_one_unit_off_is_named(family, tmp_path):
    model = onnx.load(family["dynamic QInt8"])
    (tensor,) = [item for item in model.graph.initializer if item.name == "q_bias"]
    array = onnx.numpy_helper.to_array(tensor).copy()
    array[7] = np.nextafter(array[7], np.float32(1))
    tensor.CopyFrom(onnx.numpy_helper.from_array(array, "q_bias"))
    onnx.save(model, tmp_path / "changed.onnx")
    report = verdict_of(family[""], tmp_path / "changed.onnx")
    assert report.verdict == "not-provable"
    assert report.reasons[0].startswith("q_bias differs from the parent's at [7]")


# What the program's own passes make, alone and in the lines of a search


Steps = Sequence[tuple[str, dict[str, Any]]]
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
LINES: dict[str, Steps] = {
    **{name: [step] for name, step in PASSES.items()},
    **{
        f"the candidate {candidate.name}": [(work["pass"], dict(work["params"])) for work in candidate.passes]
        for candidate in built_in()
        if candidate.is_default
    },
    "static": [("OnnxStaticQuantization", {"op_types_to_quantize": ("MatMul", "Gemm")})],
}


@pytest.mark.parametrize("name", sampled(LINES, 4))
def test_a_pass_and_a_candidate_of_the_search_are_proven(family, name, tmp_path):
    model = parent()
    for kind, params in LINES[name]:
        model, _ = run("step", find(kind)(list(feeds(2)), **params), model)
    onnx.save(model, tmp_path / "child.onnx")
    report = agreed(family[""], tmp_path / "child.onnx")
    if name == "static":
        assert (report.verdict, report.ranges > 0) == ("bounded", True)
    else:
        assert (report.verdict, report.reasons) == ("proven", ())


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.0, "proven"), (2.0, "not-provable"), (1.5, "not-provable")]
)
def test_channels_are_scaled_by_what_the_rows_are(
    family: dict[str, Path], factor: float, verdict: str, tmp_path: Path
) -> None:
    model, _ = run("smooth", find("SmoothQuant")(list(feeds(2))), parent())
    tensor = next(one for one in model.graph.initializer if one.name.endswith("_inverse_scales"))
    scales = onnx.numpy_helper.to_array(tensor).copy()
    scales[3] *= factor
    tensor.CopyFrom(onnx.numpy_helper.from_array(scales, tensor.name))
    onnx.save(model, tmp_path / "child.onnx")
    assert verdict_of(family[""], tmp_path / "child.onnx").verdict == verdict


@pytest.mark.large
@pytest.mark.parametrize("kind", peers.PACKAGES)
def test_children_of_another_program(family, kind, tmp_path):
    """In releases three back to today."""
    packages, out = tmp_path / "packages", tmp_path / "out"
    out.mkdir()
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(packages)]
    subprocess.run([*install, *peers.PACKAGES[kind]], check=True)
    script, source = Path(peers.__file__), str(family[""])
    environment = {**os.environ, "PYTHONPATH": str(packages), "OLIVE_DISABLE_TELEMETRY": "1", "CI": "1"}
    subprocess.run([sys.executable, str(script), kind, source, str(out)], env=environment, check=True)
    children = sorted(out.glob("*.onnx"))
    assert len(children) >= 2
    for child in children:
        report = verdict_of(family[""], child)
        expected = peers.EXPECTED.get(child.stem.partition("-")[0], "proven")
        assert report.verdict == expected, (child.name, report.reasons)


PAGE = (Path(__file__).parents[3] / "docs" / "prove.md").read_text("utf-8")


def test_every_rewrite_is_on_the_page():
    table = PAGE.partition("| rewrite |")[2].partition("\n\n")[0]
    names = {name for row in table.splitlines() for name in re.findall(r"`([a-z-]+)`", row.split("|")[1])}
    assert names == {name for rules in RULES.values() for name, _ in rules} | {"constant-folding", "sizes"}


def test_every_rule_of_scales_and_of_float16_is_on_the_page():
    table = PAGE.partition("| scale rule |")[2].partition("\n\n")[0]
    for name in SCALE_RULES:
        kind, steps = name.split("/")
        assert any(kind in row and f"/{steps}`" in row for row in table.splitlines()), name
    for name in HALF_RULES:
        assert name.removeprefix("float16 ") in PAGE
