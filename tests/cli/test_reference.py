"""The reference pages are what the code says, and the man page is one that roff takes as it is."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from onnxreg.cli.reference.__main__ import DOCS, PAGES, stale
from onnxreg.cli.reference.pages import cli_page, man_page
from onnxreg.cli.reference.verbs import ENVIRONMENT, commands, describe, root

REPOSITORY = Path(__file__).parents[2]
CODE = ("cli", "converters", "registry", "schema")


def test_nothing_is_stale() -> None:
    assert stale() == [], "run `make generate`"


def test_a_page_that_was_edited_is_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PAGES, "cli.md", lambda: cli_page() + "more")
    assert stale() == ["cli.md"]


def test_every_verb_and_option_is_on_both_pages() -> None:
    page, sheet = cli_page(), man_page().replace("\\-", "-")
    assert [verb.name for verb in describe()] and {verb.name for verb in describe()} == set(
        dict(commands(root()))
    )
    for verb in describe():
        assert f"### reg {verb.name}\n" in page
        for parameter in (*verb.arguments, *verb.options):
            assert parameter.name == "--json" or f"- `{parameter.name}`" in page
            assert f".B {parameter.name}" in sheet
        for line in verb.examples:
            assert line.replace("'", "\\(aq") in sheet


def test_every_variable_is_explained() -> None:
    files = [file for name in CODE for file in (REPOSITORY / name).rglob("*.py")]
    text = "".join(file.read_text("utf-8") for file in files if file.name != "environment.py")
    read = set(re.findall(r'"(REG_[A-Z_]+[A-Z])"', text)) | {"REG_TOKEN_HOST", "NO_COLOR"}
    assert read == set(ENVIRONMENT)


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_roff_takes_the_man_page_without_a_warning() -> None:
    command = ["groff", "-man", "-ww", "-Tutf8", DOCS / "reg.1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    shown = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", done.stdout)
    for heading in ("SYNOPSIS", "EVERY DAY", "EXIT STATUS", "ENVIRONMENT"):
        assert f"\n{heading}\n" in shown
