"""`reg purge`: taking down bytes that must not be here."""

from typing import Annotated

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.completion import complete_ref
from onnxreg.cli.options.shared import Json, TargetRemote
from onnxreg.cli.render import output
from onnxreg.schema.core.ref import Ref

EXAMPLES = (
    "reg purge acme/pii-small:1.2.0 --reason 'trained on unlicensed data'",
    "reg purge acme/pii-small:1.2.0 --remote origin --reason 'trained on unlicensed data'",
    "reg purge acme/pii-small:1.2.0 acme/pii-small:1.2.1 --reason 'takedown 4711'",
)


def command(
    session: Session,
    refs: Annotated[
        list[str],
        typer.Argument(
            help="NAME:TAG or NAME@sha256:...; a name alone is refused.",
            metavar="REF...",
            autocompletion=complete_ref,
        ),
    ],
    reason: Annotated[str, typer.Option(help="The reason, for the log.")],
    remote: TargetRemote = None,
    as_json: Json = False,
) -> None:
    """Take versions down and delete their bytes at once: they can never come back into these models.

    Files that a version outside the list uses stay, and that version is named: add it to take them down too. The
    manifests and tombstones in the log stay, so verify and mirrors know about it. Other registries keep their own
    copies: purge there too, with --remote.

    With --json: {versions: [ref], blobs: [digest], freed: {blobs, bytes}, sharing: [ref]}; sharing has the
    versions outside the list that use some of the same files.
    """
    from onnxreg.registry.log.collect import collect

    registry, store = session.with_remote(remote)
    decisions = registry.decisions(remote=store)
    versions, blobs, sharing = decisions.purge(list(map(Ref.parse, refs)), reason)
    freed = collect(decisions.store, only=blobs)
    others = sorted(str(ref) for ref in sharing)
    if as_json:
        value = {"versions": [str(version.ref) for version in versions], "blobs": sorted(map(str, blobs))}
        bytes_freed = {"blobs": len(freed.freed), "bytes": freed.size}
        output.write_json({**value, "freed": bytes_freed, "sharing": others})
        return
    session.say(*(f"took down {version.ref}{session.place(store)}" for version in versions))
    session.say(f"freed {output.counted(len(freed.freed), 'blob')}, {output.size(freed.size)}")
    if others:
        session.say(
            f"files that {', '.join(others)} also use stay; to delete them, take down these versions too"
        )
