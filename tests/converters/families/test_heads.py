"""Heads on disk: what is read gives what torch gives, and what is harmful or broken is refused by the head's name."""

import json
import pickle
import re
import struct
import unicodedata
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from safetensors.numpy import save_file

from onnxreg.converters.families.heads import head_graph, member_of, read_head, read_heads
from onnxreg.converters.passes import models
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.inputs.family_file import HeadsSpec
from onnxreg.schema.manifest.family import MEMBER_NAME

NAME = "head:tomato"
CLASSES = ["healthy", "blight"]


def layers(*sizes: int) -> torch.nn.Sequential:
    torch.manual_seed(0)
    parts: list[torch.nn.Module] = []
    for before, after in pairwise(sizes):
        parts += [torch.nn.Linear(before, after), torch.nn.Tanh()]
    return torch.nn.Sequential(*parts[:-1])


def write(path: Path, arrays: dict[str, Any], **notes: Any) -> Path:
    save_file(arrays, path, {key: json.dumps(value) for key, value in notes.items()})
    return path


def arrays_of(module: torch.nn.Module) -> dict[str, Any]:
    return {name: value.numpy().copy() for name, value in module.state_dict().items()}


@pytest.mark.parametrize("sizes", [(8, 2), (8, 6, 2), (8, 6, 5, 5, 5, 5, 5, 2)])
def test_a_head_is_its_torch_module(tmp_path, sizes):
    module = layers(*sizes)
    head = read_head(write(tmp_path / "tomato.safetensors", arrays_of(module), classes=CLASSES), NAME)
    assert (head.classes, head.width) == (tuple(CLASSES), 8)
    graph = head_graph(head, "Tanh", "features", "scores", 18)
    onnx.checker.check_model(models.to_proto(graph), full_check=True)
    for count in (16, 1):
        rows = np.random.default_rng(1).normal(size=(count, 8)).astype(np.float32)
        with torch.no_grad():
            expected = module(torch.from_numpy(rows)).numpy()
        (got,) = models.session(graph).run(["scores"], {"features": rows})
        np.testing.assert_allclose(got, expected, atol=1e-5)
        np.testing.assert_allclose(head.logits(rows, "Tanh"), expected, atol=1e-5)


def test_classes_come_from_the_file_or_else_the_document(tmp_path):
    path = tmp_path / "tomato.safetensors"
    write(path, arrays_of(layers(8, 2)))
    assert read_head(path, NAME, CLASSES).classes == tuple(CLASSES)
    for stated in (None, ["a", "b", "c"], ["a", "a"]):
        with pytest.raises(InputError, match="head:tomato has 2 outputs") as caught:
            read_head(path, NAME, stated)
        assert 'heads: {classes: {"tomato": [' in caught.value.hint
    write(path, arrays_of(layers(8, 2)), classes=CLASSES)
    assert read_head(path, NAME, CLASSES).classes == tuple(CLASSES)
    with pytest.raises(
        InputError, match="head:tomato: the classes asked for are not in the order of training"
    ):
        read_head(path, NAME, CLASSES[::-1])


def raw(metadata: Any, dtype: str = "F32", width: int = 4) -> bytes:
    """A safetensors file of one layer that reads three values, of zeros."""
    header = {
        "__metadata__": metadata,
        "weight": {"dtype": dtype, "shape": [2, 3], "data_offsets": [0, 6 * width]},
        "bias": {"dtype": dtype, "shape": [2], "data_offsets": [6 * width, 8 * width]},
    }
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(8 * width)


def changed(**arrays: Any) -> bytes:
    from safetensors.numpy import save

    return save(arrays_of(layers(8, 4, 2)) | arrays, {"classes": json.dumps(CLASSES)})


def floats(*shape: int, value: float = 0.0) -> Any:
    return np.full(shape, value, np.float32)


BAD: dict[str, Callable[[], bytes]] = {
    "nan": lambda: changed(**{"0.bias": floats(4, value=np.nan)}),
    "infinity": lambda: changed(**{"2.weight": floats(2, 4, value=np.inf)}),
    "integers": lambda: changed(**{"0.bias": np.zeros(4, np.int64)}),
    "a stray tensor": lambda: changed(**{"0.running_mean": floats(4)}),
    "a width between": lambda: changed(**{"0.weight": floats(5, 8)}),
    "a bias": lambda: changed(**{"2.bias": floats(3)}),
    "brain floats": lambda: raw({"classes": '["a", "b"]'}, "BF16", 2),
    "no JSON": lambda: raw({"classes": "[a"}),
    "many brackets": lambda: raw({"classes": "[" * 100_000}),
    "an object": lambda: raw({"classes": "{}"}),
    "no text": lambda: raw({"classes": '["a", 5]'}),
    "half a character": lambda: raw({"classes": '["a", "\\ud800"]'}),
    "a long name": lambda: raw({"classes": json.dumps(["a", "x" * 201])}),
    "an empty name": lambda: raw({"classes": '["a", ""]'}),
    "a class twice": lambda: raw({"classes": '["a", "a"]'}),
    "a class too many": lambda: raw({"classes": '["a", "b", "c"]'}),
    "a pickle": lambda: pickle.dumps({"weight": torch.zeros(2, 3)}),
    "cut short": lambda: changed()[:-1],
}


@pytest.mark.parametrize("what", BAD)
def test_a_broken_head_is_refused_by_its_name(tmp_path, what):
    path = tmp_path / "tomato.safetensors"
    path.write_bytes(BAD[what]())
    with pytest.raises(InputError, match=r"^head:tomato"):
        read_head(path, NAME)


@pytest.mark.parametrize(
    ("class_id", "name"),
    [("corn (maize)", "corn-maize"), ("maïs doux", "mais-doux"), ("小麦", ""), ("ø" * 64, "")],
)
def test_a_class_of_any_script_has_a_name_of_a_member_and_its_file_is_found(tmp_path, class_id, name):
    """However a file system writes its letters."""
    member = member_of(class_id)
    assert member.startswith(f"head:{name}") and re.fullmatch(MEMBER_NAME, member)
    path = tmp_path / unicodedata.normalize("NFD", f"{class_id}.safetensors")
    write(path, arrays_of(layers(8, 2)), classes=CLASSES)
    assert list(read_heads(HeadsSpec(folder="."), tmp_path, [class_id], 8)) == [class_id]
