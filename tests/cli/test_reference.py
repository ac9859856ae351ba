"""The reference page is what the code says."""

import re
from pathlib import Path

import pytest

from onnxreg.cli import reference
from onnxreg.cli.reference import ENVIRONMENT, cli_page, commands, describe, root

REPOSITORY = Path(__file__).parents[2]
CODE = ("cli", "converters", "registry", "schema")


def test_nothing_is_stale() -> None:
    assert not reference.is_stale(), "run `make generate`"


def test_a_page_that_was_edited_is_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "PAGE", tmp_path / "cli.md")
    assert reference.is_stale()
    (tmp_path / "cli.md").write_text(cli_page() + "more")
    assert reference.is_stale()


def test_every_verb_and_option_is_on_the_page() -> None:
    page = cli_page()
    assert [verb.name for verb in describe()] and {verb.name for verb in describe()} == set(
        dict(commands(root()))
    )
    for verb in describe():
        assert f"### reg {verb.name}\n" in page
        for parameter in (*verb.arguments, *verb.options):
            assert parameter.name == "--json" or f"- `{parameter.name}`" in page


def test_every_variable_is_explained() -> None:
    files = [file for name in CODE for file in (REPOSITORY / name).rglob("*.py")]
    text = "".join(file.read_text("utf-8") for file in files if file.name != "environment.py")
    read = set(re.findall(r'"(REG_[A-Z_]+[A-Z])"', text)) | {"REG_TOKEN_HOST", "NO_COLOR"}
    assert read == set(ENVIRONMENT)
