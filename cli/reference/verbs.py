"""Every verb as data, read from the application that parses command lines."""

from collections.abc import Iterator
from dataclasses import dataclass
from inspect import getdoc
from typing import Any

import typer

from onnxreg.cli.app import GROUPS, build, flowing, value_name
from onnxreg.cli.errors import EXIT_STATUS, InterruptError
from onnxreg.registry.support.environment import VARIABLES
from onnxreg.schema.core.errors import RegError

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
    examples: tuple[str, ...]


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


def global_options() -> tuple[Parameter, ...]:
    """The options before the verb."""
    return _options(root())


def exit_statuses() -> dict[int, str]:
    """The meaning of each exit status, from the docstring of its error family."""
    kinds: list[type[RegError]] = [*RegError.__subclasses__(), InterruptError]
    families = {family.family: family for family in kinds}
    meanings = {status: getdoc(families[name]) or "" for name, status in EXIT_STATUS.items()}
    return {0: "Success.", 1: "A bug in reg: please report the traceback.", **meanings}


def _verb(panel: str, name: str, command: Any) -> Verb:
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    pieces = [_in_usage(argument) for argument in arguments]
    return Verb(
        name,
        panel,
        " ".join(("reg", name, "[OPTIONS]", *pieces)),
        tuple(flowing(command.help).split("\n\n")),
        tuple(Parameter(_placeholder(parameter), flowing(parameter.help)) for parameter in arguments),
        _options(command),
        examples(command),
    )


def _options(command: Any) -> tuple[Parameter, ...]:
    options = [option for option in command.params if option.param_type_name == "option"]
    return tuple(Parameter(_option(option), flowing(option.help)) for option in options)


def _option(option: Any) -> str:
    names = "/".join(name for name in (*option.opts, *option.secondary_opts) if name.strip())
    return names if option.is_flag else f"{names} {value_name(option)}"


def _placeholder(argument: Any) -> str:
    placeholder: str = argument.metavar or argument.name.upper().replace("_", "-")
    return placeholder.strip("[].")


def _in_usage(argument: Any) -> str:
    name = _placeholder(argument) if argument.required else f"[{_placeholder(argument)}]"
    return name + ("..." if argument.nargs != 1 else "")
