"""`reg pull`: a version from another registry, and out of it as files."""

from typing import Annotated

import typer

from onnxreg.cli.errors import resumable
from onnxreg.cli.options import Json, Output, RefArgument, RemoteArgument
from onnxreg.cli.session import Session
from onnxreg.cli.transferred import Stopwatch, announce
from onnxreg.schema.ref import Ref

EXAMPLES = (
    "reg pull acme/pii-small:1.2.0 s3://models/prod",
    "reg pull acme/pii-small hf://acme/models --tag stable",
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
    tags: Annotated[
        list[str] | None,
        typer.Option("--tag", help="Move this channel here to what it holds there. May be repeated."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Copy a version from a remote, every byte verified, and with --output write its files into a directory.

    --tag takes a channel along, with the version it holds: an event of this registry's own log, in the same step. A pull
    that was interrupted can be run again.

    With --json: {ref, remote, events, blobs, bytes, output}: what moved; output is a path or null. With --tag also
    {channels: [{name, tag, version}]}: those that moved.
    """
    session: Session = context.obj
    if output is not None:
        session.check_target(output)
    registry = session.open(create=True)
    watch, channels = Stopwatch(), tags or []
    with resumable(), session.progress(f"pulling {ref}", as_json) as progress:
        done = registry.pull(ref, remote, progress, restore, channels)
    if output is not None:
        digest = Ref.parse(ref).digest
        exact = Ref(done.name, None if digest else str(done.versions[0]), digest)
        with session.progress("writing", as_json) as progress:
            registry.write_out(exact, output, progress)
    announce(session, "pulled", done, registry.remotes.url_of(remote), as_json, watch, channels, output)
