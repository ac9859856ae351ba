"""`reg export`: from a trained checkpoint to a published version."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from onnxreg.cli.errors import needs
from onnxreg.cli.options import Json, NewVersion, Output
from onnxreg.cli.published import announce
from onnxreg.cli.session import Session
from onnxreg.schema.ref import Ref
from onnxreg.schema.version import Version

EXAMPLES = (
    "reg export ./checkpoint --profile android --name acme/pii-small",
    "reg export acme/pii-small@main --profile android --eval-suite golden.jsonl --output ./mobile",
)


class Profile(StrEnum):
    """What can be exported for."""

    ANDROID = "android"


def command(
    context: typer.Context,
    source: Annotated[
        str, typer.Argument(help="A checkpoint directory, or a hub id with optional @revision.")
    ],
    profile: Annotated[Profile, typer.Option(help="What to export for.")],
    name: Annotated[str | None, typer.Option(help="The model's name; without it the hub id.")] = None,
    version: NewVersion = None,
    output: Output = None,
    opset: Annotated[int | None, typer.Option(help="The ONNX opset; android has 18.")] = None,
    int8: Annotated[
        bool, typer.Option(" /--no-int8", help="Make no INT8 artifact.", show_default=False)
    ] = True,
    int8_embeddings: Annotated[
        bool, typer.Option("--int8-embeddings", help="Quantize the embedding tables too.")
    ] = False,
    rewrite: Annotated[
        bool,
        typer.Option(" /--no-rewrite", help="Keep every node as the exporter made it.", show_default=False),
    ] = True,
    max_seq_length: Annotated[int | None, typer.Option(help="The longest sequence, in tokens.")] = None,
    eval_suite: Annotated[
        Path | None, typer.Option(help="Golden fixtures (JSON or JSONL) to certify the INT8 artifact with.")
    ] = None,
    min_gold_chars: Annotated[
        int | None, typer.Option(help="Do not judge a label with fewer gold characters.")
    ] = None,
    min_parent_recall: Annotated[
        float | None,
        typer.Option(
            help="Do not judge a label where the checkpoint's own recall, less its false-alarm rate, is lower."
        ),
    ] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code that the checkpoint brings; recorded.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Export a checkpoint with a profile, measure what came out, and publish it in the registry.

    A verdict of refused or unknown is published as such, and is no failure of the export.

    With --json: {ref, name, version, digest, manifest, output}; manifest is the document, output a path or null.
    """
    wanted: dict[str, Any] = {
        "opset": opset,
        "int8": int8,
        "int8_embeddings": int8_embeddings,
        "rewrite": rewrite,
        "max_seq_length": max_seq_length,
        "trust_remote_code": trust_remote_code,
        "eval_suite": eval_suite,
        "min_gold_chars": min_gold_chars,
        "min_parent_recall": min_parent_recall,
    }
    session: Session = context.obj
    asked = None if version is None else Version.parse(version)
    if output is not None:
        session.check_target(output)
    with needs("export", "reg export"):
        from onnxreg.converters.android import AndroidOptions, export_android

        options = AndroidOptions(**{key: value for key, value in wanted.items() if value is not None})
        registry = session.open(create=True)
        with registry.workspace() as workspace:
            with session.steps(as_json) as report:
                draft = export_android(source, workspace, name=name, options=options, report=report)
            published = registry.add(draft, asked)
    if output is not None:
        registry.write_out(Ref(published.name, digest=published.digest), output)
    announce(session, published, as_json, output)
