"""The documentation as data: pages, their fenced blocks, the commands in these, and what is said of them in comments.

A fence says what its block is: `sh` holds commands, a line each; `console` commands behind `$ ` with what they print;
a second word (`yaml jobs.yaml`) is the file that the block is the text of. A comment above a fence steers the tests:

    <!-- given: models, origin -->       functions of `given.py` that are called first
    <!-- not run: REASON -->             the commands are parsed only
    <!-- output differs: REASON -->      the commands are run, and what they print is not compared
    <!-- large -->                       the page is run by `make test-all`
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).parents[3]
PAGES = (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md")))
COMMANDS = ("sh", "console")
FENCE = re.compile(r"^( *)```(.*)\n((?:.*\n)*?) *```$", re.MULTILINE)
NOTE = re.compile(r"<!-- *([a-z ]+?)(?:: *(.*?))? *-->", re.DOTALL)
OPERATORS = ";&|()<>"


@dataclass(frozen=True)
class Command:
    """A command line, and what the page says that it prints: nothing where it says nothing."""

    line: int
    text: str
    output: str = ""


@dataclass(frozen=True)
class Block:
    """A fenced block: the line of its fence, its language, the file it is the text of, and the notes above it."""

    line: int
    language: str
    file: str
    text: str
    notes: dict[str, str]

    @property
    def commands(self) -> list[Command]:
        if self.language == "sh":
            return [Command(line, text) for line, text in joined(self.text, self.line + 1)]
        if self.language == "console":
            return list(prompted(self.text, self.line + 1))
        return []


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text, found, end = page.read_text("utf-8"), [], 0
    for fence in FENCE.finditer(text):
        indent, info, body = fence.groups()
        language, _, file = info.partition(" ")
        body = re.sub(f"^{indent}", "", body, flags=re.MULTILINE)
        notes = {kind: why or "" for kind, why in NOTE.findall(text[end : fence.start()])}
        found.append(Block(text.count("\n", 0, fence.start()) + 1, language, file, body, notes))
        end = fence.end()
    return found


def joined(text: str, first: int) -> list[tuple[int, str]]:
    """The command lines of a script by their numbers; one that ends in a backslash goes on in the next."""
    found: list[tuple[int, str]] = []
    for number, line in enumerate(text.splitlines(), first):
        if found and found[-1][1].endswith("\\"):
            found[-1] = (found[-1][0], found[-1][1][:-1] + line.strip())
        elif line.strip() and not line.lstrip().startswith("#"):
            found.append((number, line))
    return found


def prompted(text: str, first: int) -> list[Command]:
    """The commands of a session, each with the lines up to the next prompt."""
    found: list[Command] = []
    for number, line in enumerate(text.splitlines(), first):
        if line.startswith("$ "):
            found.append(Command(number, line[2:]))
        elif found and found[-1].text.endswith("\\"):
            found[-1] = Command(found[-1].line, found[-1].text[:-1] + line.strip())
        elif found:
            found[-1] = Command(found[-1].line, found[-1].text, f"{found[-1].output}{line}\n")
    return found


def invocations(script: str) -> list[list[str]]:
    """The words of each `reg` in a script, without the word `reg` and without redirections."""
    return [words for _, line in joined(script, 1) for words in _in_line(line)]


def _in_line(line: str) -> list[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=OPERATORS)
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    redirected = False
    for word in lexer:
        operator = set(word) <= set(OPERATORS)
        if operator and not word.startswith(">"):
            found.append([])
        elif not operator and not redirected:
            found[-1].append(word)
        redirected = operator and word.startswith(">")
    return [words[1:] for words in found if words[:1] == ["reg"]]


def is_plain(line: str) -> bool:
    """Whether a line is one `reg` and nothing that a shell is needed for."""
    if re.search(r"[$~;&|()<>`*]", re.sub(r"'[^']*'", "", line.partition(" #")[0])):
        return False
    return line.startswith("reg ") and "\n" not in line


GIVEN_THERE = re.compile(r"\$\{\{.*?\}\}")
"""An expression whose value only GitHub knows."""


@dataclass(frozen=True)
class Step:
    """A script, and the variables that workflow, job and step set for it."""

    script: str
    environment: dict[str, str]


def steps(text: str) -> list[Step]:
    """The scripts of a document in their order; none where it is no workflow."""
    return list(_steps(yaml.safe_load(text), {}))


def _steps(value: Any, environment: dict[str, str]) -> Iterator[Step]:
    if isinstance(value, list):
        for item in value:
            yield from _steps(item, environment)
    elif isinstance(value, dict):
        environment = environment | _variables(value.get("env"))
        if isinstance(value.get("run"), str):
            yield Step(value["run"], environment)
        for item in value.values():
            yield from _steps(item, environment)


def _variables(value: Any) -> dict[str, str]:
    """Those whose values do not come from GitHub as a whole; a directory of GitHub's is the present one."""
    if not isinstance(value, dict):
        return {}
    found = {name: GIVEN_THERE.sub(".", str(each)) for name, each in value.items()}
    return {name: each for name, each in found.items() if each != "."}
