"""Plan a transfer: compare a request with the destination's log. Planned again whenever that log has changed.

The rule for two logs of one model. Same registry id: one log must be a prefix of the other, and lines are appended
verbatim. Different ids: chains are never spliced; the events of the chosen versions travel, each with `via`, onto
the destination's own chain.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from onnxreg.registry.log.commit import check_tombstones
from onnxreg.registry.log.contents import (
    EVERYTHING,
    ArtifactPaths,
    Reference,
    Selection,
    check_fits,
    check_held,
    documents,
    files,
    hold_events,
    paths_after,
    selected_paths,
    versions_to_update,
)
from onnxreg.registry.log.ledger import Ledger, channel_of
from onnxreg.registry.log.lookup import check_summary, read_manifest
from onnxreg.registry.log.yanked_bytes import check_not_yanked
from onnxreg.registry.support.actor import TIME_FORMAT, stamp
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import Advice, ConflictError, ForkError, IntegrityError, NotFoundError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.events import Attest, Hold, OptionalEvent, Publish, Restore, Tag, Unyank, Yank
from onnxreg.schema.log.logline import LogLine, Via
from onnxreg.schema.log.state import Channel, VersionEntry

MakeRestore = Callable[[str, Version, VersionEntry], Restore]
"""Creates the event that brings a version of a model back, given its entry."""
TRAVELLING = frozenset(kind.kind for kind in (Publish, Attest, Yank, Unyank))


@dataclass(frozen=True)
class TransferRequest:
    """Versions of a model that a destination is to have, with their events.

    Args:
        selection: copy only these artifacts, beside those already there; an event records which are held.
        channels: channels that are to hold one of these versions, as in the source, by events of the destination.
        restore: creates the event that brings back a version that the destination expired, with its files.
        heal: copy again files that the destination has lost; without it, a destination whose log is complete
            is believed to have them, and is not asked.
        actor: the claimed author of the events that record which artifacts are held, and that move channels.
        deltas: if files may arrive by deltas.
        yanked_bytes: if a version may have artifacts that only yanked versions have at the destination. Yanks that the
            source has too do not count: it decided in their knowledge.
    """

    name: str
    versions: Collection[Version]
    selection: Selection = EVERYTHING
    channels: Collection[str] = ()
    restore: MakeRestore | None = None
    heal: bool = True
    actor: str | None = None
    deltas: bool = False
    yanked_bytes: bool = True


@dataclass(frozen=True)
class TransferPlan:
    """The remaining work of a request, for a destination whose log has this `head`.

    `lines` are the missing lines of the source, `returning` the versions to restore, `held` the artifacts
    that the destination will hold of each version, `moves` the moves of channels, `blobs` all blobs that it
    must have for this.
    """

    request: TransferRequest
    source: Ledger
    head: Digest
    lines: list[LogLine]
    returning: list[Version]
    held: Mapping[Version, ArtifactPaths]
    moves: list[Tag]
    blobs: Mapping[Digest, Reference]
    changes: bool
    """True if the destination's log lacks anything."""

    def apply(self, destination: Ledger) -> int:
        """Add the missing events to the log that this plan was made for; return how many lines that were."""
        before = destination.seq
        apply(self.lines, self.source, destination)
        if self.request.restore is not None:
            for version in self.returning:
                destination.append(
                    self.request.restore(destination.name, version, destination.entries[version])
                )
        _check_arrived(self.source, destination, self.request.versions)
        for event in (*hold_events(destination, self.held, self.request.actor), *self.moves):
            destination.append(event)
        if (self.source.registry, self.source.head) == (destination.registry, destination.head):
            destination.more = self.source.more
        return destination.seq - before


def make_plan(
    request: TransferRequest,
    source: Ledger,
    destination: Ledger,
    channels_before: Mapping[str, Channel] | None = None,
) -> TransferPlan:
    """Compare a request with both logs. `channels_before` are the destination's channels when it was first
    read.

    Raises what `missing_lines` raises; ConflictError if the destination took needed files
    down, or somebody moved a channel meanwhile; IntegrityError if the source's documents contradict each
    other; InputError if the selection has more artifacts than an event can name.
    """
    versions = request.versions
    if source.registry != destination.registry and not request.yanked_bytes:
        check_yanked(source, destination, versions)
    lines = missing_lines(source, destination, versions, request.restore is not None, request.selection)
    artifacts = (
        selected_paths(source, versions, request.selection) if source.registry != destination.registry else {}
    )
    present = paths_after(source, destination, artifacts)
    check_fits(source, present)
    returning = _expired(destination, versions) if request.restore is not None else []
    before = destination.channels if channels_before is None else channels_before
    moves = _channel_moves(request, source, destination, before)
    is_behind = bool(lines or returning or versions_to_update(destination, present))
    blobs: Mapping[Digest, Reference] = {}
    if is_behind or request.heal:
        _check_summaries(source, versions)
        blobs = blobs_of(source, lines, versions, artifacts)
        check_tombstones(destination, blobs)
    if not lines:
        _check_arrived(source, destination, versions)
    changes = is_behind or bool(moves)
    return TransferPlan(request, source, destination.head, lines, returning, present, moves, blobs, changes)


def _channel_moves(
    request: TransferRequest, source: Ledger, destination: Ledger, before: Mapping[str, Channel]
) -> list[Tag]:
    """The events that are left to do. Each expects what the channel held `before`, when it was looked at first."""
    events = []
    for tag in request.channels:
        channel, current = channel_of(source, tag), destination.channels.get(tag)
        if current is None or (current.version, current.manifest) != (channel.version, channel.manifest):
            expects = before[tag].manifest if tag in before else None
            about = stamp(source.name, request.actor, None)
            events.append(
                Tag(**about, tag=tag, version=channel.version, manifest=channel.manifest, expects=expects)
            )
    return events


def _expired(destination: Ledger, versions: Iterable[Version]) -> list[Version]:
    """The versions whose files the destination gave up."""
    entries = ((version, destination.entries.get(version)) for version in versions)
    return [version for version, entry in entries if entry is not None and entry.gone is not None]


def _check_arrived(source: Ledger, destination: Ledger, versions: Iterable[Version]) -> None:
    """IntegrityError if the source's log and its state line differ about a version.

    Two copies with one head have one log: their entries must be equal.
    """
    if source.head == destination.head and source.entries != destination.entries:
        raise IntegrityError(
            f"two copies of one log of {source.name} say different things of its versions",
            Advice("verify-both"),
        )
    for version in versions if source.registry != destination.registry else ():
        arrived, published = destination.entries.get(version), source.entries.get(version)
        if arrived is None or published is None or arrived.manifest != published.manifest:
            raise IntegrityError(
                f"the log of {source.name} does not publish {version} as its state line says",
                Advice("verify-source"),
            )


def _check_summaries(source: Ledger, versions: Iterable[Version]) -> None:
    """IntegrityError if the source's index contradicts the manifest of a version: apps resolve by the
    index."""
    for version in versions:
        summary, entry = source.state.summaries.get(version), source.entries.get(version)
        if summary is not None and entry is not None and entry.gone is None:
            check_summary(summary, source.fetch(entry.manifest), entry.manifest, source.name)


def blobs_of(
    ledger: Ledger,
    lines: Iterable[LogLine],
    versions: Iterable[Version],
    artifacts: Mapping[Version, ArtifactPaths],
) -> dict[Digest, Reference]:
    """Every blob that these lines and versions refer to and that the source still has.

    Of a version, the selected `artifacts`, or else those that the ledger holds.
    """
    events = [line.event for line in lines]
    published = {event.version for event in events if isinstance(event, Publish | Restore | Hold)} | set(
        versions
    )
    stored = {reference.digest: reference for reference in documents(ledger)}
    statements = {event.statement for event in events if isinstance(event, Attest)}
    statements |= {event.evidence for event in events if isinstance(event, Tag) and event.evidence}
    optional = {blob.digest for event in events if isinstance(event, OptionalEvent) for blob in event.blobs}
    blobs = {digest: stored[digest] for digest in sorted((optional | statements) & stored.keys())}
    for digest, blob in blobs.items():
        if blob.size is None:
            size = len(ledger.fetch(digest))
            blobs[digest] = replace(blob, size=size, label=f"{ledger.name} statement")
    for version in sorted(published & ledger.entries.keys()):
        entry = ledger.entries[version]
        if entry.manifest in stored:
            blobs[entry.manifest] = stored[entry.manifest]
            if len(ledger.fetch(entry.manifest)) != entry.size:
                raise IntegrityError(
                    f"{ledger.name}:{version} was published with another size than its manifest has"
                )
        if entry.gone is None:
            selected = entry.replace(held=artifacts.get(version, entry.held))
            blobs |= {file.digest: file for file in files(ledger, version, selected)}
    return blobs


def missing_lines(
    source: Ledger,
    destination: Ledger,
    versions: Collection[Version],
    restore: bool = False,
    selection: Selection = EVERYTHING,
) -> list[LogLine]:
    """The source's lines that the destination lacks, in source order, verdicts and yanks last.

    So they find the version that they are about, also if the source published that once more after them.

    Raises ConflictError if a version has another manifest there or its files were given up there
    (unless `restore` brings expired ones back), or if only some artifacts are asked for between copies of
    one registry; IntegrityError if the logs of one registry have forked; NotFoundError if the source lacks a
    version or an artifact of it that is asked for.
    """
    _check_present(source, versions)
    if source.registry == destination.registry:
        if selection:
            raise ConflictError(
                "these are two copies of one registry, and a copy holds whatever the original holds",
                Advice("omit-selection"),
            )
        return _suffix(source, destination)
    destination.check_own()
    check_versions(source, destination, versions, restore, selection)
    chosen = {version: source.entries[version].manifest for version in versions}
    manifests = {*(entry.manifest for entry in destination.entries.values()), *chosen.values()}
    lines = _absent(source, destination, manifests)
    moving = [line for line in lines if _travels(line, chosen, destination)]
    return sorted(moving, key=lambda line: isinstance(line.event, Attest | Yank | Unyank))


def _absent(source: Ledger, destination: Ledger, manifests: Collection[Digest]) -> Iterator[LogLine]:
    """The source's lines on manifests, and its refusals, that the destination lacks."""
    present = {line.event.id for line in destination.lines()}
    stated = {_statement(event) for _, event in destination.events(Attest)}
    for line in source.lines():
        event = line.event
        is_stated = isinstance(event, Attest) and _statement(event) in stated
        refuses = isinstance(event, Attest) and event.state == "refused"
        is_new = isinstance(event, Publish) or event.id not in present
        if is_new and not is_stated and (refuses or getattr(event, "manifest", None) in manifests):
            yield line


def apply(lines: list[LogLine], source: Ledger, destination: Ledger) -> None:
    """Append lines: verbatim to another copy of the same log, as events with `via` to another registry."""
    now = datetime.now(UTC).strftime(TIME_FORMAT)
    for line in lines:
        if source.registry == destination.registry:
            destination.append_line(line)
        else:
            destination.append(line.event, Via(source.registry, line.seq, line.digest, now))


def _travels(line: LogLine, chosen: Mapping[Version, Digest], destination: Ledger) -> bool:
    """Return True if an event travels to another registry. Channels, pins and expiry never do.

    A later evaluation is, of every version that the destination holds; a refusal always, since the same
    bytes may be there, or come later, under another manifest.
    """
    match line.event:
        case Publish(version=version, manifest=manifest):
            return chosen.get(version) == manifest and version not in destination.entries
        case Attest(state="refused"):
            return True
        case Attest(manifest=manifest, state=state):
            here = state is not None and any(
                manifest == entry.manifest for entry in destination.entries.values()
            )
            return here or manifest in chosen.values()
        case Yank(manifest=manifest, version=version, every=every) if not every:
            entry = destination.entries.get(version)
            return manifest in (chosen.get(version), entry and entry.manifest)
        case Yank() | Unyank():
            return True
        case _:
            return False


def _statement(event: Attest) -> tuple[object, ...]:
    """The content of an `attest`: two registries may record the same one, each with its own event."""
    return event.manifest, event.statement, event.artifact, event.state


def check_versions(
    source: Ledger,
    destination: Ledger,
    versions: Collection[Version],
    restore: bool = False,
    selection: Selection = EVERYTHING,
) -> None:
    """Raise the errors of `missing_lines` if a version may not travel between registries with different
    ids."""
    _check_present(source, versions)
    for version in versions:
        entry, present = source.entries[version], destination.entries.get(version)
        if present is not None and present.manifest != entry.manifest:
            raise ConflictError(
                f"{source.name}:{version} exists there with manifest {present.manifest.short}..., "
                f"here it is {entry.manifest.short}...",
                "a version never changes: publish yours under another version",
            )
        gone = present.gone if present is not None else None
        if gone is not None and not (restore and gone.how == "expired"):
            raise ConflictError(
                f"{source.name}:{version} is {gone.how} there",
                Advice("log-of-other-or-restore" if gone.how == "expired" else "log-of-other"),
            )
        check_held(source, destination, version, selection)


def check_yanked(source: Ledger, destination: Ledger, versions: Iterable[Version]) -> None:
    """Raise ConflictError if a version that is new there has artifacts that only yanked versions have there."""
    source_yanks = {yank for entry in source.entries.values() for yank in entry.yanks}
    if all(source_yanks.issuperset(entry.yanks) for entry in destination.entries.values()):
        return
    for version in versions:
        entry = source.entries.get(version)
        if entry is not None and entry.gone is None and version not in destination.entries:
            manifest = read_manifest(source.fetch(entry.manifest), entry.manifest, source.name)
            check_not_yanked(destination, manifest, entry.manifest, source_yanks, " --remote REMOTE")


def _check_present(source: Ledger, versions: Collection[Version]) -> None:
    """Raise NotFoundError if the source lacks a version, or its files."""
    for version in versions:
        entry = source.entries.get(version)
        if entry is None or entry.gone is not None:
            how = f"{source.name}:{version} is {entry.gone.how}" if entry and entry.gone else None
            raise NotFoundError(how or f"{source.name} has no version {version}")


def _suffix(source: Ledger, destination: Ledger) -> list[LogLine]:
    common = min(source.seq, destination.seq)
    if common and source.digest_at(common) != destination.digest_at(common):
        raise ForkError(
            f"two copies of registry {source.registry} have different histories of {source.name}: "
            f"heads {source.head.short}... and {destination.head.short}...",
            "one of them was rewritten; nothing was changed",
        )
    return list(source.lines(common))
