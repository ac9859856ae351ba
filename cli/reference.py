"""`python -m onnxreg.cli.reference`: write docs/cli.md from the help texts or, with `--check`, compare it."""

import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from inspect import getdoc
from pathlib import Path
from typing import Any

from typer import Context

from onnxreg.cli.app import GROUPS, build, flowing
from onnxreg.cli.output import EXIT_STATUS, InterruptError, filled
from onnxreg.registry.system import VARIABLES
from onnxreg.schema.core.errors import FAMILIES, RegError

PAGE = Path(__file__).resolve().parents[1] / "docs" / "cli.md"
ENVIRONMENT = {**VARIABLES, "NO_COLOR": "No colour, whatever its value."}
COLUMNS = 100
COMMON = 3  # an option that so many verbs share is explained once
CLI_HEADING = """\
# Command line

`make generate` writes this page from the help texts (`reg VERB --help`, which has examples too):
change those. Global options come before the verb. REF is `NAME[:TAG][@sha256:...]`; without a tag
it is the newest version that is not yanked. REMOTE is a path, a URL or a name given by `reg remote
add`; by default it is the only remote, or the one named `origin`. `reg --install-completion`
completes verbs, options and the names of your models.
Every verb that describes its `--json` takes it; a failure is then JSON on stderr.
"""


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the name and the typer object of each verb, and of each subcommand such as `remote add`."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def name_of(parameter: Any) -> str:
    """Return an argument's name, or an option's name with its placeholder, such as `--format TEXT`."""
    if parameter.param_type_name == "argument":
        return str(parameter.metavar).strip("[].")
    names = "/".join((*parameter.opts, *parameter.secondary_opts))
    return names if parameter.is_flag else f"{names} {parameter.metavar}"


def cli_page() -> str:
    verbs = dict(commands(build()))
    panels = {
        panel: [name for verb in members for name in verbs if name.partition(" ")[0] == verb]
        for panel, members in GROUPS.items()
    }
    links = {name: f"[{name}](#reg-{name.replace(' ', '-')})" for name in verbs}
    lists = {panel: ", ".join(links[name] for name in names) for panel, names in panels.items()}
    contents = "".join(_filled(f"**{panel}**: {names}", "- ") + "\n" for panel, names in lists.items())
    uses = Counter(pair for command in verbs.values() for pair in _listed(command))
    common = {pair[0]: pair for pair, count in reversed(uses.most_common()) if count >= COMMON}.values()
    parts = [CLI_HEADING, contents, "## Global options\n", _list(_pairs(build().params))]
    parts += ["## Common arguments and options\n", _list(reversed(common))]
    for panel, names in panels.items():
        parts.append(f"## {panel}\n")
        for name in names:
            parts += [f"### reg {name}\n", *_section(name, verbs[name], common)]
    kinds: list[type[RegError]] = [*FAMILIES.values(), InterruptError]
    families = {kind.family: getdoc(kind) or "" for kind in kinds}
    statuses = {"0": "Success.", "1": "A bug in reg: please report the traceback."}
    statuses |= {str(status): families[family] for family, status in EXIT_STATUS.items()}
    parts += ["## Exit status\n", _list(statuses.items()), "## Environment\n", _list(ENVIRONMENT.items())]
    return "\n".join(parts)


def _listed(command: Any) -> list[tuple[str, str]]:
    return _pairs(item for item in command.params if item.opts != ["--json"])


def _section(name: str, command: Any, common: Collection[tuple[str, str]]) -> Iterator[str]:
    pieces = [piece.strip("{}") for piece in command.collect_usage_pieces(Context(command))]
    yield f"`reg {name} {' '.join(pieces)}`\n"
    yield from (f"{_filled(_markdown(paragraph))}\n" for paragraph in flowing(command.help).split("\n\n"))
    own = [pair for pair in _listed(command) if pair not in common]
    shared = ", ".join(f"`{pair[0]}`" for pair in _listed(command) if pair in common)
    link = _filled(f"[common](#common-arguments-and-options): {shared}", "- ") + "\n" if shared else ""
    yield _list(own) + link


def _pairs(parameters: Iterable[Any]) -> list[tuple[str, str]]:
    ordered = sorted(parameters, key=lambda item: item.param_type_name != "argument")
    return [(name_of(item), flowing(item.help)) for item in ordered]


def _list(items: Iterable[tuple[str, str]]) -> str:
    return "".join(_filled(f"`{name}` {_markdown(text)}", "- ") + "\n" for name, text in items)


def _filled(text: str, first: str = "") -> str:
    return filled(text, COLUMNS, " " * len(first), first)


def _markdown(paragraph: str) -> str:
    """Escape the markup in a text, except code in backquotes. Turn names of pages into links."""
    pieces = re.split(r"(`[^`]*`)", paragraph)
    escaped = "".join(
        piece.replace("|", r"\|") if piece.startswith("`") else re.sub(r"([\\*_<>|\[\]])", r"\\\1", piece)
        for piece in pieces
    )
    return re.sub(r"\bdocs/([\w-]+\.md)", r"[\1](\1)", escaped)


def is_stale() -> bool:
    return not PAGE.is_file() or PAGE.read_text("utf-8") != cli_page()


if __name__ == "__main__":
    if "--check" not in sys.argv:
        PAGE.write_text(cli_page(), "utf-8")
    elif is_stale():
        sys.exit("docs/cli.md is stale: run `make generate`")
