"""Create an archive: chosen versions of a registry, with the whole history of their models, in one file.

The same versions of the same registry give the same bytes. Everything is verified on its way in: logs are
replayed, blobs are hashed while they stream. The file gets its name only when all of it is durable.
"""

import stat
import zipfile
from collections.abc import Callable, Collection, Mapping
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from onnxreg.registry.log import lookup
from onnxreg.registry.log.contents import documents, files
from onnxreg.registry.log.lookup import load
from onnxreg.registry.store import streams
from onnxreg.registry.store.archive_reader import (
    ABOUT,
    IDENTITY,
    POLICIES,
    TRUST,
    encode_about,
    excess,
    open_archive,
)
from onnxreg.registry.store.directory.scratch import staging
from onnxreg.registry.store.layout import blob_path, index_path, new_identity
from onnxreg.registry.store.protocol import Carried, RegistryReader
from onnxreg.registry.support.disk import Disk, host_errors
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, RegError
from onnxreg.schema.core.progress import SILENT, Progress
from onnxreg.schema.core.ref import POLICY_LOG, Ref, Version


class ArchiveResult(NamedTuple):
    """Contents of an archive: versions by model, the number of its blobs and their bytes."""

    registry: str
    carried: Carried
    blobs: int
    size: int


class _Entry(NamedTuple):
    """A file of the archive. The bytes of a blob are checked against its `digest`; `label` is for people."""

    size: int
    open: Callable[[], BinaryIO]
    digest: Digest | None = None
    label: str = ""

    @classmethod
    def of(cls, data: bytes) -> "_Entry":
        return cls(len(data), lambda: BytesIO(data))


def choose(source: RegistryReader, refs: Collection[str], every: bool = False) -> Carried:
    """Choose the versions to archive: one for each REF; with `every` all that are present, of these names or
    of all models.

    A yanked version must be named exactly. InputError if this chooses no version.
    """
    carried: dict[str, frozenset[Version]] = {}
    if every:
        for name in lookup.matching(source, refs) if refs else source.names():
            versions = lookup.read_log(source, name).versions
            carried[name] = frozenset(version for version, entry in versions.items() if entry.gone is None)
    else:
        for ref in map(Ref.parse, refs):
            version = lookup.find(source, ref, yanked=Version.is_version(ref.tag or "")).version
            carried[ref.name] = carried.get(ref.name, frozenset()) | {version}
    if not any(carried.values()):
        raise InputError(
            "there is nothing to archive", "name versions, or take every one that is there: --all"
        )
    return carried


def create_archive(
    source: RegistryReader,
    chosen: Mapping[str, Collection[Version]],
    target: Path,
    progress: Progress = SILENT,
    trust: bytes | None = None,
) -> ArchiveResult:
    """Write an archive, which replaces an earlier archive at the target. The bytes `trust` are added
    unchanged, for people.

    InputError if the target is anything else, or for more than an archive may have; NotFoundError or IntegrityError if
    a part of the source is missing or damaged. After an error or a kill, the target is as it was before.
    """
    if target.is_dir():
        raise InputError(f"{target} is a directory", "name the file to write")
    if target.exists():
        try:
            open_archive(target)
        except RegError as error:
            raise InputError(
                f"{target} exists, and is not an archive", "name another file, or move it away"
            ) from error
    carried = {name: frozenset(versions) for name, versions in chosen.items()}
    entries: dict[str, _Entry] = {}
    for name in sorted(carried):
        entries |= _model_entries(source, name, carried[name])
    blobs = len(entries) - len(carried)
    entries[IDENTITY] = _Entry.of(new_identity(source.registry_id, mirror=True))
    entries[ABOUT] = _Entry.of(encode_about(carried))
    if (policies := source.read_index(POLICY_LOG)) is not None:
        entries[POLICIES] = _Entry.of(policies.data)
    if trust is not None:
        entries[TRUST] = _Entry.of(trust)
    if limit := excess(entries):
        raise InputError(f"the archive would have {limit}", "make several, of fewer models or versions")
    destination, disk = target.resolve(), Disk()
    with host_errors(f"writing {target}"):
        destination.parent.mkdir(parents=True, exist_ok=True)
        with staging(destination.parent, disk, f".{destination.name}.") as directory:
            _write(directory / destination.name, entries, progress)
            disk.write_all([(directory / destination.name, destination)], destination.parent)
        return ArchiveResult(source.registry_id, carried, blobs, destination.stat().st_size)


def _model_entries(source: RegistryReader, name: str, versions: Collection[Version]) -> dict[str, _Entry]:
    """The files of an archive, by path, for the history of a model and for these versions.

    IntegrityError if the index file differs from the replay of its own log.
    """
    ledger = load(source, name)
    assert ledger.index is not None
    ledger.prove()
    entries = {index_path(name): _Entry.of(ledger.index.data)}
    blobs = [*documents(ledger)]
    for version in sorted(versions):
        blobs += files(ledger, version, ledger.versions[version])
    for blob in blobs:
        size = len(ledger.fetch(blob.digest)) if blob.size is None else blob.size
        entry = _Entry(size, lambda blob=blob: source.open_blob(blob.digest), blob.digest, blob.path)  # type: ignore[misc]
        entries.setdefault(blob_path(blob.digest), entry)
    return entries


def _write(path: Path, entries: Mapping[str, _Entry], progress: Progress) -> None:
    progress.plan(len(entries), sum(entry.size for entry in entries.values()))
    with zipfile.ZipFile(path, "x", zipfile.ZIP_STORED) as archive:
        for name, entry in sorted(entries.items()):
            label = entry.label or name
            info = zipfile.ZipInfo(name)
            info.create_system, info.external_attr = 3, (stat.S_IFREG | 0o644) << 16
            info.file_size = entry.size
            with (
                progress.file(label, entry.size) as advance,
                entry.open() as source,
                archive.open(info, "w") as sink,
            ):
                stream = streams.metered(source, advance, f"reading {label}", entry.size)
                digest, size = streams.pump(stream, cast(streams.Sink, sink))
            if entry.digest is not None:
                streams.check(digest, entry.digest, f"{label} (blob {entry.digest})")
            if size != entry.size:
                raise IntegrityError(f"{label} has {size} bytes, its log or manifest says {entry.size}")
