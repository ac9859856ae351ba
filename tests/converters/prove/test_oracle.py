"""An independent judge in numpy agrees on every verdict, of children and of edited ones."""

from pathlib import Path

import onnx
import pytest
from support.prove.children import PROVEN, feeds, verdict_of
from support.prove.edits import changed_models
from support.prove.oracle import judge

JUDGED = [name for name in PROVEN if "rows" not in name and "pairs" not in name]
"""The children that keep the names of their parent's values, which is all that the judge reads."""


@pytest.mark.parametrize("name", JUDGED)
def test_the_judge_agrees_on_a_child_and_on_a_stranger(family: dict[str, Path], name: str) -> None:
    parent, child = (onnx.load(family[key]) for key in ("", name))
    assert judge(parent, child) == verdict_of(family[""], family[name]).verdict == "proven"
    other = family["dynamic QInt8"]
    assert (
        judge(onnx.load(other), child) == verdict_of(other, family[name]).verdict or name == "dynamic QInt8"
    )


def check_edits(family: dict[str, Path], name: str, count: int, scratch: Path) -> None:
    parent = onnx.load(family[""])
    rounding = 2.0**-8 if name.startswith("float16") else 0.0
    verdicts = set()
    for edited, what in changed_models(onnx.load(family[name]), list(feeds(2)), 6, count, rounding):
        onnx.save(edited, scratch)
        verdict = verdict_of(family[""], scratch).verdict
        assert judge(parent, edited) == verdict, what
        verdicts.add(verdict)
    assert verdicts


@pytest.mark.parametrize("name", ["dynamic QInt8 channels", "float16", "blocks 4 range"])
def test_the_judge_agrees_on_edits(family: dict[str, Path], name: str, tmp_path: Path) -> None:
    check_edits(family, name, 15, tmp_path / "edited.onnx")


@pytest.mark.more
@pytest.mark.parametrize("name", JUDGED)
def test_the_judge_agrees_on_many_edits(family: dict[str, Path], name: str, tmp_path: Path) -> None:
    check_edits(family, name, 60, tmp_path / "edited.onnx")
