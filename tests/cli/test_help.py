"""Help: every verb explains itself, and its examples are command lines that parse."""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer

from onnxreg.cli.app import OTHERS, PANELS, build
from onnxreg.cli.helping import folded

Reg = Callable[..., Any]
ROOT: Any = typer.main.get_command(build())


def commands(group: Any = ROOT, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


COMMANDS = dict(commands())


def examples(command: Any) -> list[str]:
    return [line[2:] for line in command.epilog.split("\n\n") if line.startswith("$ ")]


def parse(words: list[str]) -> Any:
    """The command that the words name, once all of them were accepted."""
    group, context = ROOT, ROOT.make_context("reg", words)
    while hasattr(group, "commands"):
        rest = [*context._protected_args, *context.args]
        name, group, rest = group.resolve_command(context, rest)
        context = group.make_context(name, rest, parent=context)
    return group


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


def test_help_groups_the_verbs_by_task(reg: Reg) -> None:
    shown = reg("--help").out
    assert reg().out == shown
    for panel in (*PANELS, OTHERS):
        assert f"─ {panel} ─" in shown
    for name in ROOT.commands:
        assert f"│ {name} " in shown


def test_help_fits_80_columns(monkeypatch: pytest.MonkeyPatch, reg: Reg) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for words in ([], *(name.split() for name in COMMANDS)):
        assert max(map(len, reg(*words, "--help").out.splitlines())) <= 80


@pytest.mark.parametrize("width", [80, 120])
def test_paragraphs_flow(width: int, monkeypatch: pytest.MonkeyPatch, reg: Reg) -> None:
    """No line of a paragraph ends while the next word would have fitted."""
    monkeypatch.setenv("COLUMNS", str(width))
    for name in COMMANDS:
        prose = reg(*name.split(), "--help").out.partition("╭")[0].splitlines()
        for line, below in pairwise(prose):
            if line.strip() and below.strip():
                assert len(line.rstrip()) + 1 + len(below.split()[0]) > width - 1, (name, line)


def test_what_stands_in_brackets_is_shown(reg: Reg) -> None:
    assert "benchmarks: [document]" in reg("show", "--help").out
    assert "[@sha256:...]" in reg("pull", "--help").out


def test_an_example_that_is_too_long_can_still_be_copied() -> None:
    example = "$ reg query --where 'opset <= 18 and not yanked' --format onnx-int8 --remote origin"
    lines = folded(example, 40).splitlines()
    assert lines == [
        "$ reg query \\",
        "      --where 'opset <= 18 and not yanked' \\",
        "      --format onnx-int8 --remote origin",
    ]


def test_the_shell_completes_verbs_and_models(home: Path) -> None:
    def complete(line: str) -> list[str]:
        environment = {
            **os.environ,
            "_REG_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split(" ")) - 1),
            "REG_HOME": str(home),
        }
        command = [sys.executable, "-c", "from onnxreg.cli.main import main; main([])"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        return done.stdout.split()

    assert {"pull", "push"} <= set(complete("reg pu"))
    assert complete("reg show ac") == ["acme/pii"]
    assert complete("reg ls t") == ["tiny"]
