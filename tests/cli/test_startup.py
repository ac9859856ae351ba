"""Start-up: a verb imports its own module and no other verb, and the reading verbs import no heavy package."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.sampling import sampled

from onnxreg.cli.app import VERBS

HEAVY = {
    *("numpy", "pydantic", "rich", "filelock", "torch", "onnx", "onnxruntime", "transformers", "rfc8785"),
    *("cryptography", "platformdirs", "tomllib"),
}
VALIDATING = {"pydantic", "numpy", "onnx"}
JUDGES = {"onnxreg.registry.trust.signatures", "onnxreg.registry.gates", "onnxreg.schema.gates.rule"}
FILTERS = "--max-size 1MB --where opset<99 --min-recall NAME=0.9"


def loaded(words: str, home: Path) -> set[str]:
    """The packages and the modules of onnxreg that a call in a process of its own has loaded."""
    code = f"import sys; from onnxreg.cli.main import main; main({words.split()!r}); print(*sys.modules, file=sys.stderr)"
    environment = {**os.environ, "REG_HOME": str(home)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    modules = done.stderr.split()
    assert done.stdout and "onnxreg.cli.main" in modules
    return {name if name.startswith("onnxreg.") else name.partition(".")[0] for name in modules}


READING = [
    *("--version", "ls", "ls acme/pii", "resolve acme/pii --json", f"resolve acme/pii {FILTERS} --json"),
    *("resolve acme/pii --device ort-desktop-1.23 --json", "builtin devices", "rollout status acme/pii"),
]


@pytest.mark.parametrize("words", sampled(READING, 3))
def test_reading_verbs_import_nothing_heavy(words, home):
    """Also at the first contact with a model, when its log is replayed; the first list locks what it keeps."""
    assert loaded(words, home) & HEAVY <= {"filelock"}
    assert not loaded(words, home) & HEAVY


@pytest.mark.parametrize(
    ("words", "never"),
    [
        ("query", VALIDATING),
        *(
            pytest.param(words, VALIDATING, marks=pytest.mark.more)
            for words in ("query certified", "ls acme/* --format onnx-int8", "remote list", "doctor")
        ),
        ("resolve acme/pii --device ort-desktop-1.23 --json", {"onnxreg.schema.manifest.operators"}),
        ("resolve acme/pii:stable --json", JUDGES),
        ("resolve acme/pii:stable --json", {*HEAVY, *JUDGES} - {"tomllib"}),
    ],
)
def test_a_verb_needs_only_what_it_uses(words, never, home, own_user):
    """The first call may keep something. The last one has a trust file that demands nothing of the model."""
    loaded(words, home)
    if "onnx" in never and never > JUDGES:
        own_user.mkdir(parents=True, exist_ok=True)
        (own_user / "trust").write_text('[[require]]\nmodels = ["other/*"]\nlines = true\nversions = true\n')
    assert not loaded(words, home) & never


@pytest.mark.parametrize("words", ["tag tiny edge", "push tiny ./there", "key list"])
def test_a_verb_loads_no_other_verb(words, home):
    verbs = {name for name in loaded(words, home) if name.startswith("onnxreg.cli.commands.")}
    assert verbs == {f"onnxreg.cli.commands.{VERBS[words.split()[0]].module}"}


def test_a_process_of_its_own_says_the_same(reg, home):
    words = [sys.executable, "-m", "onnxreg.cli", "--registry", str(home), "ls", "--json"]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, reg(*words[3:]).out, "")
