"""Children that quantizers make are proven, or bounded for a stated reason: no false alarm.

An independent judge in numpy agrees on the verdict on every child, and on those whose tensors were edited. Edits of the
graph have a judge of their own: ONNX Runtime, in test_edits.py.
And docs/prove.md lists every rewrite, every rule of scales and every rule of float16, and no other rewrite.
"""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest
from support.prove import peers
from support.prove.children import BOUNDED, PROVEN, feeds, parent, verdict_of
from support.prove.edits import change_tensor, changed_models, scale_tensor
from support.prove.oracle import judge
from support.sampling import sampled

from onnxreg.converters.passes.base import run
from onnxreg.converters.passes.pass_catalog import find
from onnxreg.converters.prove import read_formulas  # noqa: F401  enters the rules
from onnxreg.converters.prove.comparison import HALF_RULES, SCALE_RULES
from onnxreg.converters.prove.rewrites import RULES
from onnxreg.converters.search.search import library
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


@pytest.mark.parametrize("name", [*PROVEN, *BOUNDED])
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


def check_edits(family: dict[str, Path], name: str, count: int, scratch: Path) -> None:
    rounding = 2.0**-8 if name.startswith("float16") else 0.0
    edits, inputs, verdicts = (change_tensor, scale_tensor), list(feeds(2)), set()
    for edited, what in changed_models(onnx.load(family[name]), inputs, 6, count, rounding, edits):
        onnx.save(edited, scratch)
        verdicts.add(agreed(family[""], scratch, what).verdict)
    assert verdicts


EDITED = ["dynamic QInt8 channels", "float16", "blocks 4 range", "blocks 4 rows"]


@pytest.mark.parametrize("name", sampled(EDITED, 3))
def test_the_judge_agrees_on_edits(family, name, tmp_path):
    check_edits(family, name, 15, tmp_path / "edited.onnx")


@pytest.mark.more
@pytest.mark.parametrize("name", PROVEN)
def test_the_judge_agrees_on_many_edits(family, name, tmp_path):
    check_edits(family, name, 60, tmp_path / "edited.onnx")


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
        for candidate in library(True, None)
    },
    "static": [("OnnxStaticQuantization", {"op_types_to_quantize": ("MatMul", "Gemm")})],
}


@pytest.mark.parametrize("name", LINES)
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
