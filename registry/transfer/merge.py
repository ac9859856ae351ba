"""Merge two logs of a model: find what a destination lacks to have the versions and channels of a request.

The rule: if both registries have the same id, one log must be a prefix of the other, and lines are copied unchanged. If the
ids differ, chains are not joined: the events of the chosen versions are appended to the destination's chain, each with its
origin in `via`. If the destination's log changes, the merge is repeated.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from onnxreg.registry.log.commit import check_tombstones
from onnxreg.registry.log.contents import (
    EVERYTHING,
    ArtifactPaths,
    Reference,
    Selection,
    check_held,
    documents,
    files,
    hold_events,
    paths_after,
    selected_paths,
)
from onnxreg.registry.log.log import LocatedVersion, Log
from onnxreg.registry.support.environment import TIME_FORMAT, stamp
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import ConflictError, ForkError, IntegrityError, NotFoundError, RegError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.events import Attest, Hold, OptionalEvent, Publish, Restore, Tag, Timing, Unyank, Yank
from onnxreg.schema.log.logline import LogLine, Via
from onnxreg.schema.log.state import Channel


@dataclass(frozen=True)
class ExchangeRequest:
    """The versions and channels of a model to copy to a destination.

    Args:
        selection: the artifacts to copy; the destination keeps those that it has, and an event records which it has.
        channels: channels to move to one of these versions, as in the source; the destination adds its own events.
        restore: bring back a version that expired at the destination, with its files.
        heal: check for blobs that the destination lost, and copy them again; False: assume that a complete log has all.
        actor: the claimed author of the destination's own events; `deltas`: True if files may be sent as deltas.
    """

    name: str
    versions: Collection[Version]
    selection: Selection = EVERYTHING
    channels: Collection[str] = ()
    restore: bool = False
    heal: bool = True
    actor: str | None = None
    deltas: bool = False


@dataclass(frozen=True)
class Merge:
    """The changes that bring a destination's log, at `head`, up to a request: the missing `lines`, the versions `returning`,
    the `artifacts` of each version there afterwards, the `moves` of channels, and all `blobs` that the destination then
    needs.
    """

    request: ExchangeRequest
    source: Log
    head: Digest
    lines: list[LogLine]
    returning: list[Version]
    artifacts: Mapping[Version, ArtifactPaths]
    moves: list[Tag]
    blobs: Mapping[Digest, Reference]
    is_change: bool
    """True if the destination's log lacks an event."""

    def apply(self, destination: Log) -> int:
        """Append the events to `destination`, the log that was merged; return the number of new lines."""
        before, now = destination.seq, datetime.now(UTC).strftime(TIME_FORMAT)
        is_copy = self.source.registry == destination.registry
        for line in self.lines:
            if is_copy:
                destination.append_line(line)
            else:
                destination.append(line.event, Via(self.source.registry, line.seq, line.digest, now))
        for version in self.returning:
            entry, about = destination.versions[version], stamp(destination.name, self.request.actor)
            if entry.gone is not None:
                back = Restore(**about, version=version, manifest=entry.manifest, expire=entry.gone.event)
                destination.append(back)
        _check_arrived(self.source, destination, self.request.versions)
        for event in (*hold_events(destination, self.artifacts, self.request.actor), *self.moves):
            destination.append(event)
        if is_copy and self.source.head == destination.head:
            self.source.check_keys()
        return destination.seq - before


def merge(
    request: ExchangeRequest,
    source: Log,
    destination: Log,
    channels_before: Mapping[str, Channel] | None = None,
) -> Merge:
    """Compare both logs. `channels_before` are the destination's channels when the log was first read.

    Raises the errors of `missing_lines`; ConflictError if needed files were taken down at the destination, or if a channel
    moved meanwhile; IntegrityError if the source's documents disagree; InputError if too many artifacts are selected.
    """
    versions, is_copy = request.versions, source.registry == destination.registry
    lines = missing_lines(request, source, destination)
    selected = {} if is_copy else selected_paths(source, versions, request.selection)
    artifacts = paths_after(source, destination, selected)
    gone = {version for version, entry in destination.versions.items() if entry.gone is not None}
    returning = [] if not request.restore else [version for version in versions if version in gone]
    moves, before = [], destination.channels if channels_before is None else channels_before
    for tag in request.channels:
        channel, current = source.channel(tag), destination.channels.get(tag)
        if current is None or (current.version, current.manifest) != (channel.version, channel.manifest):
            moves.append(
                Tag(
                    **stamp(source.name, request.actor),
                    version=channel.version,
                    manifest=channel.manifest,
                    tag=tag,
                    expects=before[tag].manifest if tag in before else None,
                )
            )
    is_behind = bool(lines or returning or [*hold_events(destination, artifacts, request.actor)])
    blobs: Mapping[Digest, Reference] = {}
    if is_behind or request.heal:
        for version in versions:  # apps resolve by what the index says of a manifest
            source.check_summary(LocatedVersion(source.name, version, source.versions[version]))
        blobs = blobs_of(source, lines, versions, selected)
        check_tombstones(destination, blobs)
    if not lines:
        _check_arrived(source, destination, versions)
    is_change = is_behind or bool(moves)
    return Merge(request, source, destination.head, lines, returning, artifacts, moves, blobs, is_change)


def missing_lines(request: ExchangeRequest, source: Log, destination: Log) -> list[LogLine]:
    """Return the source's lines that the destination lacks, in source order, but verdicts and yanks after all versions.

    Between different registries: lines about the requested versions and about versions that the destination has; refusals
    always, since another manifest may have the same bytes; never channels, pins and expiry. Raises the errors of
    `check_versions`; ConflictError for a selection between copies of one registry; ForkError if their logs have forked.
    """
    if source.registry == destination.registry:
        _check_present(source, request.versions)
        if request.selection:
            raise ConflictError(
                "these are two copies of one registry, and a copy holds whatever the original holds",
                "leave --format and --precision away, or pull into a registry of its own",
            )
        common = min(source.seq, destination.seq)
        if source.digest_at(common) != destination.digest_at(common):
            raise ForkError(
                f"two copies of registry {source.registry} have different histories of {source.name}: "
                f"heads {source.head.short}... and {destination.head.short}...",
                "one of them was rewritten; nothing was changed",
            )
        return list(source.lines(common))
    destination.check_own()
    check_versions(request, source, destination, request.versions)
    chosen = {version: source.versions[version].manifest for version in request.versions}
    manifests = {entry.manifest for entry in destination.versions.values()}
    events = [line.event for line in destination.lines()]
    present = {event.id for event in events}
    stated = {_statement(event) for event in events if isinstance(event, Attest | Timing)}
    missing = []
    for line in source.lines():
        match line.event:
            case Publish(version=version, manifest=manifest):
                travels = chosen.get(version) == manifest and version not in destination.versions
            case Attest(manifest=manifest, state=state) as event:
                is_about = manifest in chosen.values() or (state is not None and manifest in manifests)
                travels = (state == "refused" or is_about) and _statement(event) not in stated
            case Timing(manifest=manifest) as event:
                travels = manifest in chosen.values() and _statement(event) not in stated
                if travels:
                    from onnxreg.registry.trust.signatures import check_timing

                    check_timing(source, event)
            case Yank(manifest=manifest) | Unyank(manifest=manifest):
                travels = manifest in manifests or manifest in chosen.values()
            case _:
                travels = False
        if travels and (isinstance(line.event, Publish) or line.event.id not in present):
            missing.append(line)
    return sorted(missing, key=lambda line: isinstance(line.event, Attest | Timing | Yank | Unyank))


def _statement(event: Attest | Timing) -> tuple[object, ...]:
    """Return the content of an event. Two registries may record the same content in different events."""
    if isinstance(event, Timing):
        return event.manifest, event.blobs
    return event.manifest, event.statement, event.artifact, event.state


def check_versions(
    request: ExchangeRequest, source: Log, destination: Log, versions: Collection[Version]
) -> None:
    """Check that versions can be copied between registries with different ids.

    ConflictError if the destination has another manifest for a version, or gave the version up and does not restore it;
    NotFoundError if the source lacks a version or a requested artifact.
    """
    _check_present(source, versions)
    for version in versions:
        entry, present = source.versions[version], destination.versions.get(version)
        if present is not None and present.manifest != entry.manifest:
            raise ConflictError(
                f"{source.name}:{version} has manifest {entry.manifest.short}... where it comes from, "
                f"and {present.manifest.short}... where it would go",
                "a version never changes: publish one of them under another version",
            )
        gone = present.gone if present is not None else None
        if gone is not None and not (request.restore and gone.how == "expired"):
            way_back = "; --restore brings it back" if gone.how == "expired" else ""
            hint = f"`reg log` there says why{way_back}"
            raise ConflictError(f"{source.name}:{version} is {gone.how} there", hint)
        check_held(source, destination, version, request.selection)


def refused_versions(request: ExchangeRequest, source: Log, destination: Log) -> dict[Version, RegError]:
    """Return the requested versions that the destination cannot get, each with the error."""
    refused: dict[Version, RegError] = {}
    for version in request.versions:
        try:
            check_versions(request, source, destination, [version])
            if version not in destination.versions and destination.tombstones:
                entry = source.versions[version]
                needed = [file.digest for file in files(source, version, entry)]
                check_tombstones(destination, [entry.manifest, *needed])
        except (ConflictError, IntegrityError, NotFoundError) as error:
            refused[version] = error
    return refused


def _check_present(source: Log, versions: Collection[Version]) -> None:
    """Raise NotFoundError if the source lacks a version, or no longer has the version's files."""
    for version in versions:
        entry = source.versions.get(version)
        if entry is None or entry.gone is not None:
            how = f"{source.name}:{version} is {entry.gone.how}" if entry and entry.gone else None
            raise NotFoundError(how or f"{source.name} has no version {version}")


def _check_arrived(source: Log, destination: Log, versions: Collection[Version]) -> None:
    """Raise IntegrityError if source and destination disagree about a version, or at the same head in their state lines."""
    if source.head == destination.head and source.versions != destination.versions:
        raise IntegrityError(
            f"two copies of one log of {source.name} say different things of its versions",
            "the state line of one of them is wrong: run `reg verify` in both",
        )
    for version in versions if source.registry != destination.registry else ():
        arrived, published = destination.versions.get(version), source.versions.get(version)
        if arrived is None or published is None or arrived.manifest != published.manifest:
            raise IntegrityError(
                f"the log of {source.name} does not publish {version} as its state line says",
                "run `reg verify` in the registry that it comes from",
            )


def blobs_of(
    source: Log,
    lines: Collection[LogLine],
    versions: Collection[Version],
    selected: Mapping[Version, ArtifactPaths],
) -> dict[Digest, Reference]:
    """Return all blobs of these lines and versions that the source still has; of a version only `selected` artifacts."""
    stored = {reference.digest: reference for reference in documents(source)}
    published, named = set(versions), set[Digest]()
    for line in lines:
        match line.event:
            case Publish(version=version) | Restore(version=version) | Hold(version=version):
                published.add(version)
            case Attest(statement=statement):
                named.add(statement)
            case Tag(evidence=Digest() as evidence):
                named.add(evidence)
            case OptionalEvent(blobs=blobs):
                named.update(blob.digest for blob in blobs)
    needed = {digest: stored[digest] for digest in sorted(named & stored.keys())}
    for digest, blob in needed.items():
        if blob.size is None:
            size, label = len(source.fetch(digest)), f"{source.name} statement"
            needed[digest] = replace(blob, size=size, label=label)
    for version in sorted(published & source.versions.keys()):
        entry = source.versions[version]
        if entry.manifest in stored:
            needed[entry.manifest] = stored[entry.manifest]
            if len(source.fetch(entry.manifest)) != entry.size:
                raise IntegrityError(
                    f"{source.name}:{version} was published with another size of its manifest"
                )
        if entry.gone is None:
            entry = entry.replace(held=selected.get(version, entry.held))
            needed |= {file.digest: file for file in files(source, version, entry)}
    return needed
