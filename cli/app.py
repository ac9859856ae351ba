"""Build the typer application from one table of verbs, with help texts and usage errors in the program's style.

The table also has the lines of `reg --help`, so that this help imports no verb.
"""

import inspect
import os
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import cache, wraps
from importlib import import_module
from math import isnan
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple, get_args

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException
from typer.models import OptionInfo

from onnxreg.cli import COMPLETES, VERSION, skip_globals
from onnxreg.cli.options import REMOTE, Session, flag, option, query
from onnxreg.cli.output import filled
from onnxreg.registry import system
from onnxreg.schema.core.errors import InputError, NotFoundError, RegError, nearest
from onnxreg.schema.core.ref import Version


class Verb(NamedTuple):
    """A verb of the table. Its function in the module is called `command`, or like the verb: `import_`, `remote_add`."""

    summary: str  # the line in `reg --help`
    module: str  # in `cli/commands`
    subcommands: str = ""


# `reg --help` explains the verbs of the first group.
GROUPS: dict[str, dict[str, Verb]] = {
    "Every day": {
        "export": Verb("Make a version from a checkpoint, and measure it", "export"),
        "add": Verb("Make a version from .onnx or .ort files", "add"),
        "show": Verb("Show what a version is, and how to get it", "show"),
        "ls": Verb("List models, or the versions of one", "ls"),
        "diff": Verb("Show what changed between two versions, and got worse", "diff"),
        "push": Verb("Copy versions to a remote", "transfer"),
        "pull": Verb("Copy a version from a remote, and verify it", "transfer"),
        "resolve": Verb("Pick the best artifact for a device", "resolve"),
        "run": Verb("Run an artifact here", "run"),
        "tag": Verb("Move a channel to a version", "decide"),
        "rollout": Verb(
            "Give a version to a share of a channel's devices first",
            "channels",
            "start advance halt finish status",
        ),
    },
    "Release": {
        "promote": Verb("Move a channel if the version meets its policy", "channels"),
        "policy": Verb("State what channels demand of versions", "channels", "show set"),
        "yank": Verb("Withdraw a version", "decide"),
        "untag": Verb("Remove a channel", "decide"),
        "pin": Verb("Keep a version from expiring", "decide"),
        "attest": Verb("Record a later evaluation of an artifact", "evidence"),
        "measure": Verb("Time a version's artifacts beside full precision", "evidence"),
        "lock": Verb("Write down the exact artifacts of an app's build", "lock"),
    },
    "Audit": {
        "log": Verb("Show who did what, when and why", "history"),
        "history": Verb("Show size, a figure and the verdict of each version", "history"),
        "verify": Verb("Read every byte and line again; repair", "health"),
        "certificates": Verb("List the certificates of a version", "evidence"),
        "prove": Verb("Prove that quantized files are their parents, rounded", "evidence"),
        "sign": Verb("Sign a version", "decide"),
        "dossier": Verb("Write a version's documentation for auditors", "documents"),
        "sbom": Verb("Print a version's bill of materials", "documents"),
        "rebuild": Verb("Run a version's recipe again, and compare the files", "rebuild"),
    },
    "Places": {
        "import": Verb("Make a version from the Hub, OpenMed or OCI", "add"),
        "mirror": Verb("Copy everything from one registry to another", "transfer"),
        "archive": Verb("Write versions to one file, or an ORT package", "archive", "create verify package"),
        "serve": Verb("Serve the registry over HTTP, read-only", "serve"),
        "site": Verb("Write the registry's pages as files for any host", "site"),
        "delta": Verb("Make updates small", "delta", "make ls"),
        "remote": Verb("Name registries elsewhere", "remotes", "add list remove"),
        "index": Verb("Publish the catalog; store what a remote says", "remotes", "publish fetch"),
    },
    "Lookup": {
        "query": Verb("Find artifacts by an expression", "query"),
        "coverage": Verb("Show what each device of a fleet gets", "coverage"),
        "builtin": Verb("Passes, profiles, devices, schemas", "built_in", "passes profiles devices schemas"),
    },
    "Health": {
        "du": Verb("Show the space of each model", "space"),
        "gc": Verb("Delete what no version refers to", "space"),
        "drop": Verb("Take back a version that nobody else has", "decide"),
        "purge": Verb("Delete a version's bytes now and for ever", "space"),
        "doctor": Verb("Check a registry and its surroundings", "health"),
        "config": Verb("Show where everything is", "config"),
        "key": Verb("The keys that you sign with", "trust", "new list show"),
        "trust": Verb("Trusted keys, required signatures, known heads", "trust", "show add reset"),
    },
}
VERBS = {name: verb for verbs in GROUPS.values() for name, verb in verbs.items()}
EXAMPLES = ("reg export ./checkpoint --quantize --name acme/model", "reg push acme/model ./share")
JSON = "--json"
# Placeholders for the values of options; of other types: TEXT
MOVES = r"\breg (tag|promote|policy|rollout)\b"
METAVARS = {int: "NUMBER", float: "NUMBER", Path: "PATH"}
# Word, mostly of another program -> the commands to suggest.
SYNONYMS = {
    **dict.fromkeys(("search", "find"), "query or ls"),
    **dict.fromkeys(("list", "ls"), "ls or list or show"),
    **dict.fromkeys(("delete", "remove", "rm"), "remove or yank or drop or purge"),
    **{verb: f"builtin {verb}" for verb in ("devices", "passes", "profiles")},
    "schema": "builtin schemas",
    "package": "archive package",
    "certify": "certificates or export --certify",
    "quantize": "export --quantize",
    "undo": "yank --undo or pin --undo",
    "unyank": "yank --undo",
    "unpin": "pin --undo",
    "--int8": "--quantize",
    "create": "new",
    **dict.fromkeys(("publish", "upload"), "push"),
    "rollback": "tag",
    "download": "pull",
}


def run_app(words: list[str]) -> None:
    """Parse and run a command line. Raise InputError for a usage error."""
    completes = COMPLETES in os.environ
    if words[:1] == ["help"] and not completes:
        if len(words) == 2 and (group := words[1].capitalize()) in GROUPS:
            print(group_help(group))
            return
        words = [*words[1:], "--help"]
    typed = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS", "")
    verb = next(iter(_from_verb(typed.split()[1:] if completes else words)), None)
    command = build(verb)
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
    """Return the words from the verb on, or [] if the verb is unknown."""
    from_verb = skip_globals(words)
    return from_verb if VERBS.keys() & from_verb[:1] else []


@cache
def build(alone: str | None = None) -> Any:
    """Build the command line with every verb or, so that the program starts fast, only with the verb named `alone`."""
    app = typer.Typer(name="reg", cls=RootGroup, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.callback(invoke_without_command=True)(_globals)
    for name, verb in VERBS.items():
        if alone not in (None, name):
            continue
        module = import_module(f"onnxreg.cli.commands.{verb.module}")
        examples = [line for line in module.EXAMPLES if f" {name} " in f"{line} "]
        if not verb.subcommands:
            names = vars(module)
            function = names.get("command") or names.get(name) or names[f"{name}_"]
            app.command(name, cls=VerbCommand, epilog="\n".join(examples))(_typer_function(function))
            continue
        inner = typer.Typer(epilog="\n".join(examples), cls=VerbGroup, rich_markup_mode=None)
        for word in verb.subcommands.split():
            own = "\n".join(line for line in examples if f" {name} {word}" in line)
            function = _typer_function(getattr(module, f"{name}_{word}"))
            line = re.split(r"[.;:]\s", flowing(function.__doc__ or ""))[0].rstrip(".")
            inner.command(word, cls=VerbCommand, epilog=own, short_help=line)(function)
        app.add_typer(inner, name=name, help=f"{verb.summary}.")
    return typer.main.get_command(app)


def _typer_function(verb: Callable[..., None]) -> Callable[..., None]:
    """Wrap a verb's function for typer. The wrapper takes the session from typer's context, and passes it on.

    If the verb's help describes `--json`, the wrapper has this option. A parameter `query` is replaced by the options
    that the function `query` declares. If an argument is misplaced, the hint of the verb's error says where it belongs.
    If `--remote` is set, a hint that names a command about channels, such as `reg tag`, ends in `(with the same
    --remote)`.
    """
    signature = inspect.signature(verb)
    _, *parameters = signature.parameters.values()
    query_options = list(inspect.signature(query).parameters.values())[3:]
    is_elsewhere = any(item.default is REMOTE for item in parameters)

    @wraps(verb)
    def run(context: typer.Context, as_json: bool = False, **arguments: Any) -> None:
        for name, value in arguments.items():
            if isinstance(value, float) and isnan(value):  # within every range of typer
                raise InputError(f"--{name.replace('_', '-')} is not a number")
        try:
            if "query" in signature.parameters:
                values = {item.name: arguments.pop(item.name) for item in query_options}
                session = context.obj.with_max_age(arguments.get("max_age"))
                where = arguments["remote"], arguments.get("offline", False)
                arguments["query"] = query(session, *where, **values)
            verb(context.obj, **arguments)
        except RegError as error:
            if isinstance(error, InputError | NotFoundError):
                with suppress(RegError, OSError):
                    error.hint = misplaced(context, error=error) or error.hint
            if is_elsewhere and arguments["remote"] and re.search(MOVES, error.hint):
                error.hint += " (with the same --remote)"
            raise

    pieces = (query_options if item.name == "query" else [item] for item in parameters)
    parameters = [parameter for piece in pieces for parameter in piece]
    kind = inspect.Parameter.KEYWORD_ONLY
    added = [inspect.Parameter("context", kind, annotation=typer.Context)]
    if "With --json" in (verb.__doc__ or ""):
        json = flag("Print JSON; a failure is JSON on stderr.", JSON)
        added.append(inspect.Parameter("as_json", kind, default=json, annotation=bool))
    parameters = [item.replace(kind=kind) for item in (added[0], *parameters, *added[1:])]
    for item in parameters:
        if item.annotation is bool and not item.default.param_decls:
            item.default.param_decls = (f"--{item.name.replace('_', '-')}",)  # without this, typer adds --no-
        value_type = next(iter(get_args(item.annotation)), item.annotation)
        if isinstance(item.default, OptionInfo) and value_type is not bool and item.default.metavar is None:
            item.default.metavar = METAVARS.get(value_type, "TEXT")
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {item.name: item.annotation for item in parameters}
    return run


def _globals(
    context: typer.Context,
    registry: Path | None = option(
        "The registry's directory; default: REG_HOME, else the user's data directory.", metavar="PATH"
    ),
    quiet: bool = flag("Print only errors, and the output of --json.", "--quiet"),
    version: bool = flag("Print the version.", "--version"),
) -> None:
    if version:
        print(f"reg {VERSION}")
        raise typer.Exit
    session = Session(registry, quiet, as_json=context.obj is JSON)
    context.obj, system.tell = session, session.warn
    if context.invoked_subcommand is None:
        print(root_help())


def root_help() -> str:
    everyday, *others = GROUPS
    lines = [
        "Usage: reg [--registry PATH] [--quiet] VERB ...",
        "",
        "Export, prove and deliver ONNX models.",
        "",
    ]
    lines += [group_help(everyday), ""]
    lines += [f"  {group:<9} {' '.join(GROUPS[group])}" for group in others]
    lines += ["", "`reg help GROUP` explains its verbs, `reg VERB --help` options, with examples;"]
    lines += ["`reg --install-completion` completes words in your shell.", ""]
    return "\n".join(lines + [f"  $ {line}" for line in EXAMPLES])


def group_help(group: str) -> str:
    width = max(map(len, GROUPS[group]))
    return "\n".join(f"  {name:<{width}}  {verb.summary}" for name, verb in GROUPS[group].items())


class VerbCommand(TyperCommand):
    """A verb without subcommands, or a subcommand. Its help ends with examples."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        formatter.write("\nExamples:\n")
        for example in (self.epilog or "").splitlines():
            formatter.write(f"{folded(f'  $ {example}', formatter.width - 2)}\n")


class VerbGroup(TyperGroup):
    """A verb with subcommands. Its help ends with examples."""

    format_epilog: Any = VerbCommand.format_epilog

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        verbs = SYNONYMS.get(args[0], "").split(" or ")
        meant = [verb for verb in verbs if verb.split(" ")[0] in self.commands]
        if meant and args[0] not in self.commands:
            raise InputError(f"no such command '{args[0]}'", f"did you mean {' or '.join(meant)}?")
        return super().resolve_command(ctx, args)


class RootGroup(VerbGroup):
    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(root_help())


def flowing(text: str) -> str:
    """Join the lines of each paragraph."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in inspect.cleandoc(text).split("\n\n"))


def folded(example: str, width: int) -> str:
    """Fold a command line, with a backslash at each break. An option and its value stay together."""
    unbroken = re.sub(r"'[^']*'|--[a-z-]+ (?!-)", lambda match: match[0].replace(" ", "\0"), example)
    return filled(unbroken, width, " " * 6).replace("\n", " \\\n").replace("\0", " ")


def usage_error(error: TyperException, words: Sequence[str]) -> InputError:
    """Turn a typer error into an InputError that suggests similar names."""
    near: Sequence[str] = getattr(error, "possibilities", None) or ()
    text = error.message if near else error.format_message().replace("Value error, ", "")
    text = re.sub(r"is not a valid int( range)?\.", "must be an integer.", " ".join(text.split()))
    text = re.sub(r"is not a valid float( range)?\.", "must be a number.", text)
    message, _, meant = text.partition(". Did you mean ")
    near = near or [name.strip("'?") for name in meant.split(", ") if name]
    typed = getattr(error, "option_name", "") or message.partition("'")[2].rstrip("'")
    bare = typed.lstrip("-")  # dashes would make all options similar
    near = [name for name in near if nearest(bare, [name.lstrip("-")])][:3]
    near = [SYNONYMS[typed]] if near and bare != typed and typed in SYNONYMS else near
    return InputError(f"{message[:1].lower()}{message[1:].rstrip('.')}", _hint(error, words, near))


def _hint(error: TyperException, words: Sequence[str], near: Sequence[str]) -> str:
    names = (word.partition("=")[0] for word in _from_verb(words))
    if late := next((name for name in names if name in ("--registry", "--quiet")), None):
        return f"{late} goes before the verb: reg {late} ..."
    if near:
        return f"did you mean {' or '.join(near)}?"
    context = getattr(error, "ctx", None)
    path = context.command_path if context else " ".join(["reg", *_from_verb(words)[:1]])
    see = f"see `{path} --help`"
    if context and context.parent and hasattr(context.command, "commands"):
        return f"{path} {'|'.join(context.command.commands)}; {see}"
    extra = error.format_message().partition("unexpected extra argument(s) (")[2].rstrip(")")
    if context and extra and (way := misplaced(context, extra)):
        return f"{way}; {see}"
    if error.format_message().startswith("Missing opt"):
        missing: Any = getattr(error, "param", None)
        return f"write {path} ... {missing.opts[0]} {missing.metavar}; {see}"
    if context and error.format_message().startswith(("Missing arg", "Got unexpected extra arg")):
        pieces = [piece for piece in context.command.collect_usage_pieces(context) if piece != "[OPTIONS]"]
        return f"write {' '.join((path, *(piece.strip('{}') for piece in pieces)))}; {see}"
    return see


def misplaced(context: Any, extra: str = "", error: RegError | None = None) -> str:
    """Return advice such as `write reg pull acme/pii origin` if an argument is in the wrong place. Otherwise return "".

    `extra` is an argument that the parser did not expect. Without `extra`, `error` is the error that the verb raised.
    """
    from onnxreg.registry.remotes import absolute
    from onnxreg.schema.query.device import presets

    verb, session = context.command_path, context.obj
    options = {name for parameter in context.command.params for name in parameter.opts}
    arguments = [item for item in context.command.params if item.param_type_name == "argument"]
    first, second, *_ = [*(str(context.params.get(item.name) or "") for item in arguments), "", ""]
    remotes = session.remotes().urls if "--remote" in options else {}
    kind = arguments[1].metavar if len(arguments) > 1 else ""

    def write(*words: str) -> str:
        return f"write {' '.join((verb, *map(quote, words)))}"

    if kind == "CHANNEL" and re.search("[:/]", second) and not re.search("[:/]", first):
        return write(second, first)
    if kind == "CHANNEL" and extra and Version.is_version(second):
        return write(f"{first}:{second}", extra)
    is_remote = first in remotes and _channels(session, first) is None
    is_place = isinstance(error, InputError) and re.match(r"[./~]|\w+://", first)
    if kind == "[REMOTE]" and (is_remote or (is_place and absolute(first))):  # refuses a URL with a secret
        model = (second or "REF",) if second or not context.params.get("every") else ("--all", "--remote")
        return write(*model, first)
    tag = extra or (second if kind == "[REMOTE]" and second not in remotes else "")
    if (tag and first and ":" not in first) and (
        verb == "reg untag" or Version.is_version(tag) or tag in (_channels(session, first) or ())
    ):
        return write(f"{first}:{tag}")
    if error is not None:
        needed = (item.metavar.partition("[")[0] for item in arguments)
        is_here = (
            "--remote" in options
            and re.fullmatch(r"[\w.-]{1,64}", first)
            and Path(first, "registry.json").exists()
        )
        if first not in error.message or not (is_remote or (is_here and _channels(session, first) is None)):
            return ""
        return f"{first} is a remote: {write(*filter(None, needed), '--remote', first)}"
    if extra in presets() and (device := options & {"--device", "--devices"}):
        return write(first, min(device), extra)
    if extra in remotes:
        return f"write --remote {extra}"
    if not re.search(r"[/\\:]|^\.", extra):
        taken = [name for name in ("--text", "--reason") if name in options]
        return f"write {verb} ... {taken[0]} {quote(extra)}" if taken else ""
    if named := [name for name in ("--remote", "--output") if name in options]:
        return f"write {' or '.join(f'{name} {quote(extra)}' for name in named)}"
    return f"the registry goes before the verb: reg --registry {quote(extra)} {context.info_name} ..."


def _channels(session: Session, name: str) -> Collection[str] | None:
    with suppress(RegError):
        return session.open().state(name).channels
    return None
