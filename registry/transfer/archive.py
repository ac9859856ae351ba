"""Create an archive: chosen versions of a registry, with the whole history of their models, in one file.

The same versions of the same registry give the same bytes. Everything is verified on its way in: logs are
replayed, blobs are hashed while they stream. The file gets its name only when all of it is durable.
"""

import stat
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, cast

from onnxreg.registry.log import lookup
from onnxreg.registry.log.commit import load
from onnxreg.registry.log.contents import Reference, documents, files
from onnxreg.registry.log.ledger import Ledger, is_same, replay
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
from onnxreg.registry.store.streams import metered
from onnxreg.registry.support.disk import Disk, host_errors
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import VERIFY_ADVICE, Advice, InputError, IntegrityError, RegError, at
from onnxreg.schema.core.progress import SILENT, Advance, Progress
from onnxreg.schema.core.ref import POLICY_LOG, Ref, Version


@dataclass(frozen=True)
class ArchiveResult:
    """Contents of an archive: versions by model, the number of its blobs and their bytes."""

    registry: str
    carried: Carried
    blobs: int
    size: int


@dataclass(frozen=True)
class _Entry:
    """A file of the archive. The bytes of a blob are checked against its `digest`; `label` is for progress
    and errors.
    """

    size: int
    open: Callable[[], BinaryIO]
    digest: Digest | None = None
    label: str = ""

    @classmethod
    def of(cls, data: bytes, digest: Digest | None = None) -> "_Entry":
        return cls(len(data), lambda: BytesIO(data), digest)


def _model_entries(source: RegistryReader, name: str, versions: Collection[Version]) -> dict[str, _Entry]:
    """The files of an archive, by path, for the history of a model and for these versions."""
    ledger, index = load(source, name)
    if index is None:
        raise lookup.unknown_model(name, source)
    _check(ledger, index.data, source.url)
    entries = {index_path(name): _Entry.of(index.data)}
    for document in documents(ledger):
        data = ledger.fetch(document.digest) if document.size is None else None
        entry = _streamed(source, document) if data is None else _Entry.of(data, document.digest)
        entries[blob_path(document.digest)] = entry
    for version in sorted(versions):
        for file in files(ledger, version, ledger.entries[version]):
            entries.setdefault(blob_path(file.digest), _streamed(source, file))
    return entries


def _streamed(source: RegistryReader, file: Reference) -> _Entry:
    return _Entry(file.size or 0, lambda: source.open_blob(file.digest), file.digest, file.path)


def _check(ledger: Ledger, index: bytes, url: str) -> None:
    """IntegrityError if an index file differs from the replay of its own log."""
    if not is_same(index, replay(ledger.lines(), ledger.registry, ledger.name, ledger.fetch).encode()):
        raise IntegrityError(
            f"the index of {ledger.name} in {url} is not what its log says", at(VERIFY_ADVICE, url)
        )


def choose(source: RegistryReader, refs: Collection[str], every: bool = False) -> Carried:
    """Choose the versions to archive: one for each REF; with `every` all that are present, of these names or
    of all models.

    A yanked version must be named exactly. InputError if this chooses no version.
    """
    if every:
        names = lookup.matching(source, refs) if refs else source.names()
        carried = {name: frozenset(_present(source, name)) for name in names}
    else:
        carried = {}
        for ref in map(Ref.parse, refs):
            version = lookup.find(source, ref, yanked=Version.is_version(ref.tag or "")).version
            carried[ref.name] = carried.get(ref.name, frozenset()) | {version}
    if not any(carried.values()):
        raise InputError("there is nothing to archive", Advice("name-versions"))
    return carried


def _present(source: RegistryReader, name: str) -> Iterator[Version]:
    _, versions = lookup.read_versions(source, name)
    return (version for version, entry in versions.items() if entry.gone is None)


def create_archive(
    source: RegistryReader,
    chosen: Mapping[str, Collection[Version]],
    target: Path,
    progress: Progress = SILENT,
    trust: bytes | None = None,
) -> ArchiveResult:
    """Write an archive, which replaces an earlier archive at the target. The bytes `trust` are added
    unchanged, for people.

    InputError if the target is anything else, or for more than an archive may have; NotFoundError or IntegrityError if a part of the source is
    missing or damaged. After an error or a kill, the target is as it was before.
    """
    _check_target(target)
    carried = {name: frozenset(versions) for name, versions in chosen.items()}
    entries: dict[str, _Entry] = {}
    for name in sorted(carried):
        entries |= _model_entries(source, name, carried[name])
    blobs = len(entries) - len(carried)
    entries[IDENTITY] = _Entry.of(new_identity(source.registry_id, mirror=True))
    policies = source.read_index(POLICY_LOG)
    if policies is not None:
        entries[POLICIES] = _Entry.of(policies.data)
    entries[ABOUT] = _Entry.of(encode_about(carried))
    if trust is not None:
        entries[TRUST] = _Entry.of(trust)
    if limit := excess(entries):
        raise InputError(f"the archive would have {limit}", "make several, of fewer models or versions")
    destination = target.resolve()
    with host_errors(f"writing {target}"):
        destination.parent.mkdir(parents=True, exist_ok=True)
        disk = Disk()
        with staging(destination.parent, disk, f".{destination.name}.") as directory:
            _write(directory / destination.name, entries, progress)
            disk.write_all([(directory / destination.name, destination)], destination.parent)
        return ArchiveResult(source.registry_id, carried, blobs, destination.stat().st_size)


def _check_target(target: Path) -> None:
    """InputError if the target exists and is not an archive."""
    if target.is_dir():
        raise InputError(f"{target} is a directory", "name the file to write")
    if target.exists():
        try:
            open_archive(target)
        except RegError as error:
            raise InputError(
                f"{target} exists, and is not an archive", "name another file, or move it away"
            ) from error


def _write(path: Path, entries: Mapping[str, _Entry], progress: Progress) -> None:
    progress.plan(len(entries), sum(entry.size for entry in entries.values()))
    with zipfile.ZipFile(path, "x", zipfile.ZIP_STORED) as archive:
        for name in sorted(entries):
            entry = entries[name]
            with progress.file(entry.label or name, entry.size) as advance:
                _write_entry(archive, name, entry, advance)


def _write_entry(archive: zipfile.ZipFile, name: str, entry: _Entry, advance: Advance) -> None:
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, (stat.S_IFREG | 0o644) << 16
    info.file_size = entry.size
    with entry.open() as source, archive.open(info, "w") as sink:
        stream = metered(source, advance, f"reading {entry.label or name}", entry.size)
        digest, size = streams.pump(stream, cast(streams.Sink, sink))
    if entry.digest is not None:
        streams.check(digest, entry.digest, f"{entry.label or name} (blob {entry.digest})")
    if size != entry.size:
        raise IntegrityError(f"{entry.label or name} has {size} bytes, its log or manifest says {entry.size}")
