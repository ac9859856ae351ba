"""`reg sbom`: a version's bill of materials."""

import re
from pathlib import Path
from typing import Annotated

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import Json, RefArgument, RemoteOption
from onnxreg.cli.render import output
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Ref

EXAMPLES = (
    "reg sbom acme/pii-small > pii-small.cdx.json",
    "reg sbom acme/pii-small:1.2.0 --output pii-small.cdx.json",
    "reg sbom acme/pii-small --remote origin --timestamp 2026-01-31T12:00:00Z",
)
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def command(
    context: typer.Context,
    ref: RefArgument,
    remote: RemoteOption = None,
    out: Annotated[Path | None, typer.Option("--output", help="Write to this file.")] = None,
    timestamp: Annotated[
        str | None, typer.Option(help="The bill's time, such as 2026-01-31T12:00:00Z; default: none.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print a version's bill of materials: CycloneDX 1.6 with model cards (ML-BOM).

    It uses only the manifest. It lists every file with its SHA-256, the source of the version, its tools
    and steps, and for each artifact its quantization, its recall by label with limit and interval, and its
    certification. Without --timestamp the same version gives the same bytes anywhere. See docs/sbom.md.

    The output is JSON with or without --json.
    """
    from onnxreg.registry.read.versions import read_version
    from onnxreg.schema.formats.sbom import BomSubject, bill

    if timestamp is not None and not TIME.fullmatch(timestamp):
        raise InputError(f"not a time: {timestamp[:40]!r}", "write --timestamp 2026-01-31T12:00:00Z")
    session: Session = context.obj
    published = read_version(session.reader(remote), Ref.parse(ref))
    value = bill(BomSubject(published.manifest, published.digest, published.version), timestamp)
    if out is None:
        output.write_json(value)
        return
    output.write_file(out, f"{output.json_text(value)}\n".encode())
    if not as_json:
        session.say(f"written to {out}")
