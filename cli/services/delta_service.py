"""Make the deltas of a version and offer them in a registry: here, or at a remote after a push."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onnxreg.cli.context import Session
from onnxreg.cli.errors import prefix_outcome
from onnxreg.cli.render import output
from onnxreg.registry.log.commit import read_condemned
from onnxreg.registry.log.contents import held_files
from onnxreg.registry.log.decisions import publish_deltas
from onnxreg.registry.log.log import Log, mirror_error, read_manifest
from onnxreg.registry.log.lookup import load, read_deltas
from onnxreg.registry.store import streams
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.schema.core.digest import Descriptor, Digest
from onnxreg.schema.core.errors import NotFoundError, missing_extra
from onnxreg.schema.core.progress import Progress
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.delta.delta_format import Delta

if TYPE_CHECKING:
    from onnxreg.converters.delta.make import ModelFile
    from onnxreg.registry.registry import Registry
    from onnxreg.schema.manifest.manifest import FileEntry

MIN_FILE_BYTES = 64 * 1024
"""Smaller files are always fetched whole."""


@dataclass(frozen=True)
class DeltaReport:
    """The deltas that a version offers now.

    `new` counts those that were made now; `files` are the files of the version by digest, `unlike` the path and old
    version of each pair of files without likeness.
    """

    ref: Ref
    deltas: list[Delta]
    new: int
    files: "Mapping[Digest, FileEntry]"
    unlike: list[tuple[str, Version]]


def make_deltas(
    registry: "Registry", store: RegistryStore, ref: Ref, since: Collection[Version], progress: Progress
) -> DeltaReport:
    """Make deltas of a version in `store`, with files of `registry` if it has them.

    From the versions `since`; by default from the newest release before, and from those that channels hold. A delta
    that is offered already is not made again. Raise NotFoundError if a version is not there; ConflictError if the
    store is a mirror; HostError if numpy is not installed.
    """
    try:
        from onnxreg.converters.delta.make import make_delta
    except ImportError as error:
        raise missing_extra("numpy", "onnx", "making deltas") from error
    if store.is_mirror:
        raise mirror_error(store.registry_id)
    located = registry.find(ref, None if store is registry.store else store)
    ledger, version = load(store, located.name), located.version
    files = _files(ledger, version)
    offered = {(delta.new, delta.old) for delta in read_deltas(ledger.fetch, ledger.versions[version].deltas)}
    fresh, unlike = list[Delta](), list[tuple[str, Version]]()
    with registry.scratch() as scratch, store.push() as push:
        push.avoid(read_condemned(store))
        for old_version in _old_versions(ledger, version, since):
            old_files = _files(ledger, old_version)
            pairs = [
                (old_files[path], new)
                for path, new in files.items()
                if new.size >= MIN_FILE_BYTES and path in old_files and old_files[path].digest != new.digest
                if (new.digest, (old_files[path].digest,)) not in offered
            ]
            if not pairs:
                continue
            before = _model_files(registry, store, old_files, scratch, progress)
            after = _model_files(registry, store, files, scratch, progress)
            for old, new in pairs:
                progress.step(f"delta of {new.path} from {old_version}")
                target = scratch / "delta"
                with target.open("wb") as sink:
                    size = make_delta(before[old.path], after[new.path], sink)
                if size is None:
                    unlike.append((new.path, old_version))
                    continue
                digest, _ = push.put_file(target)
                fresh.append(Delta(new.digest, (old.digest,), digest, size, old_version))
        deltas = publish_deltas(store, push, located.name, version, fresh, registry.actor)
    by_digest = {file.digest: file for file in files.values()}
    return DeltaReport(Ref(located.name, str(version)), deltas, len(fresh), by_digest, unlike)


def offer_deltas(
    session: Session, registry: "Registry", refs: Iterable[Ref], store: RegistryStore | None = None
) -> None:
    """Make the deltas of versions that were published in a store (by default here), and say so to people.

    An error says that the version itself is published.
    """
    for ref in refs:
        with prefix_outcome(f"{ref} is published"), session.steps() as progress:
            report = make_deltas(registry, store or registry.store, ref, (), progress)
        if report.new and not session.as_json:
            size = output.size(sum(delta.size for delta in report.deltas))
            session.say(f"{ref} offers {output.counted(len(report.deltas), 'delta')}, {size}")


def _old_versions(ledger: Log, version: Version, since: Collection[Version]) -> list[Version]:
    """The versions to start from: those that are named, or the newest release before and those of channels."""
    entries = ledger.versions
    for old in since:
        if old not in entries or entries[old].gone is not None:
            raise NotFoundError(f"{ledger.name} has no files of {old}", "name a version that `reg ls` shows")
    if since:
        return [old for old in since if old != version]
    earlier = [
        old
        for old, entry in entries.items()
        if entry.usable and not old.is_prerelease and entry.seq < entries[version].seq
    ]
    newest = sorted(earlier, key=lambda old: old.precedence)[-1:]
    holders = {channel.version for channel in ledger.channels.values() if entries[channel.version].usable}
    return sorted({*newest, *holders} - {version}, reverse=True)


def _files(ledger: Log, version: Version) -> "dict[str, FileEntry]":
    """The files of a version that the store has, by path."""
    entry = ledger.versions[version]
    manifest = read_manifest(ledger.fetch(entry.manifest), entry.manifest, ledger.name)
    return {file.path: file for file in held_files(manifest, entry.held)}


def _model_files(
    registry: "Registry",
    store: RegistryStore,
    files: "Mapping[str, FileEntry]",
    scratch: Path,
    progress: Progress,
) -> "dict[str, ModelFile]":
    """Files on this machine, fetched if only the store has them, with the tensors in them.

    Small files count too: an ONNX file may locate its tensors in a large one.
    """
    from onnxreg.converters.delta.make import ModelFile, read_extents

    paths: dict[str, Path] = {}
    for file in files.values():
        holders = (holder for holder in (store, registry.store) if holder.has([file.digest]))
        paths_here = (item.blob_path(file.digest) for item in holders if isinstance(item, DirectoryRegistry))
        local = next(paths_here, None)
        paths[file.path] = local or scratch / file.digest.hex
        if not paths[file.path].exists():
            progress.step(f"fetching {file.path}")
            with store.open_blob(file.digest) as stream, paths[file.path].open("wb") as sink:
                streams.check(streams.pump(stream, sink)[0], file.digest, file.path)
    extents = read_extents(paths)
    return {
        path: ModelFile(paths[path], Descriptor(file.digest, file.size), extents[path])
        for path, file in files.items()
    }
