"""Help: every verb explains itself, and its examples are command lines that parse; the pages are what the code says."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.docs.grammar import ROOT, parse
from support.sampling import sampled

from onnxreg.cli import reference
from onnxreg.cli.app import GROUPS, VERBS
from onnxreg.cli.reference import ENVIRONMENT, cli_page, commands, name_of
from onnxreg.converters.tasks import task_catalog
from onnxreg.schema.inputs.recipe_file import RecipeFile, RecipeOutput, RecipeStep

REPOSITORY = Path(__file__).parents[2]
RECIPES = (REPOSITORY / "docs" / "recipes.md").read_text("utf-8")
COMMANDS = dict(commands(ROOT))
OTHER_SHELLS = [pytest.param(name, marks=pytest.mark.more) for name in ("zsh", "fish")]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_verb_has_help_and_examples_that_parse(name, reg, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    command = COMMANDS[name]
    examples = command.epilog.splitlines()
    assert command.help and examples
    assert [parameter.name for parameter in command.params if not parameter.help] == []
    for line in examples:
        words = shlex.split(line.partition(" > ")[0])
        assert words[0] == "reg" and parse(words[1:]) is command
    shown = reg(*name.split(), "--help")
    assert shown.ended(0, f"Usage: reg {name} ") and max(map(len, shown.out.splitlines())) <= 80
    assert f"$ {examples[0]}" in " ".join(shown.out.replace("\\\n", "").split())


def test_the_first_help_is_one_screen_with_every_verb(reg):
    shown = reg("--help").out
    assert reg().out == shown == reg("help").out
    assert len(shown.splitlines()) <= 28 and max(map(len, shown.splitlines())) <= 80
    assert set(ROOT.commands) == set(VERBS) <= set(shown.split())
    for group, verbs in GROUPS.items():
        lines = reg("help", group.lower()).out.splitlines()
        assert [line.split()[0] for line in lines] == list(verbs)
    push = reg("push", "--help")
    assert "NAME[:TAG][@sha256:...]" in push.out
    for words in (["help", "push"], ["--quiet", "push", "--help"], ["--registry", "x", "push", "--help"]):
        assert reg(*words) == push


# Pages


def test_the_reference_page_is_what_the_code_says(tmp_path, monkeypatch):
    assert not reference.is_stale(), "run `make generate`"
    page = cli_page()
    for name, command in COMMANDS.items():
        assert f"### reg {name}\n" in page
        for parameter in command.params:
            assert "--json" in parameter.opts or f"- `{name_of(parameter)}`" in page
    monkeypatch.setattr(reference, "PAGE", tmp_path / "cli.md")
    assert reference.is_stale()
    (tmp_path / "cli.md").write_text(page + "more")
    assert reference.is_stale()


def test_every_variable_is_explained():
    tops = ("cli", "converters", "registry", "schema")
    files = [file for top in tops for file in (REPOSITORY / top).rglob("*.py") if file.name != "system.py"]
    text = "".join(file.read_text("utf-8") for file in files)
    read = set(re.findall(r'"(REG_[A-Z_]+[A-Z])"', text)) | {"REG_TOKEN_HOST", "NO_COLOR"}
    assert read == set(ENVIRONMENT)


@pytest.mark.parametrize("task", task_catalog.TASKS)
def test_every_task_and_option_is_listed(task):
    (row,) = [line for line in RECIPES.splitlines() if line.startswith(f"| `{task}` |")]
    assert [name for name in task_catalog.TASKS[task].Options.model_fields if f"`{name}`" not in row] == []


@pytest.mark.parametrize("model", [RecipeFile, RecipeStep, RecipeOutput])
def test_every_key_of_a_recipe_is_explained(model):
    for name, field in model.model_fields.items():
        assert f"`{field.alias or name}`" in RECIPES


# Completion


def completing(home: Path, **more: str) -> str:
    """What `reg` answers to a shell that asks."""
    command = [sys.executable, "-c", "from onnxreg.cli.main import main; main([])"]
    environment = {**os.environ, "REG_HOME": str(home), **more}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False).stdout


@pytest.mark.more
@pytest.mark.parametrize("shell", ["bash", *OTHER_SHELLS])
def test_a_shell_completes_verbs_and_models(shell, home):
    for line, found in {
        "reg pu": "push",
        "reg show ac": "acme/pii",
        f"reg --registry {home} ls t": "tiny",
    }.items():
        asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
        if shell != "bash":
            asked = {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
        assert found in completing(home, _REG_COMPLETE=f"complete_{shell}", **asked)


def test_ctrl_c_while_a_shell_asks_is_silent(home):
    code = "import onnxreg.cli.app as a, onnxreg.cli.main as m\ndef f(*_): raise KeyboardInterrupt\na.run_app = f\nm.main()"
    environment = {**os.environ, "REG_HOME": str(home), "_REG_COMPLETE": "complete_bash"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.parametrize("shell", ["bash", *OTHER_SHELLS])
def test_completion_scripts_are_valid(shell, home, tmp_path):
    script = tmp_path / "completion"
    script.write_text(completing(home, _REG_COMPLETE=f"source_{shell}"))
    assert "complete" in script.read_text()
    if program := shutil.which(shell):
        subprocess.run([program, "-n", script], check=True)


BASH = "COMP_WORDS=(reg show ac); COMP_CWORD=2; _reg_completion reg; echo ${COMPREPLY[@]}"
ASKED = {BASH: ("bash", "acme/pii"), "complete -C 'reg show ac'": ("fish", "acme/pii")}
"""How a shell is asked what it would complete, and that. zsh has no such way without a terminal."""


@pytest.mark.parametrize("asked", sampled(ASKED, len(ASKED)))
def test_the_shell_itself_completes(asked, home, tmp_path):
    shell, completion = ASKED[asked]
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "reg"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m onnxreg.cli "$@"\n')
    program.chmod(0o755)
    (tmp_path / "completion").write_text(completing(home, _REG_COMPLETE=f"source_{shell}"))
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "REG_HOME": str(home), "PATH": path, "HOME": str(tmp_path)}
    command = [shell, "-c", f". ./completion; {asked}"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == completion.split(), done


# Start-up: a verb imports its own module and no other verb, and the reading verbs import no heavy package

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


@pytest.mark.parametrize("words", sampled(READING, 4))
def test_reading_verbs_import_nothing_heavy(words, home):
    """Also at the first contact with a model, when its log is replayed; a list locks what it keeps of files that settled."""
    assert loaded(words, home) & HEAVY <= {"filelock"}
    assert loaded(words, home) & HEAVY <= ({"filelock"} if words == "ls" else set())


@pytest.mark.parametrize(
    ("words", "never"),
    [
        ("query", VALIDATING),
        *(
            pytest.param(words, VALIDATING, marks=pytest.mark.more)
            for words in ("query certified", "ls acme/* --format onnx-int8", "remote list", "doctor")
        ),
        ("resolve acme/pii --device ort-desktop-1.23 --json", {"onnxreg.schema.manifest.operators"}),
        pytest.param("resolve acme/pii:stable --json", JUDGES, marks=pytest.mark.more),
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


@pytest.mark.parametrize("words", sampled(["push tiny ./there", "tag tiny edge", "key list"], 3))
def test_a_verb_loads_no_other_verb(words, home):
    verbs = {name for name in loaded(words, home) if name.startswith("onnxreg.cli.commands.")}
    assert verbs == {f"onnxreg.cli.commands.{VERBS[words.split()[0]].module}"}


def test_a_process_of_its_own_says_the_same(reg, home):
    words = [sys.executable, "-m", "onnxreg.cli", "--registry", str(home), "ls", "--json"]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, reg(*words[3:]).out, "")
