"""Start-up: a verb imports its own module and no other verb, and the reading verbs import no heavy package."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.sampling import sampled

from onnxreg.cli.app import VERBS

HEAVY = (
    "numpy",
    "pydantic",
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


@pytest.mark.parametrize(
    "words",
    sampled(
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
            ["builtin", "devices"],
            ["rollout", "status", "acme/pii"],
        ],
        3,
    ),
)
def test_reading_verbs_import_nothing_heavy(words: list[str], home: Path) -> None:
    """Also at the first contact with a model, when its log is replayed; the first list locks what it keeps."""
    assert loaded(words, home) & set(HEAVY) <= {"filelock"}
    assert not loaded(words, home) & set(HEAVY)


@pytest.mark.parametrize(
    "words",
    sampled(
        [
            ["query"],
            ["query", "certified"],
            ["ls", "acme/*", "--format", "onnx-int8"],
            ["remote", "list"],
            ["doctor"],
        ],
        3,
    ),
)
def test_verbs_that_validate_no_document_need_no_pydantic(words: list[str], home: Path) -> None:
    """The first query reads manifests, whose figures it keeps."""
    loaded(words, home)
    assert not loaded(words, home) & {"pydantic", "numpy", "onnx"}


def test_a_stock_device_needs_no_reader_of_operators(home: Path) -> None:
    words = ["resolve", "acme/pii", "--device", "ort-desktop-1.23", "--json"]
    loaded(words, home)
    assert "onnxreg.schema.manifest.operators" not in loaded(words, home)


@pytest.mark.parametrize("words", [["tag", "tiny", "edge"], ["push", "tiny", "./there"], ["key", "list"]])
def test_a_verb_loads_no_other_verb(words: list[str], home: Path, tmp_path: Path) -> None:
    found = loaded([*words[:2], str(tmp_path / "there")] if words[0] == "push" else words, home)
    verbs = {name for name in found if name.startswith("onnxreg.cli.commands.")}
    assert verbs == {f"onnxreg.cli.commands.{VERBS[words[0]].module}"}


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
    "onnxreg.registry.trust.signatures",
    "onnxreg.registry.gates.enforce",
    "onnxreg.schema.gates.rule",
)


def test_a_trust_file_that_demands_nothing_of_a_model_costs_its_reading(home: Path, own_user: Path) -> None:
    words = ["resolve", "acme/pii:stable", "--json"]
    loaded(words, home)
    own_user.mkdir(parents=True, exist_ok=True)
    (own_user / "trust").write_text('[[require]]\nmodels = ["other/*"]\nlines = true\nversions = true\n')
    assert not loaded(words, home) & {*HEAVY, *JUDGES} - {"tomllib"}


def test_a_channel_of_a_registry_without_policy_loads_no_gate(home: Path) -> None:
    words = ["resolve", "acme/pii:stable", "--json"]
    loaded(words, home)
    assert not loaded(words, home) & set(JUDGES)


def test_a_process_of_its_own_says_the_same(reg: Callable[..., Any], home: Path) -> None:
    words = [sys.executable, "-m", "onnxreg.cli", "--registry", str(home), "ls", "--json"]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, reg(*words[3:]).out, "")
