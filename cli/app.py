"""All verbs as one typer application, grouped by task."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from onnxreg.cli import (
    VERSION,
    add,
    archive,
    attest,
    coverage,
    devices,
    diff,
    doctor,
    drop,
    du,
    export,
    fetch_index,
    gc,
    importing,
    key,
    lock,
    log,
    ls,
    mirror,
    passes,
    pin,
    policy,
    profiles,
    promote,
    pull,
    purge,
    push,
    query,
    rebuild,
    remote,
    resolve,
    run,
    sbom,
    schema,
    serve,
    show,
    sign,
    tag,
    trust,
    untag,
    verify,
    yank,
)
from onnxreg.cli.session import Session
from onnxreg.schema.errors import InputError

Verb = tuple[str, Callable[..., None], Sequence[str]]
PANELS: dict[str, tuple[Verb, ...]] = {
    "Make a version": (
        ("export", export.command, export.EXAMPLES),
        ("import", importing.command, importing.EXAMPLES),
        ("add", add.command, add.EXAMPLES),
        ("passes", passes.command, passes.EXAMPLES),
    ),
    "Move it": (
        ("push", push.command, push.EXAMPLES),
        ("pull", pull.command, pull.EXAMPLES),
        ("mirror", mirror.command, mirror.EXAMPLES),
        ("fetch-index", fetch_index.command, fetch_index.EXAMPLES),
    ),
    "Deliver it": (
        ("lock", lock.command, lock.EXAMPLES),
        ("run", run.command, run.EXAMPLES),
        ("serve", serve.command, serve.EXAMPLES),
    ),
    "Find and compare": (
        ("ls", ls.command(), ls.EXAMPLES),
        ("show", show.command, show.EXAMPLES),
        ("resolve", resolve.command(), resolve.EXAMPLES),
        ("query", query.command, query.EXAMPLES),
        ("coverage", coverage.command, coverage.EXAMPLES),
        ("devices", devices.command, devices.EXAMPLES),
        ("diff", diff.command, diff.EXAMPLES),
        ("sbom", sbom.command, sbom.EXAMPLES),
        ("rebuild", rebuild.command, rebuild.EXAMPLES),
    ),
    "Decide what is in use": (
        ("tag", tag.command, tag.EXAMPLES),
        ("attest", attest.command, attest.EXAMPLES),
        ("promote", promote.command, promote.EXAMPLES),
        ("untag", untag.command, untag.EXAMPLES),
        ("sign", sign.command, sign.EXAMPLES),
        ("yank", yank.command, yank.EXAMPLES),
        ("pin", pin.command, pin.EXAMPLES),
    ),
    "Make room": (
        ("gc", gc.command, gc.EXAMPLES),
        ("drop", drop.command, drop.EXAMPLES),
        ("purge", purge.command, purge.EXAMPLES),
    ),
    "Keep it healthy": (
        ("verify", verify.command, verify.EXAMPLES),
        ("log", log.command, log.EXAMPLES),
        ("doctor", doctor.command, doctor.EXAMPLES),
        ("du", du.command, du.EXAMPLES),
    ),
}
OTHERS = "Set up"
Group = tuple[str, str, Sequence[str], Mapping[str, Callable[..., None]]]
GROUPS: dict[str, Group] = {
    "archive": (
        "Move it",
        "Versions in one file, for a site without network.",
        archive.EXAMPLES,
        {"create": archive.create, "verify": archive.verify},
    ),
    "profiles": (
        "Make a version",
        "The recipes that come with the program.",
        profiles.EXAMPLES,
        {"list": profiles.list_profiles, "show": profiles.show},
    ),
    "remote": (
        OTHERS,
        "Give registries elsewhere a name.",
        remote.EXAMPLES,
        {"add": remote.add, "list": remote.list_remotes, "remove": remote.remove},
    ),
    "key": (
        OTHERS,
        "The keys that you sign with.",
        key.EXAMPLES,
        {"new": key.new, "list": key.list_keys, "show": key.show},
    ),
    "policy": (
        "Decide what is in use",
        "Say what channels demand of versions.",
        policy.EXAMPLES,
        {"show": policy.show, "set": policy.set_policy},
    ),
    "trust": (
        OTHERS,
        "Whose signatures count for you, and what you saw of registries.",
        trust.EXAMPLES,
        {"show": trust.show, "add": trust.add, "revoke": trust.revoke, "reset": trust.reset},
    ),
}
"""Verbs with verbs of their own: panel, help, examples, commands."""


def build() -> typer.Typer:
    """The application with every verb."""
    app = typer.Typer(
        name="reg",
        help="Export, prove and deliver ONNX models.",
        epilog=_epilog(
            ("reg export ./checkpoint --profile android --name acme/pii", "reg push acme/pii ./share")
        ),
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
    )
    app.callback(invoke_without_command=True)(_globals)
    for panel, verbs in PANELS.items():
        for name, command, examples in verbs:
            app.command(name, rich_help_panel=panel, epilog=_epilog(examples))(command)
    for name, (panel, text, examples, commands) in GROUPS.items():
        app.add_typer(_group(examples, commands), name=name, help=text, rich_help_panel=panel)
    app.command("schema", rich_help_panel=OTHERS, epilog=_epilog(schema.EXAMPLES))(schema.command)
    return app


def _group(examples: Sequence[str], commands: Mapping[str, Callable[..., None]]) -> typer.Typer:
    group = typer.Typer(epilog=_epilog(examples))
    for name, command in commands.items():
        group.command(name, epilog=_epilog([line for line in examples if f" {name}" in line]))(command)
    return group


def _epilog(examples: Sequence[str]) -> str:
    return "\n\n".join(("[bold]Examples[/bold]", *(f"$ {line}" for line in examples)))


def _version(wanted: bool) -> None:
    if wanted:
        print(f"reg {VERSION}")
        raise typer.Exit


def _globals(
    context: typer.Context,
    registry: Annotated[
        Path | None,
        typer.Option(help="The registry's directory; default: REG_HOME, else the user's data directory."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print errors only, and JSON where asked.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    context.obj = Session(registry, quiet)
    if context.invoked_subcommand is None:
        print(context.get_help())


def run_app(words: list[str]) -> None:
    """Parse and run a command line. A usage error is an InputError like any other."""
    command: Any = typer.main.get_command(build())
    if "_REG_COMPLETE" in os.environ:
        command(words, prog_name="reg")
    try:
        with command.make_context("reg", list(words)) as context:
            command.invoke(context)
    except typer.Exit as stop:
        if stop.exit_code:
            raise SystemExit(stop.exit_code) from None
    except TyperException as error:
        found = getattr(error, "ctx", None)
        where = found.command_path if found else "reg"
        message = " ".join(error.format_message().split())
        raise InputError(message, _usage_hint(words, where)) from None


def _usage_hint(words: Sequence[str], where: str) -> str:
    """Global options behind the verb are the usual slip."""
    late = [word for word in words[1:] if word in ("--registry", "--quiet")]
    return f"{late[0]} goes before the verb: reg {late[0]} ..." if late else f"see `{where} --help`"
