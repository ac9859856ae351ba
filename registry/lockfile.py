"""Lock files for app builds. `lock` records artifacts, and `pull_locked` fetches exactly these (docs/lock.md)."""

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from onnxreg.registry.log.contents import Release, Selection, download_files
from onnxreg.registry.registry import Registry
from onnxreg.registry.resolution import resolve
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.registry.transfer.exchange import TransferResult
from onnxreg.registry.transfer.export_files import check_target, materialize
from onnxreg.schema.core.errors import InputError, IntegrityError, NotFoundError
from onnxreg.schema.core.files import read_given
from onnxreg.schema.core.units import SILENT, Progress
from onnxreg.schema.inputs.lockfile import ChosenArtifact, LockedArtifact, Lockfile
from onnxreg.schema.log.state import FileSummary
from onnxreg.schema.manifest.manifest import FileEntry
from onnxreg.schema.query.device import ResolveRequest


def read(path: Path) -> Lockfile:
    return Lockfile.decode(read_given(path, "lock file", "`reg lock REF` writes one"), str(path))


def lock(
    reader: RegistryReader,
    requests: Iterable[ResolveRequest],
    warn: Callable[[str], object] = lambda warning: None,
) -> list[LockedArtifact]:
    """Resolve each request to an entry of a lock file. `warn` gets the warnings about the resolved versions.

    Raise NoAnswerError if no artifact fits a request. Raise IntegrityError if an index file contradicts a manifest.
    """
    entries = []
    for request in requests:
        answer = resolve(reader, request.ref, request.query, request.device, verify=True)
        for warning in answer.warnings:
            warn(warning)
        artifact = answer.artifact
        entry = LockedArtifact(
            name=request.ref.name,
            question=request.to_json(),
            registry=reader.registry_id,
            version=answer.located.version,
            manifest=answer.located.entry.manifest,
            artifact=ChosenArtifact(artifact.format, artifact.precision, artifact.path, artifact.contract),
            files=tuple(sorted((file for file, _ in answer.files), key=lambda file: (file.path, file.role))),
        )
        entries.append(entry)
    return entries


def recorded_requests(before: Lockfile, names: Collection[str] = ()) -> list[ResolveRequest]:
    """Return the requests of the models `names` (default: all). Raises NotFoundError for a model without an entry."""
    for name in names:
        if name not in before.models:
            models = ", ".join(before.models) or "nothing"
            raise NotFoundError(f"{name} is not in the lock", f"it holds {models}")
    return [before.models[name].request for name in names or before.models]


class FetchedEntry(NamedTuple):
    """The result of `pull_locked` for one entry of a lock file."""

    entry: LockedArtifact
    result: TransferResult
    published: Release
    files: Sequence[FileEntry]  # of the locked artifact
    yanked: bool  # the version is yanked now


def pull_locked(
    registry: Registry,
    lockfile: Lockfile,
    source: str | None = None,
    progress: Progress = SILENT,
    deltas: bool = True,
) -> list[FetchedEntry]:
    """Fetch exactly the artifacts of a lock file, even of versions that were yanked later.

    Raise NotFoundError if the source lacks a version. Raise IntegrityError if its manifest or files differ from the
    lock.
    """
    fetched = []
    for entry in lockfile.models.values():
        selection = Selection(paths=(entry.artifact.path,))
        result = registry.pull(entry.ref, source, progress, selection=selection, deltas=deltas)
        published = registry.get(entry.ref)
        artifact = next(item for item in published.manifest.artifacts if item.path == entry.artifact.path)
        files = list(download_files(published.manifest, artifact))
        locked = {FileSummary(file.role, file.path, file.digest, file.size) for file in files}
        kind = (entry.artifact.format, entry.artifact.precision)
        if locked != set(entry.files) or kind != (artifact.format, artifact.precision):
            raise IntegrityError(
                f"the lock says other things of {entry.name}:{entry.version} than its manifest {entry.manifest.short}...",
                "the lock was changed by hand or damaged: `reg lock` writes it anew",
            )
        fetched.append(FetchedEntry(entry, result, published, files, registry.find(entry.ref).entry.yanked))
    return fetched


def check_folders(names: Collection[str], output: Path, registry: Path) -> None:
    """Raise InputError if writing the directory of a model, `output/<name>`, would destroy other files."""
    for name in names:
        if (above := name.partition("/")[0]) != name and above in names:
            raise InputError(f"the files of {name} would be among those of {above}", "lock them apart")
        check_target(output / name, registry)


def write_locked(
    registry: Registry, fetched: Sequence[FetchedEntry], output: Path, progress: Progress = SILENT
) -> None:
    """Write the files of each model into `output/<name>`. Each of these directories is replaced completely."""
    check_folders([item.entry.name for item in fetched], output, registry.store.root)
    for item in fetched:
        materialize(registry.store, item.files, item.published.data, output / item.entry.name, progress)
