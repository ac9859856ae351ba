"""`reg mirror`: copy a whole registry to another place."""

from onnxreg.cli.context import Session
from onnxreg.cli.errors import resumable
from onnxreg.cli.options import argument, flag
from onnxreg.cli.output import counted, size
from onnxreg.cli.transfer_report import Stopwatch, skipped_lines

EXAMPLES = (
    "reg mirror origin /mnt/backup/models",
    "reg mirror /mnt/backup/models ./ours --new-id --channels",
)


def command(
    session: Session,
    source: str = argument("A remote's name, a path or a URL.", "SRC"),
    destination: str = argument("A remote's name, a path or a URL; created if missing.", "DST"),
    new_id: bool = flag("Make DST a separate registry, which can be written."),
    channels: bool = flag("Move DST's channels to SRC's versions; DST's log records it."),
) -> None:
    """Copy everything from one registry to another. Files that DST has already are not sent again.

    If DST does not exist, it becomes a mirror: same id, same logs, all files that SRC still has, and read-only.
    Run the command again to update the mirror: files that SRC expired or took down are then deleted in DST too. If
    the histories differ, nothing is written. If DST has its own id (see --new-id), it gets every version as by
    `reg push`; versions that SRC no longer has or DST refuses are listed.

    With --json: {source, destination, models, versions, events, blobs, bytes, freed: {blobs, bytes},
    skipped: [{name, tag, reason}]}: models of SRC, versions new in DST, transferred events and blobs, deleted blobs;
    tag is a version or channel, null for a whole model.
    """
    from onnxreg.registry.transfer.exchange import worst
    from onnxreg.registry.transfer.mirror import mirror, open_both

    places = open_both(session.remotes(), source, destination, new_id)
    watch = Stopwatch()
    with resumable(), session.progress("mirroring") as progress:
        result = mirror(*places, channels, progress)
    missing = len({item.name for item in result.skipped if item.tag is None})
    models = counted(result.models, "model")
    share = f"{result.models - missing} of the {models}" if missing else models
    freed = f"{counted(len(result.freed.freed), 'blob')}, {size(result.freed.size)}"
    session.show(
        result,
        skipped_lines(result.skipped),
        f"{result.destination} has {share} of {result.source}",
        f"brought {counted(result.versions, 'version')}, {watch.amount(result.blobs, result.size)}",
        f"deleted {freed} that {result.source} gave up" if result.freed.freed else None,
    )
    if error := worst(result.skipped):
        raise error
