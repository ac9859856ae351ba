"""The reference as two pages: `docs/reg.1`, in the macros of man(7), and `docs/cli.md`."""

import re
import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby

from onnxreg.cli import VERSION
from onnxreg.cli.reference.verbs import (
    ENVIRONMENT,
    Parameter,
    Verb,
    describe,
    exit_statuses,
    global_options,
)

MAN_HEADING = f"""\
.TH REG 1 "" "onnxreg {VERSION}" "User Commands"
.SH NAME
reg \\- export, prove and deliver ONNX models
.SH SYNOPSIS
.B reg
.RI [ "GLOBAL OPTIONS" ]
.I VERB
.RI [ OPTIONS ]
.RI [ ARGUMENTS ]
.SH DESCRIPTION
.B reg
exports a trained checkpoint to ONNX artifacts, measures what each is worth, and delivers them.
The registry is a tree of files, addressed by content; it needs no server.
.PP
REF is NAME[:TAG][@sha256:...]; without a tag it is the newest version that is not yanked.
REMOTE is a path, a URL or a name given by
.BR "reg remote add" ;
by default it is the only remote, or the one named origin.
"""


def man_page() -> str:
    """The text of `docs/reg.1`."""
    return MAN_HEADING + "\n".join(_man_body()) + "\n"


def _man_body() -> Iterator[str]:
    yield ".SH GLOBAL OPTIONS"
    yield from _man_list(global_options())
    for panel, verbs in groupby(describe(), lambda verb: verb.panel):
        yield f".SH {panel.upper()}"
        for verb in verbs:
            yield from _man_section(verb)
    yield ".SH EXIT STATUS"
    yield from _man_list([Parameter(str(status), text) for status, text in exit_statuses().items()])
    yield ".SH ENVIRONMENT"
    yield from _man_list([Parameter(name, text) for name, text in ENVIRONMENT.items()])


def _man_section(verb: Verb) -> Iterator[str]:
    yield f".SS {_roff(verb.usage)}"
    for paragraph in verb.help:
        yield ".PP"
        yield _roff(paragraph)
    yield from _man_list((*verb.arguments, *verb.options))
    yield from (".PP", "Examples:", ".PP", ".RS 4", ".EX")
    yield from map(_roff, verb.examples)
    yield from (".EE", ".RE")


def _man_list(parameters: Sequence[Parameter]) -> Iterator[str]:
    for parameter in parameters:
        yield from (".TP", f".B {_roff(parameter.name)}", _roff(parameter.help))


def _roff(line: str) -> str:
    """A line of text that roff prints unchanged: `\\&` keeps a leading dot from being a request."""
    line = line.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace("'", "\\(aq")
    return f"\\&{line}" if line.startswith(".") else line


COLUMNS = 100
CLI_HEADING = """\
# Command line

`make generate` writes this page from the help texts (`reg VERB --help`, which has examples too):
change those. Global options come before the verb. REF is `NAME[:TAG][@sha256:...]`; without a tag
it is the newest version that is not yanked. REMOTE is a path, a URL or a name given by `reg remote
add`; by default it is the only remote, or the one named `origin`. The man page `reg(1)` has the
same content. `reg --install-completion` completes verbs, options and the names of your models.
Every verb that describes its `--json` takes it; a failure is then JSON on stderr.
"""


def cli_page() -> str:
    """The text of `docs/cli.md`."""
    verbs = describe()
    parts = [CLI_HEADING, "".join(_contents(verbs)), "## Global options\n", _list(global_options())]
    for panel, members in groupby(verbs, lambda verb: verb.panel):
        parts.append(f"## {panel}\n")
        for verb in members:
            parts.extend(_section(verb))
    statuses = [(str(status), meaning) for status, meaning in exit_statuses().items()]
    parts += ["## Exit status\n", _list([Parameter(*status) for status in statuses])]
    parts += ["## Environment\n", _list([Parameter(*variable) for variable in ENVIRONMENT.items()])]
    return "\n".join(parts)


def _contents(verbs: Sequence[Verb]) -> Iterator[str]:
    for panel, members in groupby(verbs, lambda verb: verb.panel):
        links = ", ".join(f"[{verb.name}](#reg-{verb.name.replace(' ', '-')})" for verb in members)
        yield _filled(f"**{panel}**: {links}", "- ") + "\n"


def _section(verb: Verb) -> Iterator[str]:
    yield f"### reg {verb.name}\n"
    yield f"`{verb.usage}`\n"
    yield from (f"{_filled(_markdown(paragraph))}\n" for paragraph in verb.help)
    yield _list([option for option in (*verb.arguments, *verb.options) if option.name != "--json"])


def _list(parameters: Sequence[Parameter]) -> str:
    return "".join(_filled(f"`{item.name}` {_markdown(item.help)}", "- ") + "\n" for item in parameters)


def _filled(text: str, first: str = "") -> str:
    """A paragraph, or an item that begins with `first`, in lines of `COLUMNS`; words stay whole."""
    return textwrap.fill(
        text,
        COLUMNS,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _markdown(paragraph: str) -> str:
    """Text in which nothing is markup but code between backquotes, and pages are links."""
    pieces = re.split(r"(`[^`]*`)", paragraph)
    escaped = "".join(
        piece.replace("|", r"\|") if piece.startswith("`") else re.sub(r"([\\*_<>|\[\]])", r"\\\1", piece)
        for piece in pieces
    )
    return re.sub(r"\bdocs/([\w-]+\.md)", r"[\1](\1)", escaped)
