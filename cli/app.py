"""All verbs as one typer application, grouped by task, with their help and with usage errors in our words.

Help has filled paragraphs, plain words for kinds of values, and examples that can be copied. rich is imported only
if help is shown, because every verb comes through here.
"""

import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from pathlib import Path
from textwrap import wrap
from types import ModuleType
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from onnxreg.cli import COMPLETES, VERSION
from onnxreg.cli.context import Session
from onnxreg.cli.options.completion import join_words
from onnxreg.registry import support
from onnxreg.schema.core.errors import InputError, nearest

PANELS: dict[str, tuple[str, ...]] = {
    "Make a version": ("export", "import", "add", "passes"),
    "Move it": ("push", "pull", "mirror", "publish", "fetch-index"),
    "Deliver it": ("lock", "package", "run", "serve"),
    "Find and compare": (
        "ls",
        "show",
        "resolve",
        "query",
        "coverage",
        "devices",
        "diff",
        "history",
        "certify",
        "prove",
        "sbom",
        "dossier",
        "rebuild",
    ),
    "Decide what is in use": ("tag", "attest", "promote", "untag", "sign", "yank", "pin"),
    "Make room": ("gc", "drop", "purge"),
    "Keep it healthy": ("verify", "log", "doctor", "du"),
    "Set up": ("config", "schema"),
}
JSON = "--json"
Group = tuple[str, str, Mapping[str, str]]
GROUPS: dict[str, Group] = {
    "delta": (
        "Deliver it",
        "Make updates small: differences between the files of versions.",
        {"make": "make", "ls": "ls"},
    ),
    "archive": (
        "Move it",
        "Write versions into one file, for a site without network.",
        {"create": "create", "verify": "verify"},
    ),
    "profiles": (
        "Make a version",
        "The recipes that come with the program.",
        {"list": "list_profiles", "show": "show_profile"},
    ),
    "rollout": (
        "Decide what is in use",
        "Give a channel's next version to a share of its devices first.",
        {"start": "start", "advance": "advance", "halt": "halt", "finish": "finish", "status": "status"},
    ),
    "remote": (
        "Set up",
        "Give registries elsewhere a name.",
        {"add": "add", "list": "list_remotes", "remove": "remove"},
    ),
    "key": (
        "Set up",
        "The keys that you sign with.",
        {"new": "new", "rotate": "rotate", "list": "list_keys", "show": "show_key"},
    ),
    "index": (
        "Find and compare",
        "Publish what can be searched, so that readers ask for one file.",
        {"publish": "publish"},
    ),
    "policy": (
        "Decide what is in use",
        "State what channels demand of versions.",
        {"show": "show_policy", "set": "set_policy"},
    ),
    "trust": (
        "Set up",
        "Trusted keys, required signatures, and known heads.",
        {"show": "show", "add": "add", "reset": "reset"},
    ),
}
"""Verbs with verbs of their own: panel, help, commands and their functions."""
MODULES = {
    "fetch-index": "remotes:fetch_index",
    "import": "add:import_",
    "promote": "channels:promote",
    **dict.fromkeys(("policy", "rollout"), "channels"),
    **dict.fromkeys(("remote", "index"), "remotes"),
    "archive": "packaging",
    "key": "trust",
    "profiles": "built_in",
    **{verb: f"built_in:{verb}" for verb in ("passes", "devices", "schema")},
    **{verb: f"decide:{verb}" for verb in ("tag", "untag", "pin", "yank", "drop", "sign")},
    **{verb: f"documents:{verb}" for verb in ("sbom", "dossier")},
    **{verb: f"evidence:{verb}" for verb in ("attest", "prove", "certify")},
    **{verb: f"health:{verb}" for verb in ("verify", "doctor")},
    **{verb: f"history:{verb}" for verb in ("log", "history")},
    **{verb: f"packaging:{verb}" for verb in ("package", "publish")},
    **{verb: f"space:{verb}" for verb in ("gc", "purge", "du")},
    "add": "add:add",
}
"""Modules that do not have the name of their verb, with the verb's function if several verbs share the module."""
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
LATE = ("--registry", "--quiet")
"""The global options, which people write behind the verb."""


def run_app(words: list[str]) -> None:
    """Parse and run a command line. A usage error is an InputError like any other."""
    completes = COMPLETES in os.environ
    verb = next(iter(_from_verb(join_words() if completes else words)), None)
    command: Any = typer.main.get_command(build(verb))
    if completes:
        command(words, prog_name="reg")
    try:
        marker = JSON if JSON in words else None
        with command.make_context("reg", list(words), obj=marker) as context:
            command.invoke(context)
    except typer.Exit as stop:
        if stop.exit_code:
            raise SystemExit(stop.exit_code) from None
    except TyperException as error:
        raise usage_error(error, words) from None


def _from_verb(words: Sequence[str]) -> list[str]:
    """Return the verb and the words after it; empty if the line names no known verb, or asks for help first."""
    remaining = iter(words)
    for word in remaining:
        if word == "--registry":
            next(remaining, None)
        elif word != "--quiet" and not word.startswith("--registry="):
            verbs = set(GROUPS).union(*PANELS.values())
            return [word, *remaining] if word in verbs else []
    return []


def build(alone: str | None = None) -> typer.Typer:
    """The application with every verb, or with one alone: to import them all takes longer than most of them work."""
    app = typer.Typer(
        name="reg",
        help="Export, prove and deliver ONNX models.",
        epilog=epilog(
            ("reg export ./checkpoint --profile android --name acme/pii", "reg push acme/pii ./share")
        ),
        cls=VerbGroup,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
    )
    app.callback(invoke_without_command=True)(_globals)
    for panel, names in PANELS.items():
        for name in names:
            if alone in (None, name):
                _add_verb(app, name, panel)
    for name, group in GROUPS.items():
        if alone in (None, name):
            _add_group(app, name, group)
    return app


def _module(verb: str) -> tuple[ModuleType, str]:
    """The module of a verb, and the name of the verb's function in it."""
    module, _, function = MODULES.get(verb, verb).partition(":")
    return import_module(f"onnxreg.cli.commands.{module}"), function or "command"


def _add_verb(app: typer.Typer, name: str, panel: str) -> None:
    module, function = _module(name)
    examples = [line for line in module.EXAMPLES if f" {name} " in f"{line} "]
    app.command(name, cls=VerbCommand, rich_help_panel=panel, epilog=epilog(examples))(
        _of_context(getattr(module, function))
    )


def _add_group(app: typer.Typer, verb: str, group: Group) -> None:
    panel, text, functions = group
    module, _ = _module(verb)
    examples: Sequence[str] = [line for line in module.EXAMPLES if f" {verb} " in f"{line} "]
    inner = typer.Typer(epilog=epilog(examples), cls=VerbGroup)
    for name, function in functions.items():
        own = [line for line in examples if f" {name}" in line]
        inner.command(name, cls=VerbCommand, epilog=epilog(own))(_of_context(getattr(module, function)))
    app.add_typer(inner, name=verb, help=text, rich_help_panel=panel)


def _of_context(verb: Callable[..., None]) -> Callable[..., None]:
    """The function of a verb as typer calls it: with a context, whose object is the session."""
    signature = inspect.signature(verb)

    @wraps(verb)
    def run(context: typer.Context, **arguments: Any) -> None:
        verb(context.obj, **arguments)

    _, *parameters = signature.parameters.values()
    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    run.__signature__ = signature.replace(parameters=[context, *parameters])  # type: ignore[attr-defined]
    run.__annotations__ = {item.name: item.annotation for item in (context, *parameters)}
    return run


def _version(value: bool) -> None:
    if value:
        print(f"reg {VERSION}")
        raise typer.Exit


def _globals(
    context: typer.Context,
    registry: Annotated[
        Path | None,
        typer.Option(help="The registry's directory; default: REG_HOME, else the user's data directory."),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print only errors, and the output of --json.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    session = Session(registry, quiet, as_json=context.obj is JSON)
    context.obj, support.tell = session, session.warn
    if context.invoked_subcommand is None:
        print(context.get_help())


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


def epilog(examples: Sequence[str]) -> str:
    """The examples as typer keeps them, one in a paragraph; `VerbCommand` and `VerbGroup` show them."""
    return "\n\n".join((HEADING, *(f"$ {line}" for line in examples)))


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


def _plain(text: str | None) -> str:
    from rich.markup import escape

    return escape(flowing(text or ""))


def flowing(text: str) -> str:
    """Paragraphs without the line breaks of the source: the terminal folds them where it ends."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in inspect.cleandoc(text).split("\n\n"))


def _print(examples: Sequence[str]) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    console.print(f" {HEADING}\n")
    for example in examples:
        for line in folded(example, console.width - MARGIN).splitlines():
            console.print(f" {line}", markup=False, no_wrap=True, overflow="ignore")
    console.print()


def folded(example: str, width: int) -> str:
    """A command line in lines of so many columns, which a shell reads as one.

    What is quoted stays whole, and an option stays with its value.
    """
    unbroken = re.sub(r"'[^']*'|--[a-z-]+ (?!-)", lambda match: match[0].replace(" ", "\0"), example)
    lines = wrap(unbroken, width, subsequent_indent=" " * 6, break_long_words=False, break_on_hyphens=False)
    return " \\\n".join(lines).replace("\0", " ")


def value_name(option: Any, context: Any = None) -> str:
    """The placeholder of an option's value; that it may be repeated, its help says.

    typer names the type `<list[str]>`, from release 0.29 as the display type, before as the metavar.
    """
    if option.metavar is not None:
        return str(option.metavar)
    type_name = option.display_type if hasattr(option, "display_type") else option.make_metavar
    return KINDS.get(type_name(context).strip("<>").removeprefix("list[").removesuffix("]"), "TEXT")


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
    if typed := getattr(error, "option_name", "").lstrip("-"):  # the dashes alone make options alike
        near = [name for name in near if nearest(typed, [name.lstrip("-")])]
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
    return text.replace("Value error, ", "")


def _hint(error: TyperException, words: Sequence[str], near: Sequence[str]) -> str:
    names = (word.partition("=")[0] for word in _from_verb(words))
    if late := next((name for name in names if name in LATE), None):
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
