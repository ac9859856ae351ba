"""`docs/reg.1`: the reference as a man page, in the macros of man(7)."""

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

HEADING = f"""\
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


def text() -> str:
    """The whole page."""
    return HEADING + "\n".join(_body()) + "\n"


def _body() -> Iterator[str]:
    yield ".SH GLOBAL OPTIONS"
    yield from _list(global_options())
    for panel, verbs in groupby(describe(), lambda verb: verb.panel):
        yield f".SH {panel.upper()}"
        for verb in verbs:
            yield from _section(verb)
    yield ".SH EXIT STATUS"
    yield from _list([Parameter(str(status), text) for status, text in exit_statuses().items()])
    yield ".SH ENVIRONMENT"
    yield from _list([Parameter(name, text) for name, text in ENVIRONMENT.items()])


def _section(verb: Verb) -> Iterator[str]:
    yield f".SS {_escaped(verb.usage)}"
    for paragraph in verb.help:
        yield ".PP"
        yield _escaped(paragraph)
    yield from _list((*verb.arguments, *verb.options))
    yield from (".PP", "Examples:", ".PP", ".RS 4", ".EX")
    yield from map(_escaped, verb.examples)
    yield from (".EE", ".RE")


def _list(parameters: Sequence[Parameter]) -> Iterator[str]:
    for parameter in parameters:
        yield from (".TP", f".B {_escaped(parameter.name)}", _escaped(parameter.help))


def _escaped(line: str) -> str:
    """A line of text that roff prints unchanged: `\\&` keeps a leading dot from being a request."""
    line = line.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace("'", "\\(aq")
    return f"\\&{line}" if line.startswith(".") else line
