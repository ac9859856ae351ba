"""`docs/cli.md`: the reference as a page."""

import re
import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby

from onnxreg.cli.reference.verbs import (
    ENVIRONMENT,
    Parameter,
    Verb,
    describe,
    exit_statuses,
    global_options,
)

COLUMNS = 100
HEADING = """\
# Command line

`make generate` writes this page from the help texts (`reg VERB --help`): change those, not this
page. Global options come before the verb. REF is `NAME[:TAG][@sha256:...]`; without a tag it is the
newest version that is not yanked. REMOTE is a path, a URL or a name given by `reg remote add`; by
default it is the only remote, or the one named `origin`. The man page `reg(1)`, which a wheel
installs in `share/man`, has the same content. `reg --install-completion` completes verbs, options
and the names of your models in bash, zsh and fish.
"""


def text() -> str:
    """The whole page."""
    verbs = describe()
    parts = [HEADING, *_contents(verbs), "## Global options\n", _table(global_options())]
    for panel, members in groupby(verbs, lambda verb: verb.panel):
        parts.append(f"## {panel}\n")
        for verb in members:
            parts.extend(_section(verb))
    statuses = [(str(status), meaning) for status, meaning in exit_statuses().items()]
    parts += ["## Exit status\n", _rows(("status", "meaning"), statuses)]
    parts += ["## Environment\n", _rows(("variable", "meaning"), [*ENVIRONMENT.items()])]
    return "\n".join(parts)


def _contents(verbs: Sequence[Verb]) -> Iterator[str]:
    rows = [
        (panel, " · ".join(f"[{verb.name}](#reg-{verb.name.replace(' ', '-')})" for verb in members))
        for panel, members in groupby(verbs, lambda verb: verb.panel)
    ]
    yield (
        "\n".join(["| to | verbs |", "|---|---|", *(f"| {panel} | {links} |" for panel, links in rows)])
        + "\n"
    )


def _section(verb: Verb) -> Iterator[str]:
    yield f"### reg {verb.name}\n"
    yield f"`{verb.usage}`\n"
    yield from (f"{_filled(_escaped(paragraph))}\n" for paragraph in verb.help)
    yield _table((*verb.arguments, *verb.options))
    yield "\n".join(["<!-- not run: examples for different registries -->", "```sh", *verb.examples, "```\n"])


def _table(parameters: Sequence[Parameter]) -> str:
    return _rows(("option", ""), [(parameter.name, parameter.help) for parameter in parameters])


def _rows(heading: tuple[str, str], rows: Sequence[tuple[str, str]]) -> str:
    """A table whose first column is code."""
    lines = [f"| `{name}` | {_escaped(text)} |" for name, text in rows]
    return "\n".join([f"| {heading[0]} | {heading[1]} |", "|---|---|", *lines]) + "\n"


def _filled(paragraph: str) -> str:
    """A paragraph in lines of `COLUMNS`; words stay whole."""
    return textwrap.fill(paragraph, COLUMNS, break_long_words=False, break_on_hyphens=False)


def _escaped(paragraph: str) -> str:
    """Text in which nothing is markup but code between backquotes, and pages are links."""
    pieces = re.split(r"(`[^`]*`)", paragraph)
    escaped = "".join(
        piece.replace("|", r"\|") if piece.startswith("`") else re.sub(r"([\\*_<>|\[\]])", r"\\\1", piece)
        for piece in pieces
    )
    return re.sub(r"\bdocs/([\w-]+\.md)", r"[\1](\1)", escaped)
