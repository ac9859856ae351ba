"""`reg pull`: a version from another registry, and out of it as files."""

from typing import Annotated

import typer

from onnxreg.cli.options import Json, Output, RefArgument, RemoteArgument
from onnxreg.cli.session import Session
from onnxreg.cli.transferred import announce
from onnxreg.schema.ref import Ref

EXAMPLES = (
    "reg pull acme/pii-small:1.2.0 /mnt/share/models",
    "reg pull acme/pii-small origin --output ./app/models",
)


def command(
    context: typer.Context,
    ref: RefArgument,
    remote: RemoteArgument = None,
    output: Output = None,
    restore: Annotated[
        bool, typer.Option("--restore", help="Bring back a version that expired here.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Copy a version from a remote, every byte verified, and with --output write its files into a directory.

    With --json: {ref, remote, events, blobs, bytes, output}: what moved; output is a path or null.
    """
    session: Session = context.obj
    if output is not None:
        session.check_target(output)
    registry = session.open(create=True)
    with session.progress("pulling", as_json) as progress:
        done = registry.pull(ref, remote, progress, restore)
    if output is not None:
        digest = Ref.parse(ref).digest
        exact = Ref(done.name, None if digest else str(done.versions[0]), digest)
        with session.progress("writing", as_json) as progress:
            registry.write_out(exact, output, progress)
    announce(session, "pulled", done, registry.remotes.url_of(remote), as_json, output)
