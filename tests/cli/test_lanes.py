"""The fast lane and typer's: same words, same bytes, same exit status; and the fast one loads nothing heavy."""

import os
import subprocess
import sys
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import typer

from onnxreg.cli import fast
from onnxreg.cli.app import GROUPS, MODULES, PANELS, build
from onnxreg.registry import Registry
from onnxreg.schema.gates.policy import read_policy

REPOSITORY = Path(__file__).parents[2]
HEAVY = (
    "pydantic",
    "typer",
    "rich",
    "filelock",
    "torch",
    "onnx",
    "onnxruntime",
    "transformers",
    "rfc8785",
    "cryptography",
    "platformdirs",
    "tomllib",
)
COMMON = (
    ["--version"],
    ["ls"],
    ["ls", "--json"],
    ["ls", "acme/pii"],
    ["ls", "acme/pii", "--json"],
    ["ls", "--json", "tiny"],
    ["ls", "nobody"],
    ["ls", "Not A Name", "--json"],
    ["--quiet", "ls"],
    ["--quiet", "ls", "--json"],
    ["resolve", "acme/pii"],
    ["resolve", "acme/pii:stable", "--json"],
    ["resolve", "acme/pii", "--format", "onnx-int8"],
    ["resolve", "--format", "ort", "--format", "onnx-int8", "acme/pii", "--json"],
    ["resolve", "acme/pii", "--precision", "int8"],
    ["resolve", "acme/pii", "--precision", "int4"],
    ["resolve", "acme/pii", "--remote", "./home", "--json"],
    ["resolve", "acme/pii", "--remote", "nowhere", "--json"],
    ["resolve", "acme/pii@sha256:12"],
    ["resolve", "acme/pii", "--certified", "--json"],
    ["resolve", "acme/pii", "--max-size", "1MB", "--min-recall", "NAME=0.9", "--explain"],
    ["resolve", "acme/pii", "--where", "opset = 18", "--verify"],
    ["resolve", "acme/pii", "--where", "opset ="],
    ["resolve", "acme/pii", "--device", "ort-web-1.23", "--json"],
    ["resolve", "acme/pii", "--device", "ort-web-0.1"],
)
UNCOMMON = (
    [],
    ["--help"],
    ["ls", "--help"],
    ["ls", "--jsn"],
    ["ls", "a", "b"],
    ["ls", ""],
    ["ls", "--", "a"],
    ["resolve"],
    ["resolve", "--json"],
    ["resolve", "a", "--format"],
    ["resolve", "a", "--format", "--json"],
    ["resolve", "a", "--format=onnx"],
    ["resolve", "a", "--precision", ""],
    ["export", "a", "--opset", "x"],
    ["export", "a", "--opset", "-1"],
    ["export", "a", "--opset"],
    ["show", "a"],
    ["--registry"],
    ["--registry", "ls"],
    ["--quiet"],
    ["--version", "ls"],
)


def command_of(verb: str) -> Any:
    root: Any = typer.main.get_command(build())
    return root.commands[verb] if verb else root


@pytest.mark.parametrize("verb", ["", *fast.VERBS])
def test_the_fast_table_is_a_part_of_the_typer_command(verb: str) -> None:
    options = {name: option for option in command_of(verb).params for name in option.opts}
    for name, (parameter, kind) in (fast.VERBS[verb] if verb else fast.GLOBALS).items():
        assert options[name].name == parameter
        assert getattr(options[name], "is_flag", False) == (kind == fast.FLAG)
        assert options[name].multiple == (kind == fast.LIST)
        assert (options[name].type_descriptor.annotation is int) == (kind == fast.NUMBER)


@pytest.mark.parametrize("verb", fast.VERBS)
def test_the_one_argument_is_that_of_the_typer_command(verb: str) -> None:
    (argument,) = [item for item in command_of(verb).params if item.param_type_name == "argument"]
    assert argument.name == fast.ARGUMENTS[verb]
    assert argument.required == (argument.name in fast.REQUIRED)


@pytest.mark.parametrize("words", COMMON, ids=" ".join)
def test_both_lanes_say_the_same(
    words: list[str], reg: Callable[..., Any], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if words != ["--version"]:
        words = ["--registry", str(home), *words]
        assert fast.parse(words) is not None
    quick = reg(*words)
    monkeypatch.setattr(fast, "parse", lambda words: None)
    assert reg(*words) == quick
    assert quick.out or quick.err or "--quiet" in words


@pytest.mark.parametrize("words", UNCOMMON, ids=" ".join)
def test_whatever_is_not_recognised_goes_to_typer(words: list[str]) -> None:
    assert fast.parse(words) is None


@pytest.mark.parametrize(
    "words",
    [
        ["--version"],
        ["ls"],
        ["ls", "acme/pii"],
        ["resolve", "acme/pii", "--json"],
        [
            "resolve",
            "acme/pii",
            "--max-size",
            "1MB",
            "--where",
            "not yanked",
            "--min-recall",
            "NAME=0.9",
            "--json",
        ],
        ["resolve", "acme/pii", "--device", "ort-desktop-1.23", "--json"],
    ],
)
def test_the_fast_lane_loads_nothing_heavy(words: list[str], home: Path) -> None:
    """Also at the first contact with a model, when its log is replayed."""
    assert not loaded(words, home) & set(HEAVY)
    assert not loaded(words, home) & set(HEAVY)


@pytest.mark.parametrize("words", [["tag", "tiny", "edge"], ["push", "tiny", "./there"], ["key", "list"]])
def test_a_verb_loads_no_other_verb(words: list[str], home: Path, tmp_path: Path) -> None:
    found = loaded([*words[:2], str(tmp_path / "there")] if words[0] == "push" else words, home)
    verbs = {
        f"onnxreg.cli.commands.{MODULES.get(verb, verb)}" for verb in (*GROUPS, *chain(*PANELS.values()))
    }
    assert found & verbs == {f"onnxreg.cli.commands.{words[0]}"}


@pytest.mark.parametrize("words", [["--quiet", "push", "--help"], ["--registry", "x", "push", "--help"]])
def test_options_before_the_verb(words: list[str], reg: Callable[..., Any]) -> None:
    assert reg(*words) == reg("push", "--help")


def loaded(words: list[str], home: Path) -> set[str]:
    """The packages and the modules of onnxreg that a call in a process of its own has loaded."""
    code = f"import sys; from onnxreg.cli.main import main; main({words!r}); print(*sys.modules, file=sys.stderr)"
    environment = {**os.environ, "REG_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout
    modules = done.stderr.split()
    assert "onnxreg.cli.main" in modules
    return {name if name.startswith("onnxreg.") else name.partition(".")[0] for name in modules}


JUDGES = (
    "onnxreg.registry.trust.requirements",
    "onnxreg.registry.gates.enforce",
    "onnxreg.registry.log.ledger",
)


def test_a_trust_file_that_demands_nothing_of_a_model_costs_its_reading(home: Path, own_user: Path) -> None:
    words = ["resolve", "acme/pii:stable", "--json"]
    loaded(words, home)
    own_user.mkdir(parents=True, exist_ok=True)
    (own_user / "trust").write_text('[[require]]\nmodels = ["other/*"]\nlines = true\nversions = true\n')
    assert not loaded(words, home) & {*HEAVY, *JUDGES} - {"tomllib"}


def test_a_policy_of_other_channels_costs_its_reading(home: Path) -> None:
    registry = Registry(home)
    words = ["resolve", "acme/pii:stable", "--json"]
    loaded(words, home)
    for rule in ('channel = "beta"', 'channel = "stable"\nmodels = ["other/*"]'):
        registry.set_policy(read_policy(f"[[rule]]\n{rule}\nbreaking = false\n".encode(), "policy"))
        assert not loaded(words, home) & {*HEAVY, *JUDGES}


def test_a_process_of_its_own_says_the_same(reg: Callable[..., Any], home: Path) -> None:
    words = [sys.executable, "-m", "onnxreg.cli", "--registry", str(home), "ls", "--json"]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, reg(*words[3:]).out, "")
