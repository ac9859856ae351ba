"""The options that make up a query."""

import inspect
from codecs import BOM_UTF8
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import replace

from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, NotFoundError, about
from onnxreg.schema.core.given_file import read_given
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.query.requirements import Query, share

if TYPE_CHECKING:
    from onnxreg.cli.context import Session
    from onnxreg.schema.query.device import Device

FILE = "operators_file"
"""In a device file, instead of `operators`: the path of the operator config, from the file's own directory."""

Formats = Annotated[
    list[str] | None,
    typer.Option("--format", help="An accepted format, the preferred one first; may be repeated."),
]
Precision = Annotated[str | None, typer.Option(help="The precision it must have.")]
Certified = Annotated[bool, typer.Option("--certified", help="Only certified artifacts.")]
MaxSize = Annotated[
    str | None,
    typer.Option(help="The most bytes to download, with every file it needs: 30MB (10^6), 28MiB (2^20)."),
]
MinRecall = Annotated[
    list[str] | None,
    typer.Option(
        help="The least measured recall of a label, such as PHONE=0.95; may be repeated.",
        metavar="LABEL=SHARE",
    ),
]
Where = Annotated[
    str | None,
    typer.Option(help="A further condition, such as 'opset <= 18 and not yanked'; see docs/query.md."),
]
OneMember = Annotated[
    str | None,
    typer.Option(
        "--member",
        help="The stage of a pipeline, such as detector, or the member of a family, such as backbone.",
        metavar="NAME",
    ),
]
CompatibleWith = Annotated[
    list[str] | None,
    typer.Option(
        help="Only what an app runs that was written for this version: same inputs, outputs, labels and tokenizer. "
        "A REF or a contract's digest; may be repeated.",
        metavar="REF",
    ),
]
ContextTokens = Annotated[
    int | None,
    typer.Option(
        "--context-tokens",
        help="The tokens that a decoder must keep. With a device's memory, they count instead of its longest context.",
        metavar="TOKENS",
        min=0,
    ),
]
OneDevice = Annotated[
    str | None,
    typer.Option(
        "--device",
        help="The device it must run on: a preset (see `reg builtin devices`) or a JSON file of one device.",
    ),
]


ANYTHING = Query()
"""Stands for the default of a parameter that `takes_query` replaces."""


def query(
    formats: Formats = None,
    precision: Precision = None,
    certified: Certified = False,
    max_size: MaxSize = None,
    min_recall: MinRecall = None,
    where: Where = None,
    member: OneMember = None,
    context_tokens: ContextTokens = None,
) -> Query:
    """Return the query of these options; InputError, naming the option, if one of them cannot be read."""
    size, expression = None, None
    if max_size is not None:
        from onnxreg.schema.core.units import parse_size

        size = parse_size(max_size)
    if where is not None:
        from onnxreg.schema.query.expression import parse

        expression = parse(where)
    recalls = dict(_recall(text) for text in min_recall or ())
    return Query(
        tuple(formats or ()), precision, certified, size, recalls, expression, member, context=context_tokens
    )


def _recall(text: str) -> tuple[str, float]:
    label, _, least = text.rpartition("=")
    try:
        if label:
            return label, share(float(least))
    except (ValueError, InputError):
        pass
    raise InputError(f"not a least recall: {text[:80]!r}", "write --min-recall LABEL=0.95")


def contracts(
    session: "Session", remote: str | None, compatible_with: CompatibleWith = None
) -> tuple[Digest, ...]:
    """The contracts that the option names, by version or digest. NotFoundError for a version without one."""
    from onnxreg.registry.resolution import contracts_of

    reader = session.reader(remote)
    return tuple(
        contract
        for word in compatible_with or ()
        for contract in (
            [Digest.parse(word)] if word.startswith("sha256:") else contracts_of(reader, Ref.parse(word))
        )
    )


def takes_query(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with these options in place of its parameter `query`, a Query."""
    signature, conditions = inspect.signature(command), inspect.signature(query).parameters
    options = {**conditions, **inspect.signature(contracts).parameters}
    del options["session"], options["remote"]

    @wraps(command)
    def run(session: "Session", **arguments: Any) -> None:
        words = arguments.pop("compatible_with")
        question = query(**{name: arguments.pop(name) for name in conditions})
        if words:
            question = replace(question, contracts=contracts(session, arguments["remote"], words))
        command(session, query=question, **arguments)

    parameters = [
        parameter
        for declared in signature.parameters.values()
        for parameter in (options.values() if declared.name == "query" else [declared])
    ]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def read_one_device(word: str | None) -> "Device | None":
    """The device that the option names, if any. InputError if a file has not exactly one."""
    if word is None:
        return None
    devices = read_devices(word)
    if len(devices) != 1:
        raise InputError(f"{word} holds {len(devices)} devices", "name a file that holds one")
    return devices[0]


def read_devices(word: str) -> "list[Device]":
    """The devices that an option names: a preset, or those in a file.

    InputError, naming the file and the device, if one cannot be read; NotFoundError if there is no such file.
    """
    from onnxreg.schema.query.device import preset

    path = Path(word)
    if not path.exists():
        if path.suffix == ".json" or "/" in word:
            raise NotFoundError(
                f"there is no device file {word}",
                "check the path; `reg builtin devices` lists presets that need none",
            )
        return [preset(word)]
    document = canonical.decode(read_given(path).removeprefix(BOM_UTF8), word)
    if not isinstance(document, list):
        return [_device(document, path, path.stem, word)]
    return [
        _device(item, path, f"{path.stem}[{index}]", f"{word}[{index}]")
        for index, item in enumerate(document)
    ]


def _device(value: Any, path: Path, name: str, where: str) -> "Device":
    """A device without a name is called after its file."""
    from onnxreg.schema.query.device import Device

    with about(where):
        if isinstance(value, dict):
            value = {"name": name} | value
            if FILE in value:
                value["operators"] = _operators(value.pop(FILE), path)
        return Device.read(value)


def _operators(file: Any, path: Path) -> str:
    if not isinstance(file, str) or "\0" in file:
        raise InputError(f"{FILE} is not a path")
    try:
        return read_given(path.parent / file, FILE, "the path starts at the device file").decode()
    except NotFoundError as error:
        raise InputError(f"{FILE}: {error.message}", error.hint) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{FILE}: {file} is not text") from error
