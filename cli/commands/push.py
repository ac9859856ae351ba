"""`reg push`: copy versions to another registry."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from onnxreg.cli.context import Session
from onnxreg.cli.errors import prefix_outcome, resumable
from onnxreg.cli.options import FROM_OR_TO, SAME_REMOTE, argument, complete_name, flag, one_remote, option
from onnxreg.cli.output import counted, fields, size, table
from onnxreg.cli.transfer_report import (
    Stopwatch,
    channels_to_json,
    report_transfer,
    skipped_lines,
    warn_of_yanks,
    yanked_to_json,
)
from onnxreg.registry.log.log import PATTERN
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Ref, is_name

if TYPE_CHECKING:
    from onnxreg.registry.registry import Registry
    from onnxreg.registry.transfer.exchange import TransferResult

EXAMPLES = (
    "reg push acme/pii-small:1.2.0 s3://models/prod",
    "reg push acme/pii-small hf://acme/models --tag stable",
    "reg push acme/pii-small hf://acme/pii-small --layout hub",
    "reg push 'acme/*' --remote origin",
    "reg push --all --remote /mnt/share/models",
    "reg push acme/pii-small:1.2.0 oci://ghcr.io/acme/pii-small",
)


def command(
    session: Session,
    ref: str | None = argument(
        "NAME[:TAG][@sha256:...], without a tag the newest version; or a glob of names, quoted.",
        "[REF]",
        complete_name,
    ),
    remote: str | None = FROM_OR_TO,
    named: str | None = SAME_REMOTE,
    every: bool = flag("Every version: of all models, or of those that match.", "--all"),
    tags: list[str] | None = option("Move this channel there to its version here; may be repeated.", "--tag"),
    restore: bool = flag("Bring back a version that expired there."),
    heal: bool = flag("Check that every file exists there, without reading it; send lost files again."),
    layout: str | None = option("On the Hub, also the usual files of the newest release.", metavar="hub"),
    deltas: bool = flag("After the push, make deltas there from older versions."),
) -> None:
    """Copy versions to a remote, which is created if necessary. Files that the remote has are not sent again.

    A glob such as 'acme/*' means the newest release of each matching model; with --all every version of these
    models, and --all alone means everything. A failure of one model does not stop the others. After an
    interruption, run the same command again.

    --tag also moves a channel in the remote. --deltas makes later updates small (docs/delta.md). --layout hub puts the
    usual files of the model beside the registry in a repository on the Hub (docs/hub.md).

    oci://HOST[:PORT]/REPOSITORY[:TAG] is an OCI registry, for skopeo, oras and other programs (docs/oci.md).

    With --json: {ref, remote, events, blobs, bytes, output} of the transfer; output is null. With --tag also
    {channels: [{name, tag, version}]}. For a glob or --all: {remote, pushed: [{ref, versions, events, blobs,
    bytes}], skipped: [{ref, reason}], channels}. If versions are yanked there, also {yanked: [{version, of,
    reason}]}. For an OCI registry: {ref, url, digest, blobs, bytes, referrers}.
    """
    from onnxreg.registry.transfer.exchange import worst

    destination, channels = one_remote(remote, named), tags or []
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
    registry, watch = session.open(), Stopwatch()
    if destination and "/" in destination and is_name(destination) and registry.store.read_index(destination):
        hint = f"push takes one REF, or a glob such as 'acme/*'; a directory is ./{destination}"
        raise InputError(f"{destination} is a model here, not a remote", hint)
    with resumable(), session.progress(f"pushing {ref or ''}".rstrip()) as progress:
        if is_one:
            sent = [registry.push(str(ref), destination, progress, restore, heal, channels, layout)]
        else:
            sent = registry.push_many(ref or "*", destination, every, progress, restore, heal, channels)
    url = registry.remotes.url_of(destination)
    if is_one:
        report_transfer(session, "pushed", sent[0], url, watch, channels)
    else:
        session.show(_to_json(url, sent), _lines(url, sent, watch))
        for model in sent:
            warn_of_yanks(session, model)
    if deltas:
        _offer_deltas(session, registry, [model for model in sent if is_one or model.has_copied], destination)
    if not is_one and (error := worst(item for model in sent for item in model.skipped)):
        raise error


def _push_to_oci(session: Session, ref: str, url: str) -> None:
    from onnxreg.registry.oci.client import OciTarget
    from onnxreg.registry.oci.versions import publish

    target = OciTarget.parse(url)
    with resumable(), session.progress(f"pushing {ref}") as progress:
        result = publish(session.reader(), Ref.parse(ref), target, progress, session.heads())
    document = {
        "ref": result.version.ref,
        "digest": result.target.digest,
        **fields(result, "blobs referrers"),
    }
    url = str(OciTarget(target.host, target.repository, result.target.tag))
    session.show(
        document | {"url": url, "bytes": result.size},
        f"pushed {result.version.ref} to {result.target}",
        f"sent {counted(result.blobs, 'blob')}, {size(result.size)}",
    )


def _offer_deltas(
    session: Session, registry: "Registry", sent: "Sequence[TransferResult]", remote: str | None
) -> None:
    """Make deltas of the pushed versions in the remote. Errors add that the versions are published."""
    from onnxreg.cli.services import make_deltas

    for ref in [Ref(model.name, str(version)) for model in sent for version in model.versions]:
        with prefix_outcome(f"{ref} is published"), session.steps() as progress:
            report = make_deltas(registry, registry.remotes.open(remote), ref, (), progress)
        if report.new:
            total = size(sum(delta.size for delta in report.deltas))
            session.say(f"{ref} offers {counted(len(report.deltas), 'delta')}, {total}")


def _to_json(url: str, sent: "Sequence[TransferResult]") -> dict[str, Any]:
    pushed = [
        {"ref": f"{model.name}:{model.versions[0]}" if len(model.versions) == 1 else model.name}
        | {**fields(model, "versions events blobs"), "bytes": model.size, **yanked_to_json(model)}
        for model in sent
        if model.has_copied
    ]
    skipped = [
        {"ref": f"{item.name}:{item.tag}" if item.tag else item.name, "reason": item.reason}
        for model in sent
        for item in model.skipped
    ]
    channels = [channel for model in sent for channel in channels_to_json(model)]
    return {"remote": url, "pushed": pushed, "skipped": skipped, "channels": channels}


def _lines(url: str, sent: "Sequence[TransferResult]", watch: Stopwatch) -> Iterator[str]:
    moved = [model for model in sent if model.has_copied]
    rows = [
        (
            model.name,
            model.versions if len(model.versions) < 4 else f"{len(model.versions)} versions",
            model.blobs,
            size(model.size),
            [f"{tag.tag}: {tag.version}" for tag in model.channels],
        )
        for model in moved
    ]
    yield from table(("PUSHED", "VERSION", "BLOBS", "SIZE", "CHANNELS"), rows)
    yield from skipped_lines(item for model in sent for item in model.skipped)
    if moved:
        amount = watch.amount(sum(model.blobs for model in moved), sum(model.size for model in moved))
        yield f"pushed {counted(len(moved), 'model')} to {url}: {amount}"
    if current := sum(model.is_current for model in sent):
        yield f"up to date with {url}: {counted(current, 'model')}"
