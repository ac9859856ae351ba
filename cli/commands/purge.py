"""`reg purge`: taking down bytes that must not be here."""

from typing import Annotated

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import ExactRefArgument, Json, TargetRemote
from onnxreg.cli.render import output

EXAMPLES = (
    "reg purge acme/pii-small:1.2.0 --reason 'trained on unlicensed data'",
    "reg purge acme/pii-small:1.2.0 --remote origin --reason 'trained on unlicensed data'",
    "reg purge acme/pii-small:1.2.0 --path tokenizer.json --everywhere --reason 'takedown 4711'",
)


def command(
    context: typer.Context,
    ref: ExactRefArgument,
    reason: Annotated[str, typer.Option(help="The reason, for the log.")],
    path: Annotated[
        list[str] | None,
        typer.Option(help="Only this file of the version, even if others use it; may be repeated."),
    ] = None,
    everywhere: Annotated[
        bool, typer.Option("--everywhere", help="Take down every version that has the same bytes.")
    ] = False,
    remote: TargetRemote = None,
    as_json: Json = False,
) -> None:
    """Take a version down and delete its bytes at once: they can never come back into this model.

    By default these are the files that no other version uses. The manifest and a tombstone in the log stay,
    so verify and mirrors know about it. Other registries keep their own copies: purge there too, with --remote.

    With --json: {versions: [ref], blobs: [digest], freed: {blobs, bytes}, sharing: [ref]}; sharing has the
    versions that keep some of the same files.
    """
    session: Session = context.obj
    registry, store = session.with_remote(remote)
    result = registry.purge(ref, reason, path or (), everywhere, store)
    freed = result.collected
    if as_json:
        value = {
            "versions": [str(version) for version in result.versions],
            "blobs": sorted(map(str, result.blobs)),
        }
        bytes_freed = {"blobs": len(freed.freed), "bytes": freed.size}
        output.write_json({**value, "freed": bytes_freed, "sharing": sorted(map(str, result.sharing))})
        return
    session.say(*(f"took down {version}{session.place(store)}" for version in result.versions))
    session.say(f"freed {output.counted(len(freed.freed), 'blob')}, {output.size(freed.size)}")
    if result.sharing:
        names = ", ".join(sorted(map(str, result.sharing)))
        session.say(f"files that {names} use too stay; --everywhere takes those versions down as well")
