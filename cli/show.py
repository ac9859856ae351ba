"""`reg show`: one version, as its manifest tells it."""

import typer

from onnxreg.cli import output, overview
from onnxreg.cli.options import Json, RefArgument, RemoteOption
from onnxreg.cli.session import Session
from onnxreg.schema.ref import Ref

EXAMPLES = (
    "reg show acme/pii-small",
    "reg show acme/pii-small:1.2.0 --json > openmed-onnx.json",
    "reg show acme/pii-small --remote origin",
)


def command(
    context: typer.Context, ref: RefArgument, remote: RemoteOption = None, as_json: Json = False
) -> None:
    """Show what a version holds: its artifacts, certification, checks and files.

    With --json: the manifest, byte for byte, so that its SHA-256 is the manifest's digest.
    """
    from onnxreg.registry.facade import read_version

    session: Session = context.obj
    found = read_version(session.place(remote), Ref.parse(ref))
    if as_json:
        output.write_bytes(found.data)
        return
    manifest = found.manifest
    session.say(str(found.ref), f"manifest  {found.digest}", *overview.facts(manifest))
    for part in (overview.artifacts, overview.remarks, overview.checks, overview.files):
        lines = list(part(manifest))
        if lines:
            session.say("", *lines)
