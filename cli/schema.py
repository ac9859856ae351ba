"""`reg schema`: the JSON Schemas of the documents."""

from typing import Annotated

import typer

from onnxreg.cli import output

EXAMPLES = ("reg schema", "reg schema manifest-v2 > manifest-v2.json")


def command(
    name: Annotated[str | None, typer.Argument(help="The document; without it, list them.")] = None,
) -> None:
    """Print the JSON Schema of a document, or the names of the documents that have one."""
    from onnxreg.schema import jsonschema

    if name is None:
        print("\n".join(jsonschema.MODELS))
    else:
        output.write_bytes(jsonschema.text(name).encode())
