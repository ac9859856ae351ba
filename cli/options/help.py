"""The layout of help: filled paragraphs, plain words for kinds of values, examples that can be copied; and
typer's messages about a command line that it cannot read, in our words.

rich is imported only if help is shown, because every verb comes through here.
"""

import inspect
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from textwrap import wrap
from typing import Any

from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from onnxreg.schema.core.errors import InputError

HEADING = "[bold]Examples[/bold]"
KINDS = {
    "bool": "",
    "boolean": "",
    "int": "NUMBER",
    "int range": "NUMBER",
    "float": "NUMBER",
    "path": "PATH",
    "Path": "PATH",
}
"""From typer's name of a value's type to ours. Other types are TEXT."""

SYNONYMS = {
    **dict.fromkeys(("search", "find"), ("query", "ls")),
    **dict.fromkeys(("list", "ls"), ("ls", "list", "show")),
    **dict.fromkeys(("delete", "remove", "rm"), ("remove", "yank", "drop", "purge")),
    "download": ("pull",),
    "info": ("show",),
    "upload": ("push",),
}
"""The verbs that other programs call so, as far as a group has them."""

MARGIN = 4
"""The columns beside an example, and those of the backslash at its end."""


def epilog(examples: Sequence[str]) -> str:
    """The examples as typer keeps them, one in a paragraph; `VerbCommand` and `VerbGroup` show them."""
    return "\n\n".join((HEADING, *(f"$ {line}" for line in examples)))


def flowing(text: str) -> str:
    """Paragraphs without the line breaks of the source: the terminal folds them where it ends."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in inspect.cleandoc(text).split("\n\n"))


def folded(example: str, width: int) -> str:
    """A command line in lines of so many columns, which a shell reads as one.

    What is quoted stays whole, and an option stays with its value.
    """
    unbroken = re.sub(r"'[^']*'|--[a-z-]+ (?!-)", lambda match: match[0].replace(" ", "\0"), example)
    lines = wrap(unbroken, width, subsequent_indent=" " * 6, break_long_words=False, break_on_hyphens=False)
    return " \\\n".join(lines).replace("\0", " ")


class VerbCommand(TyperCommand):
    """A command whose help is made for reading, and whose errors point to it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with usage_of(ctx):
            return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        examples = _prepare(self, ctx)
        super().format_help(ctx, formatter)
        _print(examples)


class VerbGroup(TyperGroup):
    """The same of a group."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        meant = [verb for verb in SYNONYMS.get(args[0], ()) if verb in self.commands]
        if meant and args[0] not in self.commands:
            raise InputError(f"no such command '{args[0]}'", f"did you mean {' or '.join(meant)}?")
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with usage_of(ctx):
            return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        examples = _prepare(self, ctx)
        for command in self.commands.values():
            command.help = _plain(command.help)
        super().format_help(ctx, formatter)
        _print(examples)


def _prepare(command: Any, context: Any) -> list[str]:
    """Put everything into our form, and take the examples out: typer would fold them, and fill their lines with blanks."""
    from rich.markup import escape

    command.help = _plain(command.help)
    for parameter in command.get_params(context):
        parameter.help = escape(parameter.help or "")
        if not any(opt.strip() for opt in parameter.opts):
            parameter.opts, parameter.secondary_opts = parameter.secondary_opts, []
        if parameter.param_type_name == "option":
            parameter.metavar = value_name(parameter, context)
    examples = (command.epilog or HEADING).split("\n\n")[1:]
    command.epilog = None
    return examples


def _print(examples: Sequence[str]) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    console.print(f" {HEADING}\n")
    for example in examples:
        for line in folded(example, console.width - MARGIN).splitlines():
            console.print(f" {line}", markup=False, no_wrap=True, overflow="ignore")
    console.print()


def _plain(text: str | None) -> str:
    from rich.markup import escape

    return escape(flowing(text or ""))


def value_name(option: Any, context: Any = None) -> str:
    """The placeholder of an option's value; that it may be repeated, its help says.

    typer names the type `<list[str]>`, from release 0.29 as the display type, before as the metavar.
    """
    if option.metavar is not None:
        return str(option.metavar)
    type_name = option.display_type if hasattr(option, "display_type") else option.make_metavar
    return KINDS.get(type_name(context).strip("<>").removeprefix("list[").removesuffix("]"), "TEXT")


LATE = ("--registry", "--quiet")
"""The global options, which people write behind the verb."""


@contextmanager
def usage_of(context: Any) -> Iterator[None]:
    """Attach this command line (`typer.Context`) to an error that names none."""
    try:
        yield
    except TyperException as error:
        if hasattr(error, "ctx") and error.ctx is None:
            error.ctx = context
        raise


def usage_error(error: TyperException, words: Sequence[str]) -> InputError:
    """The error as an InputError, with the names that may have been meant."""
    near: Sequence[str] = getattr(error, "possibilities", None) or ()
    text = " ".join((error.message if near else _plain_message(error)).split())
    message, _, meant = text.partition(". Did you mean ")
    near = near or [name.strip("'?") for name in meant.split(", ") if name]
    return InputError(f"{message[:1].lower()}{message[1:].rstrip('.')}", _hint(error, words, near))


NUMBERS = {
    "int": "an integer",
    "int range": "an integer",
    "float": "a number",
    "float range": "a number",
}
"""typer's kinds of numbers, in our words."""


def _plain_message(error: TyperException) -> str:
    """The message. A value of the wrong kind gets the same words as in documents."""
    text = error.format_message()
    for kind, words in NUMBERS.items():
        text = text.replace(f"is not a valid {kind}.", f"must be {words}.")
    cause = error.__cause__
    if cause is None:
        return text
    from pydantic import ValidationError

    from onnxreg.schema.core import document

    if not isinstance(cause, ValidationError):
        return text
    problem = document.first(cause)
    return text.replace(problem["msg"], document.words(problem))


def _hint(error: TyperException, words: Sequence[str], near: Sequence[str]) -> str:
    if late := next((word for word in words[1:] if word in LATE), None):
        return f"{late} goes before the verb: reg {late} ..."
    if near:
        return f"did you mean {' or '.join(near)}?"
    context = getattr(error, "ctx", None)
    if context and error.format_message().startswith("Missing argument"):
        return f"write {_usage(context)}; see `{context.command_path} --help`"
    return f"see `{context.command_path if context else 'reg'} --help`"


def _usage(context: Any) -> str:
    """The command with its arguments, such as `reg diff OLD NEW`."""
    pieces = context.command.collect_usage_pieces(context)
    words = (piece.strip("{}") for piece in pieces if piece != "[OPTIONS]")
    return " ".join((context.command_path, *words))
