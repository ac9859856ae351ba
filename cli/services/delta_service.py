"""Make the deltas of a version and offer them in a registry: here, or at a remote after a push."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from onnxreg.cli.context import Session
from onnxreg.cli.errors import prefix_outcome
from onnxreg.cli.render import output
from onnxreg.registry.log.commit import load, read_condemned
from onnxreg.registry.log.contents import held_files
from onnxreg.registry.log.delta_log import offered, publish_deltas
from onnxreg.registry.log.ledger import mirror_error
from onnxreg.registry.log.lookup import read_manifest
from onnxreg.registry.store import streams
from onnxreg.registry.store.protocol import Push, RegistryStore, local_file
from onnxreg.schema.core.descriptor import Descriptor
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import NotFoundError, missing_extra
from onnxreg.schema.core.progress import Progress
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.delta.table import Delta, DeltaTable

if TYPE_CHECKING:
    from onnxreg.converters.delta.make import ModelFile
    from onnxreg.registry.read.versions import PublishedVersion
    from onnxreg.registry.registry import Registry
    from onnxreg.registry.transfer.copy import TransferResult
    from onnxreg.schema.manifest.manifest import FileEntry, Manifest

DEFAULT_RELEASES = 2
"""Releases before a version from which deltas to it are made, beside the versions of channels."""
MIN_FILE_BYTES = 64 * 1024
"""Smaller files are always fetched whole."""


@dataclass(frozen=True)
class DeltaRequest:
    """The deltas to make: those of a version, from files of the versions `since`, or of the `releases` before it."""

    ref: Ref
    since: Collection[Version] = ()
    releases: int = DEFAULT_RELEASES


@dataclass(frozen=True)
class DeltaReport:
    """The deltas that a version offers now.

    `paths` has the path of each file that a delta makes, with its size; `unlike` the pairs of files without likeness;
    `new` counts those that were made now.
    """

    ref: Ref
    table: DeltaTable
    new: int
    paths: "Mapping[Digest, FileEntry]"
    unlike: tuple[tuple[str, Version | None], ...] = ()


def make_deltas(
    registry: "Registry", store: RegistryStore, request: DeltaRequest, progress: Progress
) -> DeltaReport:
    """Make deltas in `store`, with files of `registry` if it has them.

    A delta that is offered already is not made again. Raise NotFoundError if a version is not there; ConflictError
    if the store is a mirror; HostError if numpy is not installed.
    """
    try:
        import numpy  # noqa: F401
    except ImportError as error:
        raise missing_extra("numpy", "onnx", "making deltas") from error
    if store.is_mirror:
        raise mirror_error(store.registry_id)
    located = registry.find(request.ref, None if store is registry.store else store)
    work = _Work(registry, store, located.name, located.version, request, progress)
    with registry.scratch() as scratch, store.push() as push:
        push.avoid(read_condemned(store))
        deltas = list(work.deltas(push, scratch))
        table = publish_deltas(store, push, located.name, located.version, deltas, registry.actor)
    ref = Ref(located.name, str(located.version))
    return DeltaReport(ref, table, len(deltas), work.files, tuple(work.unlike))


def make_deltas_after_publish(
    session: Session, registry: "Registry", published: "PublishedVersion", delta_releases: int
) -> None:
    """Make the deltas of a version that was published here now, from so many releases before it; 0: none."""
    if published.new and delta_releases:
        _make_deltas_of(session, registry, registry.store, published.ref, delta_releases)


def make_deltas_after_push(
    session: Session,
    registry: "Registry",
    results: "Iterable[TransferResult]",
    remote: str | None,
    delta_releases: int,
) -> None:
    """Make the deltas of pushed versions at the remote, from so many releases before each; 0: none."""
    versions = [Ref(result.name, str(version)) for result in results for version in result.versions]
    if delta_releases and versions:
        store = registry.remotes.open(remote)
        for ref in versions:
            _make_deltas_of(session, registry, store, ref, delta_releases)


def make_deltas_after_batch(
    session: Session, refs: Iterable[Ref], remote: str | None, delta_releases: int
) -> None:
    """Make the deltas of versions that a batch published here, or in a remote, from so many releases before each."""
    if delta_releases:
        registry = session.open(create=None)
        store = registry.store if remote is None else registry.remotes.open(remote)
        for ref in refs:
            _make_deltas_of(session, registry, store, ref, delta_releases)


def _make_deltas_of(
    session: Session, registry: "Registry", store: RegistryStore, ref: Ref, delta_releases: int
) -> None:
    """Make deltas, and say so to people. An error says that the version itself is published."""
    with prefix_outcome(f"{ref} is published"), session.steps() as progress:
        report = make_deltas(registry, store, DeltaRequest(ref, releases=delta_releases), progress)
    if report.new and not session.as_json:
        deltas = report.table.deltas
        size = output.size(sum(delta.size for delta in deltas))
        session.say(f"{ref} offers {output.counted(len(deltas), 'delta')}, {size}")


@dataclass
class _Work:
    """The work of one request: the pairs of files to compare, and the results."""

    registry: "Registry"
    store: RegistryStore
    name: str
    version: Version
    request: DeltaRequest
    progress: Progress
    unlike: list[tuple[str, Version | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ledger = load(self.store, self.name)[0]
        self.manifest = self._manifest(self.version)

    @cached_property
    def files(self) -> "dict[Digest, FileEntry]":
        """The files of the new version that are worth a delta."""
        files = self._files(self.version).values()
        return {file.digest: file for file in files if file.size >= MIN_FILE_BYTES}

    def deltas(self, push: Push, scratch: Path) -> Iterator[Delta]:
        """Make each delta that is not offered yet, and store it."""
        from onnxreg.converters.delta.make import make_delta

        present = {(delta.new, delta.old) for delta in offered(self.ledger, self.version)}
        for since, pairs in self._pairs():
            pairs = [(old, new) for old, new in pairs if (new.digest, (old.digest,)) not in present]
            if not pairs:
                continue
            old_files = self._model_files(since or self.version, scratch)
            new_files = self._model_files(self.version, scratch)
            for old, new in pairs:
                self.progress.step(f"delta of {new.path} from {since or old.path}")
                target = scratch / "delta"
                with target.open("wb") as sink:
                    size = make_delta(old_files[old.path], new_files[new.path], sink)
                if size is None:
                    self.unlike.append((new.path, since))
                    continue
                digest, _ = push.put_file(target)
                yield Delta(new.digest, (old.digest,), digest, size, since)

    def _pairs(self) -> "Iterator[tuple[Version | None, list[tuple[FileEntry, FileEntry]]]]":
        """Old and new files to compare, for each old version; None: both are of the new version."""
        for since in self._old_versions():
            old_files = self._files(since)
            yield (
                since,
                [
                    (old_files[new.path], new)
                    for new in self.files.values()
                    if new.path in old_files and old_files[new.path].digest != new.digest
                ],
            )
        yield (
            None,
            [
                (self.files[artifact.parent], self.files[artifact.digest])
                for artifact in self.manifest.artifacts
                if artifact.digest in self.files and artifact.parent in self.files
                if artifact.parent is not None and artifact.parent != artifact.digest
            ],
        )

    def _old_versions(self) -> list[Version]:
        """The versions to start from: those that were asked for, or the releases before and those of channels."""
        entries = self.ledger.entries
        for version in self.request.since:
            if version not in entries or entries[version].gone is not None:
                raise NotFoundError(
                    f"{self.name} has no files of {version}", "name a version that `reg ls` shows"
                )
        if self.request.since:
            return [version for version in self.request.since if version != self.version]
        earlier = [
            version
            for version, entry in entries.items()
            if entry.usable and not version.is_prerelease and entry.seq < entries[self.version].seq
        ]
        earlier.sort(key=lambda version: version.precedence, reverse=True)
        holders = {channel.version for channel in self.ledger.channels.values()}
        chosen = {
            *earlier[: self.request.releases],
            *(version for version in holders if entries[version].usable),
        }
        return sorted(chosen - {self.version}, reverse=True)

    def _files(self, version: Version) -> "dict[str, FileEntry]":
        """The files of a version that the store has, by path."""
        files = held_files(self._manifest(version), self.ledger.entries[version].held)
        return {file.path: file for file in files}

    def _manifest(self, version: Version) -> "Manifest":
        digest = self.ledger.entries[version].manifest
        return read_manifest(self.ledger.fetch(digest), digest, self.name)

    def _model_files(self, version: Version, scratch: Path) -> "dict[str, ModelFile]":
        """The files of a version on this machine, with the tensors in them.

        Small files count too: an ONNX file may locate its tensors in a large one.
        """
        from onnxreg.converters.delta.extents import read_extents
        from onnxreg.converters.delta.make import ModelFile

        files = self._files(version)
        paths = {path: self._local(file, scratch) for path, file in files.items()}
        extents = read_extents(paths)
        return {
            path: ModelFile(paths[path], Descriptor(file.digest, file.size), extents[path])
            for path, file in files.items()
        }

    def _local(self, file: "FileEntry", scratch: Path) -> Path:
        """A file's bytes on this machine; fetched if only the remote has them."""
        for store in (self.store, self.registry.store):
            if store.has([file.digest]) and (path := local_file(store, file.digest)) is not None:
                return path
        path = scratch / file.digest.hex
        if not path.exists():
            self.progress.step(f"fetching {file.path}")
            with self.store.open_blob(file.digest) as stream, path.open("wb") as sink:
                streams.check(streams.pump(stream, sink)[0], file.digest, file.path)
        return path
