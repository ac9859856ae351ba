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
    "reg pull acme/pii-small origin --format onnx-int8",
)


def command(
    context: typer.Context,
    ref: RefArgument,
    remote: RemoteArgument = None,
    formats: Annotated[
        list[str] | None,
        typer.Option("--format", help="Only artifacts of this format, and what all share; may be repeated."),
    ] = None,
    precision: Annotated[str | None, typer.Option(help="Only artifacts of this precision.")] = None,
    output: Output = None,
    restore: Annotated[
        bool, typer.Option("--restore", help="Bring back a version that expired here.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Copy a version from a remote, every byte verified, and with --output write its files into a directory.

    With --format or --precision only some artifacts are fetched, with their sidecars and the files that all share, beside
    those that are here; the log records which are held, and the version counts as partial. Without them a pull fetches
    the rest.

    With --json: {ref, remote, events, blobs, bytes, output, held}: what moved; output is a path or null; held are the
    paths of the artifacts that are here now, null where these are all.
    """
    from onnxreg.registry.holdings import Selection

    session: Session = context.obj
    if output is not None:
        session.check_target(output)
    registry = session.open(create=True)
    with session.progress("pulling", as_json) as progress:
        done = registry.pull(ref, remote, progress, restore, Selection(tuple(formats or ()), precision))
    if output is not None:
        digest = Ref.parse(ref).digest
        exact = Ref(done.name, None if digest else str(done.versions[0]), digest)
        with session.progress("writing", as_json) as progress:
            registry.write_out(exact, output, progress)
    held = done.held[done.versions[0]]
    paths = None if held is None else list(held)
    announce(session, "pulled", done, registry.remotes.url_of(remote), as_json, output, held=paths)
    if held is not None and not as_json:
        session.say(f"held here: {', '.join(held)}; a pull without --format fetches the rest")
