"""`reg show`: one version, as its manifest tells it."""

import typer

from onnxreg.cli import output, overview
from onnxreg.cli.options import Json, RefArgument
from onnxreg.cli.session import Session

EXAMPLES = ("reg show acme/pii-small", "reg show acme/pii-small:1.2.0 --json > openmed-onnx.json")


def command(context: typer.Context, ref: RefArgument, as_json: Json = False) -> None:
    """Show what a version holds: its artifacts, certification, checks and files.

    With --json: the manifest, byte for byte, so that its SHA-256 is the manifest's digest.
    """
    session: Session = context.obj
    found = session.open().get(ref)
    if as_json:
        output.write_bytes(found.data)
        return
    manifest = found.manifest
    session.say(str(found.ref), f"manifest  {found.digest}", *overview.facts(manifest))
    for part in (overview.artifacts, overview.remarks, overview.checks, overview.files):
        lines = list(part(manifest))
        if lines:
            session.say("", *lines)
