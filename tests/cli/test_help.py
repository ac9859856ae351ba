"""Help: every verb explains itself, and its examples are command lines that parse."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.docs.grammar import ROOT, parse

from onnxreg.cli.app import GROUPS, VERBS, folded
from onnxreg.cli.reference import commands, examples
from onnxreg.registry import Registry

Reg = Callable[..., Any]


COMMANDS = dict(commands(ROOT))
OTHER_SHELLS = [pytest.param(name, marks=pytest.mark.more) for name in ("zsh", "fish")]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_verb_has_help_and_examples_that_parse(name: str, reg: Reg) -> None:
    command = COMMANDS[name]
    assert command.help
    assert examples(command)
    for line in examples(command):
        words = shlex.split(line.partition(" > ")[0])
        assert words[0] == "reg"
        assert parse(words[1:]) is command
    shown = reg(*name.split(), "--help")
    assert shown.status == 0
    assert f"Usage: reg {name} " in shown.out
    assert f"$ {examples(command)[0]}" in " ".join(shown.out.replace("\\\n", "").split())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_and_argument_is_explained(name: str) -> None:
    for parameter in COMMANDS[name].params:
        assert parameter.help, parameter.name


def test_the_first_help_is_one_screen_with_every_verb(reg: Reg) -> None:
    shown = reg("--help").out
    assert reg().out == shown == reg("help").out
    assert len(shown.splitlines()) <= 28
    assert set(ROOT.commands) == set(VERBS) <= set(shown.split())
    assert all(len(verb.summary) <= 60 for verb in VERBS.values())


@pytest.mark.parametrize("group", GROUPS)
def test_help_of_a_group_explains_its_verbs(group: str, reg: Reg) -> None:
    lines = reg("help", group.lower()).out.splitlines()
    assert [line.split()[0] for line in lines] == list(GROUPS[group])
    assert reg("help", "push").out == reg("push", "--help").out


def test_help_fits_80_columns(monkeypatch: pytest.MonkeyPatch, reg: Reg) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for words in ([], *(name.split() for name in COMMANDS)):
        assert max(map(len, reg(*words, "--help").out.splitlines())) <= 80, words


def test_paragraphs_flow(reg: Reg) -> None:
    """No line of a paragraph ends while the next word would have fitted."""
    for name in COMMANDS:
        prose = reg(*name.split(), "--help").out.partition("Options:")[0].partition("Arguments:")[0]
        for line, below in pairwise(prose.splitlines()[2:]):
            if line.strip() and below.strip():
                assert len(line.rstrip()) + 1 + len(below.split()[0]) > 78, (name, line)


def test_brackets_are_shown(reg: Reg) -> None:
    assert "NAME[:TAG][@sha256:...]" in reg("push", "--help").out
    assert "[{name, version, manifest," in " ".join(reg("query", "--help").out.split())
    assert "[@sha256:...]" in reg("pull", "--help").out


def test_an_example_that_is_too_long_can_still_be_copied() -> None:
    example = "$ reg query --where 'opset <= 18 and not yanked' --format onnx-int8 --remote origin"
    lines = folded(example, 40).splitlines()
    assert lines == [
        "$ reg query \\",
        "      --where 'opset <= 18 and not yanked' \\",
        "      --format onnx-int8 --remote origin",
    ]


def completing(home: Path, **more: str) -> str:
    """What `reg` answers to a shell that asks."""
    command = [sys.executable, "-c", "from onnxreg.cli.main import main; main([])"]
    environment = {**os.environ, "REG_HOME": str(home), **more}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return done.stdout


@pytest.mark.more
@pytest.mark.parametrize("shell", ["bash", *OTHER_SHELLS])
def test_the_shell_completes_verbs_and_models(shell: str, home: Path) -> None:
    def complete(line: str) -> str:
        if shell == "bash":
            asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
        else:
            asked = {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
        return completing(home, _REG_COMPLETE=f"complete_{shell}", **asked)

    assert "pull" in complete("reg pu") and "push" in complete("reg pu")
    assert "acme/pii" in complete("reg show ac")
    assert "tiny" in complete("reg ls t")
    assert "acme/pii" in complete(f"reg --registry {home} show ac")


def test_the_shell_completes_tags_channels_and_remotes(home: Path) -> None:
    def complete(line: str) -> list[str]:
        asked = {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
        words = completing(home, _REG_COMPLETE="complete_fish", **asked)
        return [each.partition("\t")[0] for each in words.split()]

    Registry(home).remotes.add("origin", str(home.parent / "share"))
    for line, found in {
        "resolve acme/pii:": ["acme/pii:stable", "acme/pii:0.2.0", "acme/pii:0.1.0"],
        "resolve acme/pii:s": ["acme/pii:stable"],
        "pull acme/pii:0.2": ["acme/pii:0.2.0"],
        "ls --remote ": ["origin"],
        "push acme/pii ": ["origin"],
        "pull acme/pii:stable or": ["origin"],
        "tag acme/pii ": ["stable"],
    }.items():
        assert complete(f"reg {line}") == found


def test_ctrl_c_while_a_shell_asks_is_silent(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import onnxreg.cli.main as m\ndef f(*a, **k): raise KeyboardInterrupt\nm._dispatch = f\nm.main()"
    environment = {**os.environ, "REG_HOME": str(home), "_REG_COMPLETE": "complete_bash"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.parametrize("shell", ["bash", *OTHER_SHELLS])
def test_completion_scripts_are_valid(shell: str, home: Path, tmp_path: Path) -> None:
    script = tmp_path / "completion"
    script.write_text(completing(home, _REG_COMPLETE=f"source_{shell}"))
    assert "complete" in script.read_text()
    if program := shutil.which(shell):
        subprocess.run([program, "-n", script], check=True)


BASH = (
    'COMP_WORDS=({}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _reg_completion reg; echo "${{COMPREPLY[@]}}"'
)
ASKED = [
    ("bash", BASH.format("reg show ac"), "acme/pii"),
    ("fish", "complete -C 'reg show ac'", "acme/pii"),
    ("fish", "complete -C 'reg show acme/pii:0.2'", "acme/pii:0.2.0"),
]
"""How a shell is asked what it would complete, and that. zsh has no such way without a terminal."""


@pytest.mark.parametrize(
    ("shell", "asked", "told"),
    [ASKED[0], *(pytest.param(*each, marks=pytest.mark.more) for each in ASKED[1:])],
)
def test_the_shell_itself_completes(shell: str, asked: str, told: str, home: Path, tmp_path: Path) -> None:
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
    assert done.stdout.split() == told.split(), done
