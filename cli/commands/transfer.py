"""`reg push`, `reg pull` and `reg mirror`: copy versions between two registries."""

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxreg.cli.options import FORMATS, MAX_AGE, OUTPUT, PRECISION, Session, argument, flag, option
from onnxreg.cli.output import counted, duration, fields, prefix_outcome, resumable, size, table
from onnxreg.registry.log.log import PATTERN
from onnxreg.registry.remotes import path_of
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.schema.core.errors import InputError, RegError
from onnxreg.schema.core.ref import Ref, is_name

if TYPE_CHECKING:
    from onnxreg.registry.registry import Registry
    from onnxreg.registry.transfer.exchange import Arrival, SkippedVersion, TransferResult

EXAMPLES = (
    "reg push acme/pii-small:1.2.0 s3://models/prod",
    "reg push acme/pii-small hf://acme/models --tag stable",
    "reg push acme/pii-small hf://acme/pii-small --layout hub",
    "reg push 'acme/*' --remote origin",
    "reg push --all --remote /mnt/share/models",
    "reg push acme/pii-small:1.2.0 oci://ghcr.io/acme/pii-small",
    "reg pull acme/pii-small:1.2.0 s3://models/prod",
    "reg pull acme/pii-small origin --output ./app/models",
    "reg pull acme/pii-small origin --format onnx-int8",
    "reg pull acme/crops origin --member backbone --member head:tomato --format onnx-int8",
    "reg pull --locked app/onnxreg.lock origin --output ./app/models",
    "reg pull acme/pii-small:stable https://mirror.example --max-age 1d",
    "reg mirror origin /mnt/backup/models",
    "reg mirror /mnt/backup/models ./ours --new-id --channels",
)

FROM_OR_TO = argument(
    "A remote's name, a path or a URL; default: the only remote, or the one named origin.", "[REMOTE]"
)
SAME_REMOTE = option("The same as REMOTE, by an option.", "--remote")


def _one_remote(remote: str | None, option: str | None) -> str | None:
    if None not in (remote, option):
        raise InputError(f"two remotes are named: {remote} and {option}", "leave --remote away")
    return remote or option


def amount(blobs: int, moved: int, begun: float) -> str:
    """Describe a transfer: `6 blobs, 45.9 MB in 12 s, 3.7 MB/s`. Below one second, the rate is left out."""
    seconds = time.monotonic() - begun
    rate = f" in {duration(seconds)}, {size(round(moved / seconds))}/s" if moved and seconds >= 1 else ""
    return f"{counted(blobs, 'blob')}, {size(moved)}{rate}"


def push(
    session: Session,
    ref: str | None = argument(
        "NAME[:TAG][@sha256:...]; without a tag, the newest version. Or a quoted glob of names.",
        "[REF]",
        models=True,
    ),
    remote: str | None = FROM_OR_TO,
    named: str | None = SAME_REMOTE,
    every: bool = flag("Every version of all models, or of the models that match.", "--all"),
    tags: list[str] | None = option(
        "Move this channel in the remote to the version that it has in this registry; may be repeated.",
        "--tag",
    ),
    restore: bool = flag("Bring back a version that expired in the remote."),
    heal: bool = flag(
        "Check that every file exists in the remote, without reading it, and send lost files again."
    ),
    layout: str | None = option(
        "In a repository on the Hub, also write the usual files of the newest release.", metavar="hub"
    ),
    deltas: bool = flag("After the push, make deltas in the remote from older versions."),
) -> None:
    """Copy versions to a remote, which is created if necessary. Files that the remote has are not sent again.

    A glob such as 'acme/*' means the newest release of each matching model. With --all, it means every version of each
    matching model. Without a glob, --all means every version of every model. A failure of one model does not stop the
    others. After an interruption, run the same command again.

    --tag also moves a channel in the remote. --deltas makes later updates small (docs/delta.md). --layout hub puts the
    usual files of the model beside the registry in a repository on the Hub (docs/hub.md).

    oci://HOST[:PORT]/REPOSITORY[:TAG] is an OCI registry, for skopeo, oras and other programs (docs/oci.md).

    With --json: {ref, remote, events, blobs, bytes, output}; output is null. With --tag also {channels: [{name, tag,
    version}]}. For a glob or --all: {remote, pushed: [{ref, versions, events, blobs, bytes}], skipped: [{ref, reason}],
    channels}. If versions are yanked in the remote, there is a key yanked: [{version, of, reason}]. For an OCI
    registry: {ref, url, digest, blobs, bytes, referrers}.
    """
    from onnxreg.registry.transfer.exchange import worst_error

    destination, channels = _one_remote(remote, named), tags or []
    is_one = ref is not None and not every and not PATTERN & set(ref)
    if ref is None and not every:
        raise InputError("what to push is missing", "name a REF, a glob such as 'acme/*', or --all")
    if destination is not None and destination.startswith("oci://"):
        if not is_one or channels or restore or heal or layout or deltas:
            raise InputError("an OCI registry takes one version", f"reg push REF {destination}")
        _push_to_oci(session, str(ref), destination)
        return
    if layout is not None and not is_one:
        raise InputError("a repository has the layout of one model", "name one REF with --layout")
    if ref is not None and not is_one and not PATTERN & set(ref) and not is_name(ref):
        raise InputError(f"not a model's name or a glob: {ref}", "a remote is named with --remote")
    registry, begun = session.open(), time.monotonic()
    if destination and "/" in destination and is_name(destination) and registry.store.read_index(destination):
        hint = f"push takes one REF, or a glob such as 'acme/*'; a directory is ./{destination}"
        raise InputError(f"{destination} is a model here, not a remote", hint)
    is_new = False
    with suppress(RegError, OSError):  # the push itself says what is wrong
        path = path_of(registry.remotes.url_of(destination))
        is_new = path is not None and not DirectoryRegistry(path).is_there
    with resumable(), session.progress(f"pushing {ref or ''}".rstrip()) as progress:
        if is_one:
            sent = [registry.push(str(ref), destination, progress, restore, heal, channels, layout)]
        else:
            sent = registry.push_many(ref or "*", destination, every, progress, restore, heal, channels)
    url = registry.remotes.url_of(destination)
    remarks = [f"{url} is a new registry"] if is_new else []
    if is_one:
        report_transfer(session, "pushed", sent[0], url, begun, channels, remarks=remarks)
    else:
        session.show(_to_json(url, sent), _lines(url, sent, begun), remarks)
        for model in sent:
            warn_of_yanks(session, model)
    if deltas:
        _offer_deltas(session, registry, [model for model in sent if is_one or model.has_copied], destination)
    if not is_one and (error := worst_error(item for model in sent for item in model.skipped)):
        raise error


def _push_to_oci(session: Session, ref: str, url: str) -> None:
    from onnxreg.registry.oci import OciTarget, publish

    target = OciTarget.parse(url)
    with resumable(), session.progress(f"pushing {ref}") as progress:
        result = publish(session.reader(), Ref.parse(ref), target, progress, session.heads())
    url = str(OciTarget(target.host, target.repository, result.target.tag))
    session.show(
        fields(result, "ref=version.ref digest=target.digest blobs referrers bytes=size") | {"url": url},
        f"pushed {result.version.ref} to {result.target}",
        f"sent {counted(result.blobs, 'blob')}, {size(result.size)}",
    )


def _offer_deltas(
    session: Session, registry: "Registry", sent: "Sequence[TransferResult]", remote: str | None
) -> None:
    from onnxreg.cli.services import make_deltas

    for ref in [Ref(model.name, str(version)) for model in sent for version in model.versions]:
        with prefix_outcome(f"{ref} is published"), session.steps() as progress:
            report = make_deltas(registry, registry.remotes.open(remote), ref, (), progress)
        if report.new:
            total = size(sum(delta.size for delta in report.deltas))
            session.say(f"{ref} offers {counted(len(report.deltas), 'delta')}, {total}")


def _to_json(url: str, sent: "Sequence[TransferResult]") -> dict[str, Any]:
    pushed = []
    for model in (model for model in sent if model.has_copied):
        ref = f"{model.name}:{model.versions[0]}" if len(model.versions) == 1 else model.name
        pushed.append(to_json(ref, model, versions=model.versions))
    skipped = [
        {"ref": f"{item.name}:{item.tag}" if item.tag else item.name, "reason": item.reason}
        for model in sent
        for item in model.skipped
    ]
    channels = [channel for model in sent for channel in channels_to_json(model)]
    return {"remote": url, "pushed": pushed, "skipped": skipped, "channels": channels}


def _lines(url: str, sent: "Sequence[TransferResult]", begun: float) -> Iterator[str]:
    moved = [model for model in sent if model.has_copied]
    rows = []
    for model in moved:
        versions = model.versions if len(model.versions) < 4 else f"{len(model.versions)} versions"
        channels = [f"{tag.tag}: {tag.version}" for tag in model.channels]
        rows.append((model.name, versions, model.blobs, size(model.size), channels))
    yield from table(("PUSHED", "VERSION", "BLOBS", "SIZE", "CHANNELS"), rows)
    yield from skipped_lines(item for model in sent for item in model.skipped)
    if moved:
        total = amount(sum(model.blobs for model in moved), sum(model.size for model in moved), begun)
        yield f"pushed {counted(len(moved), 'model')} to {url}: {total}"
    if current := sum(model.is_current for model in sent):
        yield f"up to date with {url}: {counted(current, 'model')}"


def pull(
    session: Session,
    ref: str | None = argument(
        "NAME[:TAG][@sha256:...]; without a tag, the newest version. With --locked: the lock file.",
        "[REF]",
        models=True,
    ),
    remote: str | None = FROM_OR_TO,
    named: str | None = SAME_REMOTE,
    formats: list[str] | None = FORMATS,
    precision: str | None = PRECISION,
    members: list[str] | None = option("Only this member, such as head:tomato; may be repeated.", "--member"),
    output: Path | None = OUTPUT,
    restore: bool = flag("Bring back a version that expired in this registry."),
    tags: list[str] | None = option(
        "Move this channel in this registry to the version that it has in the remote; may be repeated.",
        "--tag",
    ),
    locked: bool = flag("Exactly the artifacts of a lock file, by default onnxreg.lock; see `reg lock`."),
    no_deltas: bool = flag("Fetch whole files, not differences to files that this registry has."),
    max_age: str | None = MAX_AGE,
) -> None:
    """Copy a version from a remote and verify every byte; with --output, write its files into a directory.

    With --format, --precision or --member only some artifacts are fetched and written, with the files that they need.
    --tag also copies a channel with its version. To continue after an interruption, run the command again.

    With --locked, name a lock file in place of REF: exactly the locked artifacts are fetched, even if a version was
    yanked after it was locked.

    With --json: {ref, remote, events, blobs, bytes, output, held}; held has the paths of the artifacts that this
    registry has now, and is null if it has all. With --tag also {channels: [{name, tag, version}]}. With --locked:
    {remote, output, models: [{name, version, path, yanked, blobs, bytes}]}.
    """
    session, remote = session.with_max_age(max_age), _one_remote(remote, named)
    if locked:
        if formats or precision or members or tags or restore:
            hint = "leave --format, --precision, --member, --tag and --restore out"
            raise InputError("a lock says which artifacts", hint)
        _pull_locked(session, ref, remote, output, not no_deltas)
        return
    if ref is None:
        raise InputError("a REF is missing", "name what to pull, or a lock file: reg pull --locked [FILE]")
    from onnxreg.registry.log.contents import Selection

    target = None if output is None else session.check_target(output)
    registry = session.open(create=None)
    begun, channels = time.monotonic(), tags or []
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
    report_transfer(session, "pulled", result, url, begun, channels, target, remarks, held=paths)


def _pull_locked(
    session: Session, file: str | None, remote: str | None, out: Path | None, deltas: bool
) -> None:
    """Pull the artifacts in a lock file. Files are written to `out` only after all models have arrived."""
    from onnxreg.registry import lockfile
    from onnxreg.schema.inputs.lockfile import FILENAME

    locked = lockfile.read(Path(file or FILENAME))
    registry = session.open(create=None)
    if out is not None:
        lockfile.check_folders(locked.models, out, registry.store.root)
    begun = time.monotonic()
    with resumable(), session.progress("pulling what is locked") as progress:
        entries = lockfile.pull_locked(registry, locked, remote, progress, deltas)
    if out is not None:
        with prefix_outcome("pulled what is locked"), session.progress("writing") as progress:
            lockfile.write_locked(registry, entries, out, progress)
    url = registry.remotes.url_of(remote)
    blobs, moved = sum(item.result.blobs for item in entries), sum(item.result.size for item in entries)
    yanked = [item.entry for item in entries if item.yanked]
    facts = "name=entry.name version=entry.version path=entry.artifact.path yanked"
    models = [fields(item, f"{facts} blobs=result.blobs bytes=result.size") for item in entries]
    rows = [(*list(model.values())[:3], "yanked" if model["yanked"] else None) for model in models]
    session.show(
        {"remote": url, "output": out, "models": models},
        table(("MODEL", "VERSION", "PATH", "STATUS"), rows),
        "",
        f"pulled what is locked from {url}: {amount(blobs, moved, begun)}"
        if blobs
        else "nothing to do: all of it is here",
        [f"{item.name}:{item.version} is yanked: `reg log {item.name}` says why" for item in yanked],
        f"written to {out}" if out else None,
        arrival_lines([item for entry in entries for item in entry.result.arrivals]),
    )


def mirror(
    session: Session,
    source: str = argument("A remote's name, a path or a URL.", "SRC"),
    destination: str = argument("A remote's name, a path or a URL; created if missing.", "DST"),
    new_id: bool = flag("Make DST a separate registry, which can be written."),
    channels: bool = flag("Move DST's channels to SRC's versions; DST's log records it."),
) -> None:
    """Copy everything from one registry to another. Files that DST has are not sent again.

    If DST does not exist, it becomes a read-only mirror: same id, same logs, all files that SRC still has. Run the
    command again to update it: files that SRC expired or took down are then deleted in DST too. If the histories
    differ, nothing is written. If DST has its own id (see --new-id), it gets every version as `reg push` would send it.
    The command lists versions that SRC no longer has, and versions that DST refuses.

    With --json: {source, destination, models, versions, events, blobs, bytes, freed: {blobs, bytes}, skipped: [{name,
    tag, reason}]}; models counts the models of SRC, versions counts the versions that are new in DST, events and blobs
    count the transferred events and blobs, and freed counts the blobs that were deleted in DST. tag is a version or a
    channel, or null for a whole model.
    """
    from onnxreg.registry.transfer.exchange import worst_error
    from onnxreg.registry.transfer.mirror import mirror as copy_registry
    from onnxreg.registry.transfer.mirror import open_both

    places = open_both(session.remotes(), source, destination, new_id)
    begun = time.monotonic()
    with resumable(), session.progress("mirroring") as progress:
        result = copy_registry(*places, channels, progress, known_heads=session.heads())
    missing = len({item.name for item in result.skipped if item.tag is None})
    models = counted(result.models, "model")
    share = f"{result.models - missing} of the {models}" if missing else models
    freed = f"{counted(len(result.freed.freed), 'blob')}, {size(result.freed.size)}"
    session.show(
        result,
        skipped_lines(result.skipped),
        f"{result.destination} has {share} of {result.source}",
        f"brought {counted(result.versions, 'version')}, {amount(result.blobs, result.size, begun)}",
        f"deleted {freed} that {result.source} gave up" if result.freed.freed else None,
    )
    if error := worst_error(result.skipped):
        raise error


def report_transfer(
    session: Session,
    verb: str,
    result: "TransferResult",
    remote: str,
    begun: float,
    tags: Sequence[str] = (),
    out: Path | None = None,
    remarks: Iterable[str] = (),
    **more: Any,
) -> None:
    """Show a transfer, then `remarks`. The JSON also has the keys in `more`, and moved channels if `tags` is set."""
    ref, channels = f"{result.name}:{result.versions[0]}", {"channels": channels_to_json(result)}
    if result.events or result.blobs:
        moved, link = ref if len(result.versions) == 1 else result.name, "to" if verb == "pushed" else "from"
        news = amount(result.blobs, result.size, begun) if result.blobs else counted(result.events, "event")
        outcome = f"{verb} {moved} {link} {remote}: {news}"
    else:
        outcome = f"{'' if out else 'nothing to do: '}{ref} is up to date with {remote}"
    session.show(
        {**to_json(ref, result, remote=remote, output=out), **more, **(channels if tags else {})},
        outcome,
        [f"{verb} channel {tag.tag}: {result.name}:{tag.version}" for tag in result.channels],
        f"written to {out}" if out else None,
        remarks,
    )
    warn_of_yanks(session, result, "there" if verb == "pushed" else "here")


def warn_of_yanks(session: Session, result: "TransferResult", destination: str = "there") -> None:
    for warning in result.warnings(destination) if not session.as_json else ():
        session.warn(f"warning: {warning}")


def arrival_lines(arrivals: "Collection[Arrival]") -> Iterator[str]:
    """Yield lines that say how many bytes deltas saved, and why other files arrived without a delta."""
    if saved := sum(item.size - item.moved for item in arrivals if item.since):
        yield f"deltas saved {size(saved)} of {size(sum(item.size for item in arrivals))}"
    yield from (f"note: {reason}" for reason in sorted({item.doubt for item in arrivals if item.doubt}))


def skipped_lines(skipped: "Iterable[SkippedVersion]") -> Iterator[str]:
    return table(("SKIPPED", "TAG", "WHY"), [(item.name, item.tag, item.reason) for item in skipped])


def to_json(ref: str, result: "TransferResult", **more: Any) -> dict[str, Any]:
    """Return a transfer as JSON: `{ref, events, blobs, bytes}` and `more`. Yanked versions add the key `yanked`."""
    document = {"ref": ref, **more, **fields(result, "events blobs bytes=size")}
    yanks = [
        {"version": key, "of": yank.version, "reason": yank.reason} for key, yank in result.yanks.items()
    ]
    return document | ({"yanked": yanks} if yanks else {})


def channels_to_json(result: "TransferResult") -> list[dict[str, Any]]:
    return [{"name": result.name, "tag": tag.tag, "version": tag.version} for tag in result.channels]
