"""An independent judge in numpy agrees on the verdict on every child, and on those whose tensors were edited.

The children of the program's own passes are in test_passes.py. Edits of the graph have a judge of their own: ONNX Runtime, in test_edits.py.
"""

from pathlib import Path

import onnx
import pytest
from support.prove.children import BOUNDED, PROVEN, feeds, parent, verdict_of
from support.prove.edits import change_tensor, changed_models, scale_tensor
from support.prove.oracle import judge
from support.sampling import sampled


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stranger") / "stranger.onnx"
    onnx.save(parent(1), path)
    return path


def agree(source: Path, child: Path) -> str:
    verdict = verdict_of(source, child).verdict
    assert judge(onnx.load(source), onnx.load(child)) == verdict
    return verdict


@pytest.mark.parametrize("name", [*PROVEN, *BOUNDED])
def test_the_judge_agrees_on_a_child_and_on_a_stranger(
    family: dict[str, Path], stranger: Path, name: str
) -> None:
    assert agree(family[""], family[name]) == ("proven" if name in PROVEN else "bounded")
    assert agree(stranger, family[name]) == "not-provable"


def check_edits(family: dict[str, Path], name: str, count: int, scratch: Path) -> None:
    rounding = 2.0**-8 if name.startswith("float16") else 0.0
    edits = (change_tensor, scale_tensor)
    inputs = list(feeds(2))
    verdicts = set()
    for edited, what in changed_models(onnx.load(family[name]), inputs, 6, count, rounding, edits):
        onnx.save(edited, scratch)
        verdict = verdict_of(family[""], scratch).verdict
        assert judge(onnx.load(family[""]), edited) == verdict, what
        verdicts.add(verdict)
    assert verdicts


@pytest.mark.parametrize(
    "name", sampled(["dynamic QInt8 channels", "float16", "blocks 4 range", "blocks 4 rows"], 3)
)
def test_the_judge_agrees_on_edits(family: dict[str, Path], name: str, tmp_path: Path) -> None:
    check_edits(family, name, 15, tmp_path / "edited.onnx")


@pytest.mark.more
@pytest.mark.parametrize("name", PROVEN)
def test_the_judge_agrees_on_many_edits(family: dict[str, Path], name: str, tmp_path: Path) -> None:
    check_edits(family, name, 60, tmp_path / "edited.onnx")
