"""Weights out of files: every form that programs save, and nothing that runs code or does not fit."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from onnxreg.converters.tasks.torch_weights import load_into
from onnxreg.schema.core.errors import InputError


def module(width: int = 3) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.BatchNorm1d(width))


FORMS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "plain": lambda state: state,
    "model_state_dict": lambda state: {"epoch": 3, "model_state_dict": state, "optimizer_state_dict": {"lr": 1.0}},
    "state_dict": lambda state: {"state_dict": state},
    "model": lambda state: {"model": state, "epoch": 1},
    "net": lambda state: {"net": state, "epoch": 1},
    "params": lambda state: {"params": state},
    "average": lambda state: {"model_ema": state},
    "compiled": lambda state: {f"_orig_mod.{name}": value for name, value in state.items()},
    "without counts": lambda state: {name: value for name, value in state.items() if not name.endswith("num_batches_tracked")},
    "parallel": lambda state: {f"module.{name}": value for name, value in state.items()},
    "lightning": lambda state: {
        "state_dict": {f"model.{name}": value for name, value in state.items()},
        "pytorch-lightning_version": "2.5.0",
        "hyper_parameters": {"lr": 0.1},
    },
}  # fmt: skip


def same(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    return all(map(torch.equal, one.state_dict().values(), other.state_dict().values()))


@pytest.mark.parametrize("form", [*FORMS, "safetensors", "the prefix is of the module"])
def test_every_form_that_programs_save(tmp_path: Path, form: str) -> None:
    torch.manual_seed(3)
    trained, filled, path = module(), module(), tmp_path / "best.pth"
    if form == "safetensors":
        path = path.with_suffix(".safetensors")
        save_file(trained.state_dict(), path)
    elif form in FORMS:
        torch.save(FORMS[form](trained.state_dict()), path)
    else:
        trained, filled = (torch.nn.ModuleDict({"model": each}) for each in (trained, filled))
        torch.save({"state_dict": trained.state_dict()}, path)
    load_into(filled, path)
    assert same(filled, trained)


class Bomb:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("save", [torch.save, lambda value, path: path.write_bytes(pickle.dumps(value))])
def test_a_pickle_runs_nothing(tmp_path: Path, save: Callable[[Any, Path], Any]) -> None:
    save({"0.weight": Bomb(tmp_path / "ran")}, tmp_path / "bomb.pth")
    with pytest.raises(InputError, match=r"bomb\.pth is not a checkpoint of tensors alone"):
        load_into(module(), tmp_path / "bomb.pth")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("data", [b"", b"garbage", b"PK\x03\x04" + bytes(100), b"\x80\x04."])
def test_bytes_that_are_no_checkpoint_are_refused(tmp_path: Path, suffix: str, data: bytes) -> None:
    path = tmp_path / f"best{suffix}"
    path.write_bytes(data)
    with pytest.raises(InputError, match="is not a checkpoint"):
        load_into(module(), path)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "holds no tensors by name"),
        ([torch.zeros(2)], "holds no tensors by name"),
        ({"epoch": 3}, "holds no tensors by name"),
        ({"0.weight": torch.zeros(3, 4)}, r"has no values for 0\.bias, 1\.bias, .*"),
        ({**module().state_dict(), "2.weight": torch.zeros(1)}, r"the module has no place for 2\.weight"),
        ({f"net.{name}": value for name, value in module().state_dict().items()}, "no values for"),
        ({"loss.weight": torch.ones(2)} | {f"module.{name}": value for name, value in module().state_dict().items()}, "no values for"),
        ({"state_dict": module().state_dict(), "state_dict_ema": module().state_dict()}, "under state_dict, and an average of them under state_dict_ema"),
        (module(5).state_dict(), r"other shapes than the module for 0\.bias, 0\.weight, 1\.bias"),
    ],
)  # fmt: skip
def test_unfit_weights_change_nothing(tmp_path: Path, value: Any, message: str) -> None:
    torch.save(value, tmp_path / "best.pth")
    filled = module()
    before = filled.state_dict()["0.weight"].clone()
    with pytest.raises(InputError, match=message):
        load_into(filled, tmp_path / "best.pth")
    assert torch.equal(before, filled.state_dict()["0.weight"])
