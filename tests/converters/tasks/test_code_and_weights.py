"""Functions that make modules, and weights out of files: nothing runs before consent, and nothing that does not fit."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from onnxreg.converters.tasks import code
from onnxreg.converters.tasks.image_classification import load_into
from onnxreg.schema.core.errors import ConversionError, InputError, NotFoundError

TRAP = "raise RuntimeError('this code ran')\n"


FILES = {
    "__init__.py": "",
    "nets/__init__.py": "",
    "nets/small.py": "import torch\nfrom kit_under_test.parts import part\ndef build(width=2):\n    return part(width)\n",
    "parts.py": "import torch\ndef part(width):\n    return torch.nn.Linear(width, width)\n",
}  # fmt: skip
SMALL = "kit_under_test.nets.small:build"


def write(folder: Path, **files: str) -> None:
    """Write modules by their names."""
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, "utf-8")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the package `kit_under_test` in it."""
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        path = tmp_path / "kit_under_test" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("source", "expected"),
    [("net:build", True), ("a.b:build", True), ("dir/net.py:build", True), ("net", False), ("net:", False),
     (":build", False), ("net:2x", False), ("C:\\runs", False)],
)  # fmt: skip
def test_is_factory(source, expected):
    assert code.is_factory(source) is expected


def test_a_package_is_hashed_whole_and_not_run_before_a_module_is_made(project):
    path = list(sys.path)
    made = code.make(code.find(SMALL, Path()), {"width": 3})
    assert (made.in_features, sys.path) == (3, path)
    write(project / "kit_under_test", __init__=TRAP)
    found = code.find(SMALL, Path())
    assert found.name == SMALL
    assert sorted(found.files) == sorted(f"kit_under_test/{name}" for name in FILES)
    assert found.files["kit_under_test/parts.py"].read_text() == FILES["parts.py"]


def test_a_file_lies_beside_the_recipe_or_here(project):
    write(project / "recipes", net="def build():\n    pass\n")
    found = code.find("net.py:build", Path("recipes"))
    assert (found.file, found.name) == (project / "recipes" / "net.py", "net:build")
    with pytest.raises(NotFoundError, match=r"there is no file net\.py"):
        code.find("net.py:build", Path())


def test_equal_names_in_two_places_are_two_modules(tmp_path):
    for width in (2, 3):
        place = tmp_path / str(width)
        write(place, twice_under_test=f"import torch\ndef build():\n    return torch.nn.Linear({width}, 1)\n")
        for source in ("twice_under_test:build", "twice_under_test.py:build"):
            assert code.make(code.find(source, place), {}).in_features == width


def test_random_weights_are_the_same_each_time_and_leave_the_generator_alone(project):
    torch.manual_seed(7)
    state = torch.random.get_rng_state()
    first, second = (code.make(code.find(SMALL, Path()), {}).weight for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize(
    ("source", "family", "message"),
    [
        *((source, NotFoundError, "there is no Python module")
          for source in ("kit_under_test.absent:build", "no_such_module:build", "sys:exit")),
        *((source, InputError, "is not a factory") for source in ("net", "a b:build", "../net:build")),
        ("tarfile:bltn_open", InputError, r"tarfile does not define bltn_open: it is of _?io"),
    ],
)  # fmt: skip
def test_a_text_that_names_no_factory(project, source, family, message):
    with pytest.raises(family, match=message):
        code.make(code.find(source, Path()), {})


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        ("def build():\n    raise ValueError('no weights')\n", ConversionError, r"f:build raised ValueError at f\.py:2: no weights$"),
        ("import json\ndef load():\n    json.loads('{')\ndef build():\n    load()\n", ConversionError, r"Error at f\.py:3: Exp"),
        ("def build():\n    raise SystemExit\n", ConversionError, "raised SystemExit"),
        ("def build(classes):\n    pass\n", ConversionError, "raised TypeError"),
        ("import no_such_package\n", ConversionError, r"raised ModuleNotFoundError at f\.py:1: "),
        ("def build(:\n", ConversionError, r"raised SyntaxError: .*\(f\.py, line 1\)$"),
        ("def build():\n    return 5\n", InputError, r"gives a int, not a torch\.nn\.Module"),
        ("def other():\n    pass\n", InputError, r"f\.py has no function build"),
        ("build = 5\n", InputError, r"f\.py has no function build"),
        *((text, InputError, r"f\.py does not define build: it is of") for text in (
            "def build():\n    pass\nfrom os import system as build\n", "from logging.config import ThreadingTCPServer as build\n",
            "import os, functools\nbuild = functools.partial(os.system, 'touch ran')\n",
        )),
    ],
)  # fmt: skip
def test_a_factory_that_makes_none(tmp_path, body, error, message):
    write(tmp_path, f=body)
    with pytest.raises(error, match=message):
        code.make(code.find("f.py:build", tmp_path), {})


@pytest.mark.parametrize("place", ["here", "lib"])
def test_code_that_the_digest_does_not_cover_is_refused(tmp_path, monkeypatch, place):
    """Beside the factory or in another place, and again when it was imported."""
    monkeypatch.syspath_prepend(tmp_path / "lib")
    write(tmp_path / place, **{f"{place}_under_test": "import torch\nlayer = torch.nn.ReLU\n"})
    write(tmp_path / "here", net=f"from {place}_under_test import layer\ndef build():\n    return layer()\n")
    message = rf"net\.py imports {place}_under_test\.py, which its digest does not cover"
    for _ in range(2):
        with pytest.raises(InputError, match=message):
            code.make(code.find("net.py:build", tmp_path / "here"), {})


def test_installed_packages_that_are_imported_are_known(project):
    text = "import torch.nn as nn, json\nfrom numpy.random import default_rng\nfrom . import parts\n"
    for source, packages in ((text, ("numpy", "torch")), ("def (:\n", ("torch",))):
        write(project / "kit_under_test", parts=source)
        assert code.find(SMALL, Path()).packages == packages


def test_a_module_that_was_edited_is_imported_anew_and_leaves_nothing_beside_it(project):
    for width in (2, 3):
        text = f"import torch\ndef part(_):\n    return torch.nn.Linear({width}, 1)\n"
        write(project / "kit_under_test", parts=text)
        assert code.make(code.find(SMALL, Path()), {}).in_features == width
    assert list(project.rglob("__pycache__")) == []


def test_prints_of_a_factory_go_to_stderr(tmp_path, capsys):
    write(tmp_path, f="import torch\ndef build():\n    print('building')\n    return torch.nn.ReLU()\n")
    code.make(code.find("f.py:build", tmp_path), {})
    assert capsys.readouterr() == ("", "building\n")


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
def test_every_form_that_programs_save(tmp_path, form):
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


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([torch.zeros(2)], "holds no tensors by name"),
        ({f"net.{name}": value for name, value in module().state_dict().items()}, "no values for"),
        ({"loss.weight": torch.ones(2)} | {f"module.{name}": value for name, value in module().state_dict().items()}, "no values for"),
        ({"state_dict": module().state_dict(), "state_dict_ema": module().state_dict()}, "under state_dict, and an average of them under state_dict_ema"),
        ({**module().state_dict(), "0.bias": torch.zeros(3, dtype=torch.int64)}, r"other kinds of numbers than the module for 0\.bias"),
    ],
)  # fmt: skip
def test_unfit_weights_change_nothing(tmp_path, value, message):
    torch.save(value, tmp_path / "best.pth")
    filled = module()
    before = filled.state_dict()["0.weight"].clone()
    with pytest.raises(InputError, match=message):
        load_into(filled, tmp_path / "best.pth")
    assert torch.equal(before, filled.state_dict()["0.weight"])
