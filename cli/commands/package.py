"""`reg package`: a version as a model package of ONNX Runtime."""

from pathlib import Path
from typing import Annotated

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import Json, Precision, RefArgument
from onnxreg.cli.render import output
from onnxreg.schema.core.ref import Ref

EXAMPLES = (
    "reg package acme/pii-small:1.2.0 ./pii-small.ortpackage",
    "reg package acme/pii-small ./pii-small.ortpackage --format onnx-int8",
)


def command(
    session: Session,
    ref: RefArgument,
    directory: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="A new directory, or an earlier package.")
    ],
    formats: Annotated[
        list[str] | None,
        typer.Option("--format", help="Only artifacts of this format; may be repeated."),
    ] = None,
    precision: Precision = None,
    as_json: Json = False,
) -> None:
    """Write a version as a model package of ONNX Runtime (schema 1.0), which picks the variant that fits.

    The package has one component, named after the model; a directory for each artifact, with a variant for
    the CPU and for each of its execution providers; and the files that all artifacts share as shared
    assets, addressed by digest. Every byte is verified, and the same version gives the same bytes. See
    docs/ort-packages.md.

    With --json: {ref, manifest, output, component, variants: [{name, ep, artifact, format, precision,
    digest, directory}], shared_assets, bytes, left_out}: directory is the digest of the variant's
    directory, left_out has the artifacts that ONNX Runtime does not load.
    """
    from onnxreg.registry.log.contents import Selection
    from onnxreg.registry.transfer.export_files import write_package

    registry = session.open()
    with session.progress("writing") as progress:
        chosen = Selection(tuple(formats or ()), precision)
        published, layout = write_package(registry.store, Ref.parse(ref), directory, chosen, progress)
    variants = [
        {
            "name": item.name,
            "ep": item.ep,
            "artifact": item.artifact.path,
            "format": item.artifact.format,
            "precision": item.artifact.precision,
            "digest": str(item.artifact.digest),
            "directory": str(item.directory),
        }
        for item in layout.variants
    ]
    document = {
        "ref": str(published.ref),
        "output": str(directory),
        "manifest": str(published.digest),
        "component": layout.component,
        "variants": variants,
        "shared_assets": list(map(str, layout.assets)),
        "bytes": layout.size,
        "left_out": list(layout.left_out),
    }
    rows = [(item.name, item.ep, item.artifact.path, item.artifact.digest.short) for item in layout.variants]
    left_out = f"left out, since ONNX Runtime does not load it: {', '.join(layout.left_out)}"
    session.show(
        document,
        output.table(("VARIANT", "PROVIDER", "ARTIFACT", "DIGEST"), rows),
        [left_out] if layout.left_out else [],
        f"written to {directory}: component {layout.component}, {output.size(layout.size)}",
    )
