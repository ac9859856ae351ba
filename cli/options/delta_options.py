"""The option `--deltas` of verbs that publish, and its variable `REG_DELTAS`."""

from typing import Annotated

import typer

from onnxreg.registry.support import environment
from onnxreg.schema.core.errors import InputError

MAX_RELEASES = 16

Deltas = Annotated[
    int | None,
    typer.Option(
        help="After the push, make deltas there from the N releases before; default: REG_DELTAS.", metavar="N"
    ),
]


def releases_of(option: int | None) -> int:
    """The number of earlier releases that `--deltas`, or else `REG_DELTAS`, asks for; 0: no deltas are made."""
    text = environment.read("REG_DELTAS") if option is None else str(option)
    if not text:
        return 0
    if not text.isdecimal() or int(text) > MAX_RELEASES:
        raise InputError(
            f"deltas are made from 0 to {MAX_RELEASES} earlier releases, not {text[:20]}",
            "set REG_DELTAS or --deltas to such a number",
        )
    return int(text)
