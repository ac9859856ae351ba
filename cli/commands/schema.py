"""`reg schema`: the JSON Schemas of the documents."""

from typing import Annotated

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.render import output

EXAMPLES = ("reg schema", "reg schema manifest-v2 > manifest-v2.json")


def command(
    session: Session,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The document; default: list all.")
    ] = None,
) -> None:
    """Print the JSON Schema of a document, or the names of the documents that have one."""
    from onnxreg.schema.formats import json_schema

    if name is None:
        print("\n".join(json_schema.MODELS))
    else:
        output.write_bytes(json_schema.text(name).encode())
