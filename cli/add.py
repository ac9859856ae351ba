"""`reg add`: registering model files that exist already."""

from pathlib import Path
from typing import Annotated

import typer

from onnxreg.cli.options import Json, NewName, NewVersion
from onnxreg.cli.published import announce
from onnxreg.cli.session import Session
from onnxreg.schema.version import Version

EXAMPLES = (
    "reg add model.onnx config.json tokenizer.json --name acme/ner",
    "reg add model.onnx model.onnx.golden.json --name acme/ner",
    "reg add model.ort model.required_operators_and_types.config --name acme/ner --version 1.0.0",
)


def command(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(help="Models (.onnx, .ort) and their companions.")],
    name: NewName,
    version: NewVersion = None,
    format: Annotated[str | None, typer.Option(help="The format's name, instead of the file's own.")] = None,
    precision: Annotated[
        str | None, typer.Option(help="The precision, where the weights do not say.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Register existing .onnx or .ort files with their companions; contract and operators are read from the files.

    A file that lies as it did when it was added before is not read again.

    With --json: {ref, name, version, digest, manifest, output}; output is null.
    """
    session: Session = context.obj
    asked = None if version is None else Version.parse(version)
    from onnxreg.converters.intake.confinement import Child

    with Child() as child:
        registry = session.open(create=None)
        with registry.workspace() as workspace:
            draft, _ = child.add(files, workspace, name=name, format=format, precision=precision)
            published = registry.add(draft, asked)
    announce(session, published, as_json)
