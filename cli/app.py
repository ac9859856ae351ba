"""All verbs as one typer application, grouped by task."""

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from onnxreg.cli import COMPLETES, VERSION
from onnxreg.cli.context import Session
from onnxreg.cli.options.completion import join_words
from onnxreg.cli.options.help import VerbCommand, VerbGroup, epilog, usage_error
from onnxreg.registry.support import actor

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
        {"list": "list_profiles", "show": "show"},
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
        {"new": "new", "rotate": "rotate", "list": "list_keys", "show": "show"},
    ),
    "index": (
        "Find and compare",
        "Publish what can be searched, so that readers ask for one file.",
        {"publish": "publish"},
    ),
    "witness": (
        "Keep it healthy",
        "A log of the state of every model, which others cosign: what is seen is recent, and the same for everybody.",
        {"publish": "publish", "cosign": "cosign", "verify": "verify", "show": "show"},
    ),
    "policy": (
        "Decide what is in use",
        "State what channels demand of versions.",
        {"show": "show", "set": "set_policy", "approve": "approve"},
    ),
    "trust": (
        "Set up",
        "Trusted keys, required signatures, and known heads.",
        {"show": "show", "add": "add", "require": "require", "revoke": "revoke", "reset": "reset"},
    ),
}
"""Verbs with verbs of their own: panel, help, commands and their functions."""
MODULES = {"import": "import_", "fetch-index": "fetch_index"}
"""Of verbs whose modules cannot have their names."""


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


def _module(verb: str) -> ModuleType:
    return import_module(f"onnxreg.cli.commands.{MODULES.get(verb, verb)}")


def _add_verb(app: typer.Typer, name: str, panel: str) -> None:
    module = _module(name)
    app.command(name, cls=VerbCommand, rich_help_panel=panel, epilog=epilog(module.EXAMPLES))(module.command)


def _add_group(app: typer.Typer, verb: str, group: Group) -> None:
    panel, text, functions = group
    module = _module(verb)
    examples: Sequence[str] = module.EXAMPLES
    inner = typer.Typer(epilog=epilog(examples), cls=VerbGroup)
    for name, function in functions.items():
        own = [line for line in examples if f" {name}" in line]
        inner.command(name, cls=VerbCommand, epilog=epilog(own))(getattr(module, function))
    app.add_typer(inner, name=verb, help=text, rich_help_panel=panel)


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
    context.obj, actor.tell = session, session.tell_actor
    if context.invoked_subcommand is None:
        print(context.get_help())


def run_app(words: list[str]) -> None:
    """Parse and run a command line. A usage error is an InputError like any other."""
    completes = COMPLETES in os.environ
    command: Any = typer.main.get_command(build(_verb(join_words() if completes else words)))
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


def _verb(words: Sequence[str]) -> str | None:
    """The verb that a command line names; None if it names none of these, or asks for help first."""
    remaining = iter(words)
    for word in remaining:
        if word == "--registry":
            next(remaining, None)
        elif word != "--quiet" and not word.startswith("--registry="):
            verbs = set(GROUPS).union(*PANELS.values())
            return word if word in verbs else None
    return None
