"""`reg push`: a version to another registry."""

from typing import Annotated

import typer

from onnxreg.cli.options import Json, RefArgument, RemoteArgument
from onnxreg.cli.session import Session
from onnxreg.cli.transferred import announce

EXAMPLES = ("reg push acme/pii-small:1.2.0 /mnt/share/models", "reg push acme/pii-small origin")


def command(
    context: typer.Context,
    ref: RefArgument,
    remote: RemoteArgument = None,
    restore: Annotated[
        bool, typer.Option("--restore", help="Bring back a version that expired there.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Copy a version to a remote, which is made there if need be. What is there already is not sent again.

    With --json: {ref, remote, events, blobs, bytes, output}: what moved; output is null.
    """
    session: Session = context.obj
    registry = session.open()
    with session.progress("pushing", as_json) as progress:
        done = registry.push(ref, remote, progress, restore)
    announce(session, "pushed", done, registry.remotes.url_of(remote), as_json)
