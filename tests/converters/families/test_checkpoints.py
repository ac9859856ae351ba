"""Heads on disk: three formats that hold no code, and what is refused, each by the head's name."""

import json
import pickle
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from onnxreg.converters.families.backbone import check_classes
from onnxreg.converters.families.head_checkpoints import member_of, read_head, read_heads
from onnxreg.schema.core.errors import InputError, NotFoundError
from onnxreg.schema.inputs.family_file import HeadsSpec
from onnxreg.schema.manifest.family import MEMBER_NAME

NAME = "head:tomato"
CLASSES, ROWS = ["healthy", "blight"], [30, 12]
Tensors = dict[str, Any]


def tensors() -> Tensors:
    generator = np.random.default_rng(0)
    shapes = {"10.weight": (2, 4), "10.bias": (2,), "2.weight": (4, 8), "2.bias": (4,)}
    return {name: generator.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def write_safetensors(path: Path, arrays: Tensors, notes: dict[str, Any]) -> None:
    save_file(arrays, path, {key: json.dumps(value) for key, value in notes.items()})


def write_npz(path: Path, arrays: Tensors, notes: dict[str, Any]) -> None:
    np.savez(path, **arrays, **{key: np.array(value) for key, value in notes.items()})


def write_torch(path: Path, arrays: Tensors, notes: dict[str, Any]) -> None:
    torch.save({"state_dict": {key: torch.from_numpy(value) for key, value in arrays.items()}, **notes}, path)


WRITERS: dict[str, Callable[[Path, Tensors, dict[str, Any]], None]] = {
    "safetensors": write_safetensors,
    "npz": write_npz,
    "pth": write_torch,
}
NOTES: dict[str, Any] = {"classes": CLASSES, "rows": ROWS}


@pytest.mark.parametrize("suffix", WRITERS)
def test_every_format_gives_the_same_head(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"tomato.{suffix}"
    WRITERS[suffix](path, tensors(), NOTES)
    head = read_head(path, NAME)
    assert (head.classes, head.rows, head.width) == (tuple(CLASSES), tuple(ROWS), 8)
    for layer, stem in zip(head.layers, ("2", "10"), strict=True):
        assert np.array_equal(layer.weight, tensors()[f"{stem}.weight"])
        assert np.array_equal(layer.bias, tensors()[f"{stem}.bias"])


def refused(path: Path, match: str, classes: list[str] | None = None) -> None:
    with pytest.raises(InputError, match=match) as caught:
        read_head(path, NAME, classes)
    assert caught.value.message.startswith(NAME)


class Evil:
    def __reduce__(self) -> Any:
        return print, ("this must never be printed",)


@pytest.mark.parametrize("suffix", ["pth", "pt", "npz", "safetensors", "pkl", "joblib"])
def test_a_pickle_is_never_read(tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"tomato.{suffix}"
    path.write_bytes(pickle.dumps(Evil()))
    refused(path, "more than tensors|plain arrays|no safetensors|not a safetensors file|must end in one of")
    assert "never be printed" not in capsys.readouterr().out


def test_an_object_array_is_never_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "tomato.npz", **{"0.weight": np.array([Evil()], dtype=object)})
    refused(tmp_path / "tomato.npz", "plain arrays")


def test_a_module_in_a_pth_is_never_read(tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(2, 2), tmp_path / "tomato.pth")
    refused(tmp_path / "tomato.pth", "more than tensors")


def test_parameters_in_a_pth_are_read(tmp_path: Path) -> None:
    state = dict(torch.nn.Linear(8, 2).named_parameters())
    torch.save({"state_dict": state, **NOTES}, tmp_path / "tomato.pth")
    head = read_head(tmp_path / "tomato.pth", NAME)
    assert np.array_equal(head.layers[0].weight, state["weight"].detach().numpy())


def test_a_pth_with_numbers_for_names_is_refused(tmp_path: Path) -> None:
    torch.save({"state_dict": {0: torch.zeros(2, 8), 1: torch.zeros(2)}, **NOTES}, tmp_path / "tomato.pth")
    refused(tmp_path / "tomato.pth", "is not a state dict")


WRONG: dict[str, tuple[Tensors, dict[str, Any], str]] = {
    "nan": ({"2.bias": np.full(4, np.nan, np.float32)}, {}, "2.bias holds NaN"),
    "infinity": ({"10.weight": np.full((2, 4), np.inf, np.float32)}, {}, "10.weight holds NaN or infinity"),
    "integers": ({"2.bias": np.zeros(4, np.int64)}, {}, "2.bias is int64"),
    "a stray tensor": ({"2.running_mean": np.zeros(4, np.float32)}, {}, "not a stack of linear layers"),
    "a width between": ({"2.weight": np.zeros((5, 8), np.float32)}, {}, "shapes of 2.weight"),
    "a bias": ({"10.bias": np.zeros(3, np.float32)}, {}, "shapes of 10.weight"),
    "no rows of a class": ({}, {"rows": [30, 0]}, "the class blight has no training rows"),
    "a class too many": ({}, {"classes": ["a", "b", "c"], "rows": [1, 1, 1]}, "2 outputs, and 3 classes"),
    "a class twice": ({}, {"classes": ["a", "a"]}, "2 outputs, and 1 classes"),
    "a class without a name": ({}, {"classes": ["healthy", ""]}, "'' cannot be the id of a class"),
    "a class of a long name": ({}, {"classes": ["healthy", "x" * 201]}, "xxx.* cannot be the id of a class"),
    "half a character": ({}, {"classes": ["healthy", "\ud800"]}, "ud800' cannot be the id of a class"),
    "classes of another type": ({}, {"classes": [1, 2]}, "does not record its classes"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_weights_and_notes_are_refused_by_name(tmp_path: Path, what: str) -> None:
    arrays, notes, match = WRONG[what]
    write_safetensors(tmp_path / "tomato.safetensors", tensors() | arrays, NOTES | notes)
    refused(tmp_path / "tomato.safetensors", match)


def test_permuted_classes_are_refused_by_name(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "tomato.safetensors", tensors(), NOTES)
    assert read_head(tmp_path / "tomato.safetensors", NAME, CLASSES)
    refused(tmp_path / "tomato.safetensors", "not in the order of training", CLASSES[::-1])


def test_a_plain_state_dict_gets_its_classes_from_the_family_file(tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(8, 2).state_dict(), tmp_path / "tomato.pth")
    head = read_head(tmp_path / "tomato.pth", NAME, CLASSES)
    assert (head.classes, head.rows, head.width) == (tuple(CLASSES), (), 8)
    refused(tmp_path / "tomato.pth", "its 2 classes, and heads.classes names 3", ["a", "b", "c"])
    with pytest.raises(InputError, match="does not record its 2 classes") as caught:
        read_head(tmp_path / "tomato.pth", NAME)
    assert 'heads: {classes: {"tomato": [' in str(caught.value.hint)


def test_half_a_record_is_refused(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "tomato.safetensors", tensors(), {"classes": CLASSES})
    refused(tmp_path / "tomato.safetensors", "does not record its classes", CLASSES)


def test_a_tensor_beside_the_weights_is_refused(tmp_path: Path) -> None:
    write_torch(tmp_path / "tomato.pth", tensors(), {**NOTES, "temperature": torch.ones(1)})
    refused(tmp_path / "tomato.pth", "temperature")


@pytest.mark.parametrize(
    ("class_id", "name"),
    [
        ("corn (maize)", "corn-maize"),
        ("maïs doux", "mais-doux"),
        ("小麦", "5c0f9ea6"),
        ("ø" * 64, "f8" * 25 + "f-"),
    ],
)
def test_a_class_of_any_script_has_a_name_of_a_member(class_id: str, name: str) -> None:
    check_classes([class_id, "weed"], None)
    member = member_of(class_id)
    assert member.startswith(f"head:{name}") and re.fullmatch(MEMBER_NAME, member)


@pytest.mark.parametrize("class_id", ["../x", "a/b", "a\nb", "", "_a", " a", "a" * 65, "a\u200bb", "☃"])
def test_what_is_no_letter_is_refused(class_id: str) -> None:
    with pytest.raises(InputError, match="is not an id"):
        check_classes([class_id], None)


def test_heads_are_found_however_a_file_system_writes_their_letters(tmp_path: Path) -> None:
    write_safetensors(tmp_path / unicodedata.normalize("NFD", "maïs.safetensors"), tensors(), NOTES)
    heads = read_heads(HeadsSpec(folder="."), tmp_path, ["maïs"], 8)
    assert list(heads) == ["maïs"]


def test_a_missing_head_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"head:tomato: there is no checkpoint tomato\.npz"):
        read_head(tmp_path / "tomato.npz", NAME)
