"""`python -m onnxreg.cli.reference [--check]`: write docs/cli.md of a checkout from the help texts, or say that it is stale."""

import re
import sys
import textwrap
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from inspect import getdoc
from itertools import groupby
from pathlib import Path
from typing import Any

import typer

from onnxreg.cli.app import GROUPS, build, flowing, value_name
from onnxreg.cli.errors import EXIT_STATUS, InterruptError
from onnxreg.registry.support.environment import VARIABLES
from onnxreg.schema.core.errors import RegError

PAGE = Path(__file__).resolve().parents[1] / "docs" / "cli.md"
ENVIRONMENT = {**VARIABLES, "NO_COLOR": "No colour, whatever its value."}


@dataclass(frozen=True)
class Parameter:
    """An argument or an option with the placeholder of its value, and what it is."""

    name: str
    help: str


@dataclass(frozen=True)
class Verb:
    """One command: `pull` or `remote add`. `help` is its paragraphs, each without line breaks."""

    name: str
    panel: str
    usage: str
    help: tuple[str, ...]
    arguments: tuple[Parameter, ...]
    options: tuple[Parameter, ...]


def root() -> Any:
    """The application with every verb."""
    return typer.main.get_command(build())


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its words: `remote add`."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def examples(command: Any) -> tuple[str, ...]:
    """The example command lines of a command's help."""
    return tuple(command.epilog.splitlines())


def describe() -> list[Verb]:
    """All verbs, in the order of `reg --help`."""
    panels = {name: group for group, verbs in GROUPS.items() for name in verbs}
    order = list(panels)
    verbs = [_verb(panels[name.partition(" ")[0]], name, command) for name, command in commands(root())]
    return sorted(verbs, key=lambda verb: order.index(verb.name.partition(" ")[0]))


def exit_statuses() -> dict[int, str]:
    """The meaning of each exit status, from the docstring of its error family."""
    kinds: list[type[RegError]] = [*RegError.__subclasses__(), InterruptError]
    families = {family.family: family for family in kinds}
    meanings = {status: getdoc(families[name]) or "" for name, status in EXIT_STATUS.items()}
    return {0: "Success.", 1: "A bug in reg: please report the traceback.", **meanings}


def _verb(panel: str, name: str, command: Any) -> Verb:
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    return Verb(
        name,
        panel,
        " ".join(("reg", name, "[OPTIONS]", *map(_in_usage, arguments))),
        tuple(flowing(command.help).split("\n\n")),
        tuple(Parameter(_placeholder(parameter), flowing(parameter.help)) for parameter in arguments),
        _options(command),
    )


def _options(command: Any) -> tuple[Parameter, ...]:
    options = [option for option in command.params if option.param_type_name == "option"]
    return tuple(Parameter(_option(option), flowing(option.help)) for option in options)


def _option(option: Any) -> str:
    names = "/".join(name for name in (*option.opts, *option.secondary_opts) if name.strip())
    return names if option.is_flag else f"{names} {value_name(option)}"


def _placeholder(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper().replace("_", "-")).strip("[].")


def _in_usage(argument: Any) -> str:
    name = _placeholder(argument) if argument.required else f"[{_placeholder(argument)}]"
    return name + ("..." if argument.nargs != 1 else "")


COLUMNS = 100
COMMON = 3
"""The verbs that share an argument or option, at least: then the page explains it once."""
CLI_HEADING = """\
# Command line

`make generate` writes this page from the help texts (`reg VERB --help`, which has examples too):
change those. Global options come before the verb. REF is `NAME[:TAG][@sha256:...]`; without a tag
it is the newest version that is not yanked. REMOTE is a path, a URL or a name given by `reg remote
add`; by default it is the only remote, or the one named `origin`. `reg --install-completion`
completes verbs, options and the names of your models.
Every verb that describes its `--json` takes it; a failure is then JSON on stderr.
"""


def cli_page() -> str:
    """The text of `docs/cli.md`."""
    verbs = describe()
    uses = Counter(parameter for verb in verbs for parameter in _listed(verb))
    common = {item.name: item for item, count in reversed(uses.most_common()) if count >= COMMON}.values()
    parts = [CLI_HEADING, "".join(_contents(verbs)), "## Global options\n", _list(_options(root()))]
    parts += ["## Common arguments and options\n", _list(tuple(reversed(common)))]
    for panel, members in groupby(verbs, lambda verb: verb.panel):
        parts.append(f"## {panel}\n")
        for verb in members:
            parts.extend(_section(verb, common))
    statuses = [(str(status), meaning) for status, meaning in exit_statuses().items()]
    parts += ["## Exit status\n", _list([Parameter(*status) for status in statuses])]
    parts += ["## Environment\n", _list([Parameter(*variable) for variable in ENVIRONMENT.items()])]
    return "\n".join(parts)


def _contents(verbs: Sequence[Verb]) -> Iterator[str]:
    for panel, members in groupby(verbs, lambda verb: verb.panel):
        links = ", ".join(f"[{verb.name}](#reg-{verb.name.replace(' ', '-')})" for verb in members)
        yield _filled(f"**{panel}**: {links}", "- ") + "\n"


def _listed(verb: Verb) -> list[Parameter]:
    return [parameter for parameter in (*verb.arguments, *verb.options) if parameter.name != "--json"]


def _section(verb: Verb, common: Collection[Parameter]) -> Iterator[str]:
    yield f"### reg {verb.name}\n"
    yield f"`{verb.usage}`\n"
    yield from (f"{_filled(_markdown(paragraph))}\n" for paragraph in verb.help)
    own = _list([parameter for parameter in _listed(verb) if parameter not in common])
    names = ", ".join(f"`{parameter.name}`" for parameter in _listed(verb) if parameter in common)
    yield own + (_filled(f"[common](#common-arguments-and-options): {names}", "- ") + "\n" if names else "")


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


def is_stale() -> bool:
    """True if the page is not what the code gives."""
    return not PAGE.is_file() or PAGE.read_text("utf-8") != cli_page()


if __name__ == "__main__":
    if "--check" not in sys.argv:
        PAGE.write_text(cli_page(), "utf-8")
    elif is_stale():
        sys.exit("docs/cli.md is stale: run `make generate`")
