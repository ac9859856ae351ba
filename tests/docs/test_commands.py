"""Every command of the documentation is run, every one is known to `reg`, and every link leads to a page and a heading of it."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from support.docs.grammar import ROOT
from support.docs.pages import COMMANDS, FENCE, PAGES, REPOSITORY, blocks, steps
from support.docs.shell import check_words

PROMPT = re.compile(r"^(\$ |reg )", re.MULTILINE)
INLINE = re.compile(r"`(reg [^`]+)`")


SLOW = {
    "archive.md", "delta.md", "howto-ci.md", "howto-remotes.md", "hub.md", "pipelines.md", "rebuild.md", "recipes.md", "tasks.md", "tutorial.md",
}  # fmt: skip
"""Pages that export several models, or start several servers."""


def pages_to_run() -> list[object]:
    found: list[object] = []
    for page in PAGES:
        notes = {note for block in blocks(page) if block.commands for note in block.notes}
        marks = [pytest.mark.large] if "large" in notes else [pytest.mark.more] if page.name in SLOW else []
        if any(block.commands and "not run" not in block.notes for block in blocks(page)):
            found.append(pytest.param(page, id=page.name, marks=marks))
    return found


# The client of the Hub hands its uploads to its HTTP library in a way that this one calls outdated.
@pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")
@pytest.mark.parametrize("page", pages_to_run())
def test_every_command_works(page, shell):
    shell.play(page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_is_one(page):
    for block in blocks(page):
        where = f"{page.name}:{block.line}"
        assert block.language, f"{where}: say what the block is: sh, console, text, ..."
        if block.language not in COMMANDS:
            assert not PROMPT.search(block.text), f"{where}: a command in a block of {block.language}"
        assert block.notes.get("not run") != "", f"{where}: say why it is not run"
        scripts = [step.script for step in steps(block.text)] if block.language == "yaml" else []
        for text in (*(command.text for command in block.commands), *scripts):
            check_words(where, text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_the_prose_exist(page):
    prose = FENCE.sub("", page.read_text("utf-8"))
    for words in (found.split() for found in INLINE.findall(prose)):
        command = ROOT
        rest = [word for word in words[1:] if not word.startswith("--registry")]
        while rest and rest[0].strip(",") in getattr(command, "commands", {}):
            command = command.commands[rest.pop(0).strip(",")]
        assert command is not ROOT or words[1] == "VERB" or words[1].startswith("-"), " ".join(words)
        known = {name for parameter in command.params for name in parameter.opts} | {"--help"}
        options = {word.partition("=")[0].strip("[],.") for word in rest if word.startswith("--")}
        assert options <= known or command is ROOT, f"{' '.join(words)}: {options - known}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```sh\nreg ls --nowhere\n```", "nowhere"),
        ("```sh\nreg lst\n```", "lst"),
        ("```console\n$ reg builtin schemas nothing\n```", "exit status 2"),
        ("```sh\nfalse\n```", "exit status 1"),
        ("```console\n$ reg builtin schemas\nmanifest-v9\n...\n```", "but the page says"),
        ("```console\n$ reg --version\nerror: none\n```", "exit status 0"),
        ("```\nreg ls\n```", "say what the block is"),
        ("```text\nreg ls\n```", "a command in a block of text"),
        ("<!-- not run -->\n```sh\nreg ls\n```", "say why"),
    ],
)
def test_a_page_that_is_wrong_fails(text, said, shell, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(text + "\n")

    def both(check: Callable[[], None]) -> None:
        test_every_command_is_one(page)
        check()

    with pytest.raises(AssertionError, match=said):
        both(lambda: shell.play(page))


MAP = REPOSITORY / "docs" / "README.md"
ALL = [*PAGES, REPOSITORY / "CONTRIBUTING.md", REPOSITORY / "CHANGELOG.md"]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def links(page: Path) -> list[str]:
    """The targets of a page's links to pages of ours."""
    prose = re.sub(r"`[^`]*`", "", FENCE.sub("", page.read_text("utf-8")))
    return [target for target in LINK.findall(prose) if not re.match(r"[a-z]+:", target)]


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as they are made for links to them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_every_link_leads_somewhere(page):
    for target in links(page):
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(found), f"{page.name}: {target}: no such heading"


def test_the_map_lists_every_page_once_and_the_readme_leads_to_it():
    listed = [(MAP.parent / target.partition("#")[0]).resolve() for target in links(MAP)]
    pages = [page for page in (REPOSITORY / "docs").rglob("*.md") if page != MAP]
    assert sorted(page for page in listed if page in pages) == sorted(pages)
    assert "docs/README.md" in links(REPOSITORY / "README.md")
