"""The options that make up a query, for typer; `asked` reads them."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from onnxreg.schema.device import Device

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
    typer.Option(help="What else must hold, such as 'opset <= 18 and not yanked'; see docs/query.md."),
]
OneDevice = Annotated[
    str | None,
    typer.Option(
        "--device", help="Where it must run: a preset (see `reg devices`) or a JSON file of one device."
    ),
]


def read_one_device(place: str | None) -> "Device | None":
    """The device that the option names, if any."""
    if place is None:
        return None
    from onnxreg.cli.fleet import read_device

    return read_device(place)
