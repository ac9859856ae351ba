"""`reg pull`: copy a version from another registry, and write its files into a directory."""

from pathlib import Path

from onnxreg.cli.context import Session
from onnxreg.cli.errors import prefix_outcome, resumable
from onnxreg.cli.options import (
    FORMATS,
    FROM_OR_TO,
    MAX_AGE,
    OUTPUT,
    PRECISION,
    SAME_REMOTE,
    argument,
    complete_name,
    flag,
    one_remote,
    option,
)
from onnxreg.cli.output import fields, table
from onnxreg.cli.transfer_report import Stopwatch, arrival_lines, report_transfer
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.inputs.lockfile import FILENAME

EXAMPLES = (
    "reg pull acme/pii-small:1.2.0 s3://models/prod",
    "reg pull acme/pii-small hf://acme/models --tag stable",
    "reg pull acme/pii-small origin --output ./app/models",
    "reg pull acme/pii-small origin --format onnx-int8",
    "reg pull acme/crops origin --member backbone --member head:tomato --format onnx-int8",
    "reg pull --locked app/onnxreg.lock origin --output ./app/models",
    "reg pull acme/pii-small:stable https://mirror.example --max-age 1d",
)


def command(
    session: Session,
    ref: str | None = argument(
        "NAME[:TAG][@sha256:...], without a tag the newest version; or with --locked the lock file.",
        "[REF]",
        complete_name,
    ),
    remote: str | None = FROM_OR_TO,
    named: str | None = SAME_REMOTE,
    formats: list[str] | None = FORMATS,
    precision: str | None = PRECISION,
    members: list[str] | None = option("Only this member, such as head:tomato; may be repeated.", "--member"),
    output: Path | None = OUTPUT,
    restore: bool = flag("Bring back a version that expired here."),
    tags: list[str] | None = option("Move this channel here to its version there; may be repeated.", "--tag"),
    locked: bool = flag("Exactly the artifacts of a lock file, by default onnxreg.lock; see `reg lock`."),
    no_deltas: bool = flag("Fetch whole files, no differences from files that are here."),
    max_age: str | None = MAX_AGE,
) -> None:
    """Copy a version from a remote and verify every byte; with --output, write its files into a directory.

    With --format, --precision or --member only some artifacts are fetched and written, with the files that they
    need. --tag also copies a channel with its version. After an interruption, run the same command again: it continues.

    With --locked, name a lock file in place of REF: exactly the locked artifacts are fetched, even if a version was
    yanked since.

    With --json: {ref, remote, events, blobs, bytes, output, held} of the transfer; held has the paths of the artifacts
    that are here now, null if all are. With --tag also {channels: [{name, tag, version}]}. With --locked:
    {remote, output, models: [{name, version, path, yanked, blobs, bytes}]}.
    """
    session, remote = session.limited(max_age), one_remote(remote, named)
    if locked:
        if formats or precision or members or tags or restore:
            hint = "leave --format, --precision, --member, --tag and --restore out"
            raise InputError("a lock says which artifacts", hint)
        _pull_locked(session, Path(ref or FILENAME), remote, output, not no_deltas)
        return
    if ref is None:
        raise InputError("a REF is missing", "name what to pull, or a lock file: reg pull --locked [FILE]")
    from onnxreg.registry.log.contents import Selection

    target = None if output is None else session.check_target(output)
    registry = session.open(create=None)
    watch, channels = Stopwatch(), tags or []
    chosen = Selection(tuple(formats or ()), precision, members=tuple(members or ()))
    with resumable(), session.progress(f"pulling {ref}") as progress:
        result = registry.pull(ref, remote, progress, restore, chosen, channels, not no_deltas)
    version, digest = result.versions[0], Ref.parse(ref).digest
    if target is not None:
        pulled = Ref(result.name, None if digest else str(version), digest)
        with prefix_outcome(f"pulled {result.name}:{version}"), session.progress("writing") as progress:
            registry.write_out(pulled, target, progress, chosen)
    paths, remarks = result.artifacts[version], list(arrival_lines(result.arrivals))
    if paths is not None:
        hint = "a pull without --format and --member fetches the rest"
        remarks.append(f"held here: {', '.join(paths)}; {hint}")
    url = registry.remotes.url_of(remote)
    report_transfer(session, "pulled", result, url, watch, channels, target, remarks, held=paths)


def _pull_locked(session: Session, file: Path, remote: str | None, out: Path | None, deltas: bool) -> None:
    """Pull the artifacts that a lock file names. Files are written to `out` only after every model has arrived."""
    from onnxreg.registry import lockfile

    locked = lockfile.read(file)
    registry = session.open(create=None)
    if out is not None:
        lockfile.check_folders(locked.models, out, registry.store.root)
    watch = Stopwatch()
    with resumable(), session.progress("pulling what is locked") as progress:
        entries = lockfile.pull_locked(registry, locked, remote, progress, deltas)
    if out is not None:
        with prefix_outcome("pulled what is locked"), session.progress("writing") as progress:
            lockfile.write_locked(registry, entries, out, progress)
    url = registry.remotes.url_of(remote)
    blobs, moved = sum(item.result.blobs for item in entries), sum(item.result.size for item in entries)
    yanked = [item.entry for item in entries if item.yanked]
    models = [
        fields(item.entry, "name version")
        | {"path": item.entry.artifact.path, "yanked": item.yanked}
        | {"blobs": item.result.blobs, "bytes": item.result.size}
        for item in entries
    ]
    rows = [(*list(model.values())[:3], "yanked" if model["yanked"] else None) for model in models]
    amount = watch.amount(blobs, moved)
    session.show(
        {"remote": url, "output": out, "models": models},
        table(("MODEL", "VERSION", "PATH", "STATUS"), rows),
        "",
        f"pulled what is locked from {url}: {amount}" if blobs else "nothing to do: all of it is here",
        [f"{item.name}:{item.version} is yanked since: `reg log {item.name}` says why" for item in yanked],
        f"written to {out}" if out else None,
        arrival_lines([item for entry in entries for item in entry.result.arrivals]),
    )
