"""Functions that make modules: found and hashed without running them, and run with nothing left behind."""

import sys
from pathlib import Path

import pytest
import torch

from onnxreg.converters.tasks import code
from onnxreg.schema.core.errors import ConversionError, InputError, NotFoundError

TRAP = "raise RuntimeError('this code ran')\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the package `kit_under_test` in it."""
    monkeypatch.chdir(tmp_path)
    package = tmp_path / "kit_under_test"
    (package / "nets").mkdir(parents=True)
    (package / "__init__.py").write_text("", "utf-8")
    (package / "nets" / "__init__.py").write_text("", "utf-8")
    (package / "nets" / "small.py").write_text(
        "import torch\nfrom kit_under_test.parts import part\ndef build(width=2):\n    return part(width)\n",
        "utf-8",
    )
    (package / "parts.py").write_text(
        "import torch\ndef part(width):\n    return torch.nn.Linear(width, width)\n", "utf-8"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("source", "expected"),
    [("net:build", True), ("a.b:build", True), ("dir/net.py:build", True), ("net", False), ("net:", False),
     (":build", False), ("net:2x", False), ("C:\\runs", False)],
)  # fmt: skip
def test_is_factory(source: str, expected: bool) -> None:
    assert code.is_factory(source) is expected


def test_a_package_is_hashed_whole_and_not_run(project: Path) -> None:
    (project / "kit_under_test" / "__init__.py").write_text(TRAP, "utf-8")
    found = code.find("kit_under_test.nets.small:build", Path())
    assert found.name == "kit_under_test.nets.small:build"
    assert sorted(found.files) == [
        "kit_under_test/__init__.py",
        "kit_under_test/nets/__init__.py",
        "kit_under_test/nets/small.py",
        "kit_under_test/parts.py",
    ]
    before = found.files["kit_under_test/parts.py"].read_bytes()
    assert before == (project / "kit_under_test" / "parts.py").read_bytes()


def test_a_module_of_a_package_is_made_with_arguments(project: Path) -> None:
    path = list(sys.path)
    made = code.make(code.find("kit_under_test.nets.small:build", Path()), {"width": 3})
    assert (made.in_features, sys.path) == (3, path)


def test_a_file_lies_beside_the_recipe_or_here(project: Path) -> None:
    (project / "recipes").mkdir()
    (project / "recipes" / "net.py").write_text("def build():\n    pass\n", "utf-8")
    found = code.find("net.py:build", Path("recipes"))
    assert (found.file, found.name) == (project / "recipes" / "net.py", "net:build")
    with pytest.raises(NotFoundError, match=r"there is no file net\.py"):
        code.find("net.py:build", Path())


def test_equal_names_in_two_places_are_two_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for width in (2, 3):
        place = tmp_path / str(width)
        place.mkdir()
        text = f"import torch\ndef build():\n    return torch.nn.Linear({width}, 1)\n"
        (place / "twice_under_test.py").write_text(text, "utf-8")
        for source in ("twice_under_test:build", "twice_under_test.py:build"):
            assert code.make(code.find(source, place), {}).in_features == width


def test_random_weights_are_the_same_each_time_and_leave_the_generator_alone(project: Path) -> None:
    torch.manual_seed(7)
    state = torch.random.get_rng_state()
    first, second = (
        code.make(code.find("kit_under_test.nets.small:build", Path()), {}).weight for _ in range(2)
    )
    assert torch.equal(first, second)
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize("source", ["kit_under_test.absent:build", "no_such_module:build", "sys:exit"])
def test_a_module_that_is_not_there(project: Path, source: str) -> None:
    with pytest.raises(NotFoundError, match="there is no Python module"):
        code.find(source, Path())


@pytest.mark.parametrize("source", ["net", "a b:build", "../net:build"])
def test_a_text_that_names_none(source: str) -> None:
    with pytest.raises(InputError, match="is not a factory"):
        code.find(source, Path())


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
    ],
)  # fmt: skip
def test_a_factory_that_makes_none(tmp_path: Path, body: str, error: type[Exception], message: str) -> None:
    (tmp_path / "f.py").write_text(body, "utf-8")
    with pytest.raises(error, match=message):
        code.make(code.find("f.py:build", tmp_path), {})


def test_code_that_the_digest_does_not_cover_is_refused(tmp_path: Path) -> None:
    (tmp_path / "layers_under_test.py").write_text("import torch\nlayer = torch.nn.ReLU\n", "utf-8")
    (tmp_path / "net.py").write_text(
        "from layers_under_test import layer\ndef build():\n    return layer()\n", "utf-8"
    )
    for _ in range(2):
        with pytest.raises(
            InputError, match=r"net\.py imports layers_under_test\.py, which its digest does not cover"
        ):
            code.make(code.find("net.py:build", tmp_path), {})


def test_code_of_another_place_is_refused_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "helper_under_test.py").write_text("WIDTH = 3\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path / "lib")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "net.py").write_text(
        "import torch\nfrom helper_under_test import WIDTH\n"
        "def build():\n    return torch.nn.Linear(WIDTH, 1)\n",
        "utf-8",
    )
    with pytest.raises(InputError, match=r"net\.py imports helper_under_test\.py, which its digest does not"):
        code.make(code.find("net.py:build", tmp_path / "here"), {})


def test_installed_packages_that_are_imported_are_known(project: Path) -> None:
    text = "import torch.nn as nn, json\nfrom numpy.random import default_rng\nfrom . import parts\n"
    (project / "kit_under_test" / "parts.py").write_text(text, "utf-8")
    assert code.find("kit_under_test.nets.small:build", Path()).packages == ("numpy", "torch")
    (project / "kit_under_test" / "parts.py").write_text("def (:\n", "utf-8")
    assert code.find("kit_under_test.nets.small:build", Path()).packages == ("torch",)


def test_a_module_that_was_edited_is_imported_anew_and_leaves_nothing_beside_it(project: Path) -> None:
    source = "kit_under_test.nets.small:build"
    for width in (2, 3):
        text = f"import torch\ndef part(_):\n    return torch.nn.Linear({width}, 1)\n"
        (project / "kit_under_test" / "parts.py").write_text(text, "utf-8")
        assert code.make(code.find(source, Path()), {}).in_features == width
    assert list(project.rglob("__pycache__")) == []


def test_prints_of_a_factory_go_to_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "f.py").write_text(
        "import torch\ndef build():\n    print('building')\n    return torch.nn.ReLU()\n", "utf-8"
    )
    code.make(code.find("f.py:build", tmp_path), {})
    assert capsys.readouterr() == ("", "building\n")


@pytest.mark.parametrize(
    "text",
    [
        "def build():\n    pass\nfrom os import system as build\n",
        "import os, functools\nbuild = functools.partial(os.system, 'touch ran')\n",
        "from logging.config import ThreadingTCPServer as build\n",
    ],
)
def test_a_function_of_another_module_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "net.py").write_text(text, "utf-8")
    with pytest.raises(InputError, match=r"net\.py does not define build: it is of"):
        code.make(code.find("net.py:build", tmp_path), {})
    with pytest.raises(InputError, match=r"tarfile does not define bltn_open: it is of _?io"):
        code.make(code.find("tarfile:bltn_open", Path()), {})
