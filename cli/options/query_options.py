"""The options that make up a query."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxreg.schema.core.errors import InputError
from onnxreg.schema.query.requirements import Query, share

if TYPE_CHECKING:
    from onnxreg.schema.query.device import Device

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
OneDevice = Annotated[
    str | None,
    typer.Option(
        "--device",
        help="The device it must run on: a preset (see `reg devices`) or a JSON file of one device.",
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
) -> Query:
    """Return the query of these options; InputError, naming the option, if one of them cannot be read."""
    size, expression = None, None
    if max_size is not None:
        from onnxreg.schema.core.sizes import parse_size

        size = parse_size(max_size)
    if where is not None:
        from onnxreg.schema.query.expression.parser import parse

        expression = parse(where)
    recalls = dict(_recall(text) for text in min_recall or ())
    return Query(tuple(formats or ()), precision, certified, size, recalls, expression, member)


def _recall(text: str) -> tuple[str, float]:
    label, _, least = text.rpartition("=")
    try:
        if label:
            return label, share(float(least))
    except (ValueError, InputError):
        pass
    raise InputError(f"not a least recall: {text[:80]!r}", "write --min-recall LABEL=0.95")


def takes_query(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with these options in place of its parameter `query`, a Query."""
    signature, options = inspect.signature(command), inspect.signature(query).parameters

    @wraps(command)
    def run(**arguments: Any) -> None:
        command(query=query(**{name: arguments.pop(name) for name in options}), **arguments)

    parameters = [
        parameter
        for declared in signature.parameters.values()
        for parameter in (options.values() if declared.name == "query" else [declared])
    ]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def read_one_device(word: str | None) -> "Device | None":
    """The device that the option names, if any."""
    if word is None:
        return None
    from onnxreg.cli.options.device_arguments import read_device

    return read_device(word)
