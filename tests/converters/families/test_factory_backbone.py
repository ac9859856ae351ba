"""Backbones that a factory makes: outputs by name or position, and what does not fit is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from support.families import small

from onnxreg.converters.families.backbone import (
    EMBEDDING,
    LOGITS,
    LoadedBackbone,
    find_factory,
    load_factory_backbone,
)
from onnxreg.converters.tasks.code.consent import Consent
from onnxreg.schema.core.errors import ConversionError, InputError, NotFoundError, RegError
from onnxreg.schema.inputs.family_file import BackboneSpec


@pytest.fixture
def trained(tmp_path: Path) -> torch.nn.Module:
    """The module whose weights the checkpoint in `tmp_path` has."""
    return small.write_factory(tmp_path)


def load(directory: Path, **changes: Any) -> LoadedBackbone:
    value = {key: each for key, each in {**small.MADE_BACKBONE, **changes}.items() if each is not None}
    asked = BackboneSpec.from_json(value, "backbone")
    made = find_factory(asked, directory)
    assert made is not None
    return load_factory_backbone(asked, directory, made, Consent.of(["net.py:build"]))


@pytest.mark.parametrize(
    ("as_tuple", "outputs"),
    [
        (False, {"logits": "scores", "embedding": "features"}),
        (False, {"logits": 1, "embedding": 0}),
        (True, {"logits": 0, "embedding": 1}),
    ],
)
def test_outputs_are_chosen_by_name_or_position(
    trained: torch.nn.Module, tmp_path: Path, as_tuple: bool, outputs: dict[str, int | str]
) -> None:
    loaded = load(tmp_path, arguments={"width": small.WIDTH, "as_tuple": as_tuple}, outputs=outputs)
    images = torch.from_numpy(small.images(3, 1))
    with torch.no_grad():
        given, expected = loaded.module(images), trained(images)
    assert torch.equal(given[LOGITS], expected["scores"])
    assert torch.equal(given[EMBEDDING], expected["features"])
    assert (loaded.width, loaded.classes) == (small.WIDTH, tuple(small.SPECIES))


REFUSED: dict[str, tuple[dict[str, Any], type[RegError], str]] = {
    "no such output": ({"outputs": {"logits": "logits", "embedding": 0}}, InputError, "no output logits"),
    "no such position": ({"outputs": {"logits": 0, "embedding": 2}}, InputError, "no output 2"),
    "other classes": ({"classes": ["a", "b"]}, InputError, "gives 4 logits, and has 2 classes"),
    "the wrong way round": ({"outputs": {"logits": 0, "embedding": 1}}, InputError, "gives 16 logits"),
    "a class twice": ({"classes": ["a", "a", "b", "c"]}, InputError, "two of its classes have one id"),
    "other channels": ({"input": [1, 16, 16]}, ConversionError, "does not take an input of shape"),
    "another module": ({"arguments": {"width": 8}}, InputError, "has other shapes than the module"),
    "no checkpoint": ({"checkpoint": "none.ckpt"}, NotFoundError, "there is no checkpoint file none.ckpt"),
    "no code": ({"factory": "none.py:build"}, NotFoundError, "there is no file none.py"),
    "a local path": ({"arguments": {"width": "/home/jane/x"}}, InputError, "a place on this machine"),
    "no classes": ({"classes": None}, InputError, "a factory needs classes too"),
    "no outputs": ({"outputs": None, "input": None}, InputError, "a factory needs input and outputs too"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_unfit_backbones_are_refused(trained: torch.nn.Module, tmp_path: Path, case: str) -> None:
    changes, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        load(tmp_path, **changes)


def test_a_module_of_one_tensor_is_refused(trained: torch.nn.Module, tmp_path: Path) -> None:
    text = small.NET.replace('{"features": features, "scores": scores}', "scores")
    (tmp_path / "net.py").write_text(text)
    with pytest.raises(InputError, match="the module gives one Tensor"):
        load(tmp_path)


def test_weights_that_are_no_numbers_are_refused(trained: torch.nn.Module, tmp_path: Path) -> None:
    weights = torch.load(tmp_path / "best.ckpt", weights_only=True)
    weights["state_dict"]["model.fc.bias"][0] = float("nan")
    torch.save(weights, tmp_path / "best.ckpt")
    with pytest.raises(InputError, match=r"fc\.bias holds NaN or infinity"):
        load(tmp_path)
