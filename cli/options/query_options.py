"""The options that make up a query, for typer; `asked` reads them."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxreg.cli.options.query_arguments import query
from onnxreg.schema.query.requirements import Query

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
"""Stands for the default of a parameter that `asks` replaces."""


def options(
    formats: Formats = None,
    precision: Precision = None,
    certified: Certified = False,
    max_size: MaxSize = None,
    min_recall: MinRecall = None,
    where: Where = None,
    member: OneMember = None,
) -> Query:
    """What they ask."""
    return query(formats, precision, certified, max_size, min_recall, where, member)


def asks(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameter `asked` is a Query, with these options in its place."""
    signature, ours = inspect.signature(command), inspect.signature(options).parameters

    @wraps(command)
    def run(**arguments: Any) -> None:
        asked = options(**{name: arguments.pop(name) for name in ours})
        command(asked=asked, **arguments)

    parameters = [
        parameter
        for declared in signature.parameters.values()
        for parameter in (ours.values() if declared.name == "asked" else [declared])
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
