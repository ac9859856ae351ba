"""Read what versions contain, select artifacts, and list the blobs that a log needs.

A registry may have only some artifacts of a version (`reg pull --format`): it *holds* these artifacts. Arguments give
artifacts as a tuple of paths, or as None for all artifacts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from onnxreg.registry.log.log import LocatedVersion, Log, consult
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import MissingBlobError, RegistryReader, StoredObject, innermost
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import IntegrityError, NotFoundError, listing, suggest
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.log.events import Attest, Event, OptionalEvent, Tag, Yank
from onnxreg.schema.log.state import EVIDENCE, ArtifactStates, VersionEntry, operator_set

if TYPE_CHECKING:
    from onnxreg.schema.compare.version_history import HistoryEntry
    from onnxreg.schema.manifest.manifest import Artifact, FileEntry, Manifest

ArtifactPaths = tuple[str, ...] | None
"""The sorted paths of artifacts, or None for all artifacts of a version."""


class Selection(NamedTuple):
    """A choice of artifacts: by `paths` or, without them, by format, precision and member. Empty fields allow all."""

    formats: tuple[str, ...] = ()
    precision: str | None = None
    paths: tuple[str, ...] = ()
    members: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.formats or self.paths or self.members) or self.precision is not None

    def of(self, manifest: Manifest, ref: str) -> ArtifactPaths:
        """Return the selected artifacts' paths. Raises NotFoundError if a format, path or member matches nothing."""
        artifacts = {item.path: item for item in manifest.artifacts}
        if missing := set(self.paths) - artifacts.keys():
            hint = f"its artifacts are {listing([*artifacts], 8, None)}"
            raise NotFoundError(f"{ref} has no artifact {min(missing)}", hint)
        if self.paths:
            return join(manifest, self.paths)
        owners = {f"{name} of {ref}": _member_artifacts(manifest, ref, name) for name in self.members}
        owners = owners or {ref: tuple(artifacts)}
        offered = tuple(dict.fromkeys(chain.from_iterable(owners.values())))
        conditions = [(owner, paths, self.formats) for owner, paths in owners.items()]
        conditions += [(ref, offered, (name,)) for name in self.formats]
        for owner, paths, formats in conditions:
            if not any(self._fits(artifacts[path], formats) for path in paths):
                which = formats[0] if formats else "artifact"
                which += f" of precision {self.precision}" if self.precision else ""
                has = _listed(artifacts[path] for path in paths)
                raise NotFoundError(f"{owner} has no {which}", f"it has {has}")
        return join(manifest, [path for path in offered if self._fits(artifacts[path], self.formats)])

    def _fits(self, item: Artifact, formats: tuple[str, ...]) -> bool:
        return self.precision in (None, item.precision) and (not formats or item.format in formats)


EVERYTHING = Selection()


def _member_artifacts(manifest: Manifest, ref: str, name: str) -> tuple[str, ...]:
    family = manifest.model_family
    if family is None:
        raise NotFoundError(f"{ref} is not a family: it has no members", "leave --member out")
    if (member := family.member(name)) is None:
        listed = f"`reg show {ref} --json` lists them under model_family"
        hint = suggest(name, [member.name for member in family.members], listed)
        raise NotFoundError(f"{ref} has no member {name[:80]}", hint)
    if not member.artifacts:
        none = f"{name} of {ref} has no artifacts, its files come with every pull"
        raise NotFoundError(none, f"leave --member {name} out")
    return tuple(member.artifacts)


def held_artifacts(manifest: Manifest, paths: ArtifactPaths) -> list[Artifact]:
    """Return the artifacts at these paths (None: all). Raises IntegrityError if a path is not in the manifest."""
    if paths is None:
        return list(manifest.artifacts)
    if unknown := set(paths) - {item.path for item in manifest.artifacts}:
        wrong = f"the log of {manifest.name} holds {min(unknown)}, which is not an artifact of that version"
        raise IntegrityError(wrong, "the registry was tampered with or damaged")
    return [item for item in manifest.artifacts if item.path in paths]


def selected_artifacts(
    manifest: Manifest, paths: ArtifactPaths, selection: Selection, ref: str
) -> list[Artifact]:
    """Return the selected artifacts (default: all at `paths`). Raises NotFoundError if some are not at `paths`."""
    present = held_artifacts(manifest, paths)
    if not selection:
        return present
    chosen = held_artifacts(manifest, selection.of(manifest, ref))
    if missing := [item for item in chosen if item not in present]:
        lack = f"{missing[0].path} of {ref} is not held here, only {_listed(present)}"
        raise NotFoundError(lack, f"reg pull {ref} fetches the rest")
    return chosen


def held_files(manifest: Manifest, paths: ArtifactPaths) -> Iterator[FileEntry]:
    """Yield the files of the artifacts at these paths (None: all), then the files that all artifacts share."""
    for artifact in held_artifacts(manifest, paths):
        yield from artifact.all_files()
    yield from manifest.files


def download_files(manifest: Manifest, artifact: Artifact) -> list[FileEntry]:
    """Return the files that a device needs: the artifact's files, and shared files without certificates and scores."""
    return [*artifact.all_files(), *(entry for entry in manifest.files if entry.role not in EVIDENCE)]


def join(manifest: Manifest, *parts: Iterable[str] | None) -> ArtifactPaths:
    """Return all paths in `parts`, without repetition. In `parts` and in the result, None means all artifacts."""
    every = {item.path for item in manifest.artifacts}
    paths = {path for part in parts for path in (every if part is None else part)}
    return None if paths >= every else tuple(sorted(paths))


def present_paths(log: Log, version: Version) -> ArtifactPaths:
    """Return the paths of a version's artifacts that are here. None means all, and () means no artifact."""
    entry = log.versions.get(version)
    return () if entry is None or entry.gone is not None else entry.held


def check_held(source: Log, destination: Log, version: Version, selection: Selection) -> None:
    """Raise NotFoundError if a selected artifact is neither in the source nor in the destination."""
    offered, present = source.versions[version].held, present_paths(destination, version)
    if offered is None or present is None:
        return
    manifest, ref = source.manifest(version), f"{source.name}:{version}"
    if join(manifest, offered, present, selection.of(manifest, ref)) != join(manifest, offered, present):
        only = _listed(held_artifacts(manifest, offered))
        raise NotFoundError(
            f"only {only} of {ref} is held by the registry that it comes from",
            f"reg pull {ref} there fetches the rest; or take a part that it has, with --format, --precision or --member",
        )


def _listed(artifacts: Iterable[Artifact]) -> str:
    return ", ".join(dict.fromkeys(f"{item.format} ({item.precision})" for item in artifacts))


class Reference(NamedTuple):
    """A blob that a model needs. `size` is None if no document states it. `label` is for messages."""

    digest: Digest
    size: int | None
    label: str

    @property
    def path(self) -> str:
        """The label without model and version: the blob's path or kind, such as `model.onnx` or `statement`."""
        return self.label.partition(" ")[2]


def event_blobs(event: Event) -> list[Reference]:
    """Return the blobs that an event names. Manifests and the files of versions are not included."""
    match event:
        case OptionalEvent():
            return [Reference(blob.digest, blob.size, f"{event.name} {event.kind}") for blob in event.blobs]
        case Attest():
            return [Reference(event.statement, None, f"{event.name} statement")]
        case Tag(evidence=Digest() as evidence):
            return [Reference(evidence, None, f"{event.name} evidence")]
    return []


def documents(log: Log) -> Iterator[Reference]:
    """Yield the blobs of a log itself, such as segments, checkpoint, manifests, statements and evidence."""
    yield from (Reference(segment, None, f"{log.name} log") for segment in log.segments)
    if log.checkpoint is not None:
        yield Reference(log.checkpoint, None, f"{log.name} checkpoint")
    tombstones = set(log.tombstones)
    manifests = {entry.manifest for entry in log.versions.values()} - tombstones
    named: dict[tuple[bool, Digest], list[Reference]] = {}
    for seq, event in log.events(Event):
        for earlier in event.supersedes if isinstance(event, OptionalEvent) else ():
            named.pop((True, earlier), None)  # only an optional event: statements and evidence stay
        is_needed = not isinstance(event, Attest) or event.manifest in manifests or event.state == "refused"
        is_needed = is_needed and (not isinstance(event, Attest) or log.is_on_record(seq, event))
        if is_needed and (blobs := event_blobs(event)):
            named[isinstance(event, OptionalEvent), event.id] = blobs
    # a statement states no size and comes last: nobody relies on the size that an optional event gives it
    by_size = sorted(chain.from_iterable(named.values()), key=lambda blob: blob.size is None)
    yield from (blob for blob in dict.fromkeys(by_size) if blob.digest not in tombstones)
    for version, entry in log.versions.items():
        if entry.manifest in manifests:
            yield Reference(entry.manifest, entry.size, f"{log.name}:{version} manifest")


def present_versions(log: Log) -> Iterator[tuple[Version, VersionEntry]]:
    """Yield the versions that should have files here, because they did not expire and were not taken down."""
    return ((version, entry) for version, entry in log.versions.items() if entry.gone is None)


def files(log: Log, version: Version, entry: VersionEntry) -> Iterator[Reference]:
    """Yield each blob of a version once: the files that are present, and the lists of operators of the artifacts."""
    manifest, ref = log.manifest(version), f"{log.name}:{version}"
    entries = held_files(manifest, entry.held)
    blobs = {file.digest: Reference(file.digest, file.size, f"{ref} {file.path}") for file in entries}
    for data in filter(None, map(operator_set, held_artifacts(manifest, entry.held))):
        digest = Digest.of(data)
        blobs.setdefault(digest, Reference(digest, len(data), f"{ref} operators"))
    yield from blobs.values()


def references(log: Log) -> Iterator[Reference]:
    yield from documents(log)
    for version, entry in present_versions(log):
        yield from files(log, version, entry)


def set_pushed(source: RegistryReader, log: Log, versions: Iterable[Version]) -> None:
    """Record that versions are copied to another registry or an archive. From then on, `reg drop` refuses them."""
    if not isinstance(store := innermost(source), DirectoryRegistry) or not os.access(store.root, os.W_OK):
        return  # who may not write, cannot drop
    for version in versions:
        path = f"local/pushed/{log.name}/{log.versions[version].manifest.hex}"
        if store.store.read(path) is None:
            store.write_file(path, b"")


def was_pushed(store: DirectoryRegistry, located: LocatedVersion) -> bool:
    return store.store.read(f"local/pushed/{located.name}/{located.entry.manifest.hex}") is not None


class Release(Struct, frozen=True):
    """A version with its manifest. Only publishing sets `new` and `newer`."""

    name: str
    version: Version
    digest: Digest
    manifest: Manifest
    data: bytes  # the exact bytes of the manifest
    log: Log  # that was read
    new: bool = False  # the version was just published
    held: ArtifactPaths = None  # the artifacts that the registry has
    states: ArtifactStates = {}  # of all artifacts
    yank: Yank | None = None
    newer: Version | None = None  # a newer version
    gone: str | None = None  # why the files are not here: "expired", "purged" or "dropped"

    @classmethod
    def of(cls, log: Log, located: LocatedVersion) -> Release:
        name, version, entry, _ = located
        manifest, data = log.read_manifest(entry.manifest), log.fetch(entry.manifest)
        states = log.state.artifact_states(manifest, entry)
        about = (name, version, entry.manifest, manifest, data, log)
        gone = entry.gone.how if entry.gone else None
        yank = log.yanks_of([version]).get(version) if entry.yanks else None
        return cls(*about, held=entry.held, states=states, yank=yank, gone=gone)

    @property
    def ref(self) -> Ref:
        return Ref(self.name, str(self.version))


def read_version(
    reader: RegistryReader, ref: Ref, index: StoredObject | None = None, yanked: bool = False
) -> Release:
    """Read and verify a version's manifest, even if its files expired. Raise NotFoundError or IntegrityError.

    A yanked version is read if the ref has its digest or, with `yanked`, its number.
    """
    every = yanked and Version.is_version(ref.tag or "")
    return consult(
        reader, ref.name, lambda log: Release.of(log, log.find(ref, every, gone=True)), index=index
    )


def kept_manifest(log: Log, version: Version) -> Manifest | None:
    """Read the manifest of a version. Return None if the manifest was deleted with the version's files."""
    try:
        return log.manifest(version)
    except MissingBlobError:
        if log.versions[version].gone is None:
            raise
        return None


def read_history(log: Log, limit: int) -> list[HistoryEntry]:
    """Return the newest `limit` versions of a model, newest first, and verify the chain of the model's log."""
    from onnxreg.schema.compare.version_history import HistoryRow

    lines, state, records = list(log.lines()), log.state, list["HistoryEntry"]()
    for version in sorted(log.versions, reverse=True)[:limit]:
        entry, manifest = log.versions[version], kept_manifest(log, version)
        states = state.artifact_states(manifest, entry)
        published = lines[entry.seq - 1].event
        row = HistoryRow(
            version=str(version),
            manifest=entry.manifest,
            time=published.time,
            actor=published.actor,
            status=entry.status([item.state for item in states.values()]),
            channels=tuple(sorted(tag for tag, item in state.channels.items() if item.version == version)),
        )
        records.append((row, manifest, states))
    return records
