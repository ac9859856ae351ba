"""What a family's files say of each other, at the oldest opset, with class ids of people and preprocessing."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.families import small

from onnxreg.converters.families import family_files
from onnxreg.converters.families.family_plan import plan_family
from onnxreg.schema.core.errors import InputError

NAMES = {"apple": "acorn squash", "bean": "bean (runner)"}
IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225], "resize": 20}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A family whose class ids have spaces, everywhere that they are named."""
    root = tmp_path / "source"
    root.mkdir()
    small.write(root)
    config = root / "swin" / "config.json"
    value = json.loads(config.read_text())
    species = [NAMES.get(each, each) for each in small.SPECIES]
    value["id2label"] = {str(index): each for index, each in enumerate(species)}
    config.write_text(json.dumps(value))
    for old, new in NAMES.items():
        (root / "heads" / f"{old}.safetensors").rename(root / "heads" / f"{new}.safetensors")
    with np.load(root / "held-out.npz") as rows:
        arrays = {_renamed(name): array for name, array in rows.items()}
    arrays["species"] = np.array([NAMES.get(each, each) for each in arrays["species"]])
    np.savez(root / "held-out.npz", **arrays)
    return root


def _renamed(name: str) -> str:
    role, _, class_id = name.partition(":")
    return f"{role}:{NAMES.get(class_id, class_id)}" if class_id else name


def asked(**more: Any) -> Any:
    return small.document(variants={"backbone": [], "head": ["float16"], "fused": ["float32"]}, **more)


def test_a_family_with_names_of_people_at_opset_17(source: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "made"
    workspace.mkdir()
    draft = small.export(asked(opset=17, preprocessing=IMAGENET), source, workspace)
    family = draft.fields["model_family"]
    listed = json.loads((workspace / family_files.LIST).read_text())
    assert listed.keys() == {"acorn squash", "bean (runner)", "corn", "weed"}
    assert listed["acorn squash"] == "disease-heads/acorn-squash-fp16.onnx"
    assert all(((workspace / family_files.LIST).parent / path).is_file() for path in listed.values() if path)
    assert family["routing"]["bean (runner)"] == "head:bean-runner"
    assert {onnx.load(workspace / each.path).opset_import[0].version for each in draft.artifacts} == {17}
    assert draft.fields["preprocessing"] == {
        **IMAGENET,
        "size": [small.SIDE, small.SIDE],
        "layout": "NCHW",
        "color": "RGB",
    }
    judged = [each for each in draft.artifacts if each.path == listed["acorn squash"]]
    assert "accuracy_loss" in {check["metric"] for check in judged[0].fields["checks"]}


def test_preprocessing_that_contradicts_the_backbone_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="3 channels first, not L"):
        small.export(asked(preprocessing={"mean": [0.5], "std": [0.5], "color": "L"}), source, tmp_path)


def test_a_document_without_preprocessing_is_recorded_as_before(source: Path) -> None:
    assert "preprocessing" not in plan_family(asked(), source).recorded
