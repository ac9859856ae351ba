"""Runs a page's commands as its reader would, and says where page and program disagree."""

import doctest
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from onnxreg.cli.main import main
from support.docs import given
from support.docs.grammar import parse
from support.docs.pages import Block, Command, blocks, invocations, is_plain, steps

RELEASE = {"GITHUB_REF_NAME": "v1.1.0", "GITHUB_RUN_ID": "1"}
"""What a workflow finds that a pushed tag has started."""
SHOWN = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def check_words(where: str, text: str) -> None:
    """Every `reg` of a command line has verbs, options and arguments that there are."""
    for words in invocations(text):
        try:
            parse([word.replace("$VERSION", "1.1.0") for word in words])  # only a run of the page expands it
        except typer.Exit:  # --help, --version
            continue
        except Exception as error:
            raise AssertionError(f"{where}: {text}\n{error}") from error


class Shell:
    """A scratch directory in which a page's commands are run one after the other."""

    def __init__(self, world: given.World, capfd: pytest.CaptureFixture[str]) -> None:
        self.world = world
        self._capfd = capfd
        (world.scratch / "bin").mkdir()
        program = world.scratch / "bin" / "reg"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m onnxreg.cli "$@"\n')
        program.chmod(0o755)
        path = (program.parent, Path(sys.executable).parent, os.environ["PATH"])
        world.patch.setenv("PATH", os.pathsep.join(map(str, path)))
        world.patch.setenv("HOME", str(world.scratch))
        world.patch.setenv("REG_HOME", "home")
        world.patch.chdir(world.scratch)

    def play(self, page: Path, each: Callable[[Block], object] = lambda block: None) -> None:
        """All blocks of a page, in order; `each` is called with a block after it was run."""
        for block in blocks(page):
            for name in block.notes.get("given", "").replace(",", " ").split():
                getattr(given, name)(self.world)
            if block.file:
                path = self.world.scratch / block.file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text, "utf-8")
            if "not run" not in block.notes:
                for command in block.commands:
                    self._play(f"{page.name}:{command.line}", block, command)
                if block.language == "yaml":
                    self._play_steps(f"{page.name}:{block.line}", block)
            each(block)

    def _play_steps(self, where: str, block: Block) -> None:
        """Run the steps of a workflow as GitHub does; what is installed here already is not installed."""
        files = {name: self.world.scratch / name for name in ("GITHUB_ENV", "GITHUB_STEP_SUMMARY")}
        for step in steps(block.text):
            if step.script.startswith("pip install"):
                continue
            said = files["GITHUB_ENV"].read_text().split() if files["GITHUB_ENV"].is_file() else []
            told = dict(line.split("=", 1) for line in said)
            for name, value in {**RELEASE, **files, **step.environment, **told}.items():
                self.world.patch.setenv(name, self._here(str(value)))
            self._play(where, block, Command(block.line, step.script))

    def _play(self, where: str, block: Block, command: Command) -> None:
        """Run one command and compare its output, in which a line `...` stands for any lines, or none."""
        status, out, err = self.run(command.text)
        shown = f"{where}: {command.text}\nexit status {status}\n{out}{err}"
        fails = any(line.startswith("error:") for line in command.output.splitlines())
        assert (status != 0) == fails, shown
        if command.output and "output differs" not in block.notes:
            checker = doctest.OutputChecker()
            wanted = re.sub(r"\s*^\.\.\.$\s*", "...", command.output, flags=re.MULTILINE)
            assert any(
                checker.check_output(wanted, self._as_documented(got), SHOWN)
                for got in (out + err, err + out)
            ), f"{shown}\nbut the page says\n{command.output}"

    def run(self, text: str) -> tuple[int, str, str]:
        """Exit status and output of one command line: in this process, unless a shell is needed for it."""
        text = self._here(text)
        if is_plain(text):
            self._capfd.readouterr()
            status = main(shlex.split(text, comments=True)[1:])
            return (status, *self._capfd.readouterr())
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", text], capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout, done.stderr

    def _here(self, text: str) -> str:
        """A text with the places on this machine in it, in place of those that the page speaks of."""
        for documented, actual in self.world.places.items():
            text = text.replace(documented, actual)
        return text

    def _as_documented(self, text: str) -> str:
        for documented, actual in self.world.places.items():
            text = text.replace(actual, documented)
        return text
