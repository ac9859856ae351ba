"""Locks between a registry and an app's build: `lock` asks and writes down, `pull_locked` fetches exactly that.

A lock names bytes by their digests, so it can be kept from any registry that has the versions, and against a registry
that lies; see `schema/lock.py` and `docs/lock.md`.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from onnxreg.registry.deliver import trusted_read
from onnxreg.registry.log.selection import Selection
from onnxreg.registry.read.versions import PublishedVersion
from onnxreg.registry.registry import Registry
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.registry.transfer.copy import Progress, TransferResult
from onnxreg.registry.transfer.export_files import check_target, materialize
from onnxreg.schema.core.errors import InputError, IntegrityError, NotFoundError
from onnxreg.schema.inputs.lockfile import LockedArtifact, Lockfile
from onnxreg.schema.log.summary import FileSummary
from onnxreg.schema.query.request import ResolveRequest


def lock(place: RegistryReader, asked: Iterable[ResolveRequest]) -> list[LockedArtifact]:
    """The answer to each question, ready to be written down.

    NoAnswerError where there is none; IntegrityError where the index file says other things of a version than its
    manifest.
    """
    return [_locked(place, request) for request in asked]


def lock_again(place: RegistryReader, before: Lockfile, names: Collection[str] = ()) -> list[LockedArtifact]:
    """Ask again what these models (none: all) were locked by. NotFoundError for one that is not in the lock."""
    for name in names:
        if name not in before.models:
            raise NotFoundError(
                f"{name} is not in the lock", f"it holds {', '.join(before.models) or 'nothing'}"
            )
    return lock(place, [before.models[name].asked for name in names or before.models])


def _locked(place: RegistryReader, asked: ResolveRequest) -> LockedArtifact:
    found = trusted_read.resolve(place, asked.ref, asked.query, asked.device, verify=True)
    return LockedArtifact(
        asked,
        place.registry_id,
        found.found.version,
        found.found.entry.manifest,
        found.artifact.format,
        found.artifact.precision,
        found.artifact.path,
        tuple(sorted((file for file, _ in found.files), key=lambda file: (file.path, file.role))),
    )


@dataclass(frozen=True)
class FetchedEntry:
    """One entry of a lock as it was fetched. `yanked`: somebody withdrew the version since it was locked."""

    entry: LockedArtifact
    done: TransferResult
    published: PublishedVersion
    yanked: bool


def pull_locked(
    registry: Registry, wanted: Lockfile, source: str | None = None, progress: Progress | None = None
) -> list[FetchedEntry]:
    """Fetch exactly the artifacts of a lock, beside what is here, every byte verified.

    A version that was yanked since is fetched too: the lock names its manifest. NotFoundError where the source does not
    have a version; IntegrityError where it has another manifest under it, or the manifest has other files than the lock.
    """
    return [_pull(registry, entry, source, progress) for entry in wanted.models.values()]


def _pull(
    registry: Registry, entry: LockedArtifact, source: str | None, progress: Progress | None
) -> FetchedEntry:
    done = registry.pull(entry.ref, source, progress, selection=Selection(paths=(entry.path,)))
    published = registry.get(entry.ref)
    _check_files(entry, published)
    return FetchedEntry(entry, done, published, registry.find(entry.ref).entry.yanked)


def _check_files(entry: LockedArtifact, published: PublishedVersion) -> None:
    """IntegrityError where the lock names other files than the manifest that it names."""
    manifest = published.manifest
    (artifact,) = [item for item in manifest.artifacts if item.path == entry.path]
    there = {
        FileSummary(file.role, file.path, file.digest, file.size)
        for file in (*artifact.all_files(), *manifest.files)
    }
    what = (artifact.format, artifact.precision)
    if there != set(entry.files) or what != (entry.format, entry.precision):
        raise IntegrityError(
            f"the lock says other things of {entry.name}:{entry.version} than its manifest {entry.manifest.short}...",
            "the lock was changed by hand or damaged: `reg lock` writes it anew",
        )


def folders(wanted: Lockfile, output: Path, registry: Path) -> dict[str, Path]:
    """Where the files of each model go: `output/<name>`. InputError where that would destroy something else."""
    for one, other in pairwise(sorted(f"{name}/" for name in wanted.models)):
        if other.startswith(one):
            raise InputError(
                f"the files of {other[:-1]} would lie among those of {one[:-1]}", "lock them apart"
            )
    found = {name: output / name for name in wanted.models}
    for folder in found.values():
        check_target(folder, registry)
    return found


def write_locked(
    registry: Registry, kept: Sequence[FetchedEntry], output: Path, progress: Progress | None = None
) -> None:
    """Write the files of a lock out, each model into a directory of its name; what is there is replaced as a whole."""
    places = folders(Lockfile.of(each.entry for each in kept), output, registry.store.root)
    for each in kept:
        published, held = each.published, (each.entry.path,)
        place = places[each.entry.name]
        materialize(registry.store, published.manifest, published.data, place, progress, held)
