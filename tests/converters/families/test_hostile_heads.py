"""Checkpoints of heads that mean harm or are broken: each is refused by the name of the head, and nothing of it runs."""

import io
import json
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from onnxreg.converters.families.head_checkpoints import read_head
from onnxreg.schema.core.errors import InputError

CLASSES = json.dumps(["a", "b"])
NOTES = {"classes": CLASSES, "rows": "[1, 1]"}


class Bomb:
    """Makes a directory when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("ran",)


def tensors(metadata: Any = NOTES, dtype: str = "F32", width: int = 4, data: bytes | None = None) -> bytes:
    """A safetensors file of one layer that reads three values."""
    header = {
        "__metadata__": metadata,
        "weight": {"dtype": dtype, "shape": [2, 3], "data_offsets": [0, 6 * width]},
        "bias": {"dtype": dtype, "shape": [2], "data_offsets": [6 * width, 8 * width]},
    }
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + (bytes(8 * width) if data is None else data)


def arrays(**members: Any) -> bytes:
    target = io.BytesIO()
    plain = {"weight": np.zeros((2, 3), np.float32), "bias": np.zeros(2, np.float32)}
    notes = {"classes": np.array(["a", "b"]), "rows": np.array([1, 1])}
    np.savez(target, allow_pickle=True, **{**plain, **notes, **members})
    return target.getvalue()


def saved(weight: Any = None, **beside: Any) -> bytes:
    target = io.BytesIO()
    state = {"weight": torch.zeros(2, 3) if weight is None else weight, "bias": torch.zeros(2)}
    torch.save({"state_dict": state, "classes": ["a", "b"], "rows": [1, 1], **beside}, target)
    return target.getvalue()


ATTACKS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "a pickle as safetensors": (".safetensors", lambda: pickle.dumps(Bomb())),
    "safetensors of nothing": (".safetensors", lambda: b""),
    "safetensors cut short": (".safetensors", lambda: tensors()[:-3]),
    "small floats": (".safetensors", lambda: tensors(dtype="F8_E4M3", width=1)),
    "brain floats": (".safetensors", lambda: tensors(dtype="BF16", width=2)),
    "whole numbers": (".safetensors", lambda: tensors(dtype="I32")),
    "infinity": (".safetensors", lambda: tensors(data=np.full(8, np.inf, np.float32).tobytes())),
    "classes that are no JSON": (".safetensors", lambda: tensors({**NOTES, "classes": "[a"})),
    "classes of many brackets": (".safetensors", lambda: tensors({**NOTES, "classes": "[" * 100_000})),
    "classes that are an object": (".safetensors", lambda: tensors({**NOTES, "classes": "{}"})),
    "a class that is no text": (".safetensors", lambda: tensors({**NOTES, "classes": '["a", 5]'})),
    "half a character": (".safetensors", lambda: tensors({**NOTES, "classes": '["a", "\\ud800"]'})),
    "a count of many digits": (".safetensors", lambda: tensors({**NOTES, "rows": f"[1, {'9' * 5000}]"})),
    "counts that are true": (".safetensors", lambda: tensors({**NOTES, "rows": "[true, true]"})),
    "a pickle as npz": (".npz", lambda: pickle.dumps(Bomb())),
    "a pickle among the classes": (".npz", lambda: arrays(classes=np.array([Bomb(), "b"], object))),
    "a pickle among the weights": (".npz", lambda: arrays(weight=np.array([Bomb()], object))),
    "complex arrays": (".npz", lambda: arrays(weight=np.zeros((2, 3), np.complex64))),
    "arrays of text": (".npz", lambda: arrays(weight=np.array(["a"]))),
    "records": (".npz", lambda: arrays(weight=np.zeros((2, 3), [("a", "f4")]))),
    "an array too many": (".npz", lambda: arrays(other=np.zeros(2, np.float32))),
    "a pickle as pth": (".pth", lambda: pickle.dumps(Bomb())),
    "a pickle among the tensors": (".pth", lambda: saved(Bomb())),
    "a pickle beside them": (".pth", lambda: saved(epoch=Bomb())),
    "a sparse tensor": (".pth", lambda: saved(torch.zeros(2, 3).to_sparse())),
    "a tensor without values": (".pth", lambda: saved(torch.zeros(2, 3, device="meta"))),
    "complex tensors": (".pth", lambda: saved(torch.zeros(2, 3, dtype=torch.complex64))),
    "whole tensors": (".pt", lambda: saved(torch.zeros(2, 3, dtype=torch.int8))),
    "another shape": (".pt", lambda: saved(torch.zeros(3))),
    "classes that are a tensor": (".pt", lambda: saved(classes=torch.zeros(2))),
    "a pickle by its name": (".pkl", lambda: pickle.dumps(Bomb())),
    "joblib's": (".joblib", lambda: pickle.dumps(Bomb())),
    "a script": (".py", lambda: b"open('ran', 'w')"),
}  # fmt: skip


@pytest.mark.parametrize("case", ATTACKS)
def test_a_head_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.chdir(tmp_path)
    suffix, data = ATTACKS[case]
    path = tmp_path / f"bean{suffix}"
    path.write_bytes(data())
    with pytest.raises(InputError, match=r"^head:bean"):
        read_head(path, "head:bean")
    assert not (tmp_path / "ran").exists()
