"""Create an archive: one file with chosen versions of a registry, and the whole history of their models.

The same versions of the same registry give the same bytes. All inputs are verified: logs are replayed, blobs are
hashed while they are copied. The file gets its name after all of its bytes are durable.
"""

import stat
import zipfile
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from onnxreg.registry.log.contents import documents, files
from onnxreg.registry.log.log import find, load, matching, open_log
from onnxreg.registry.store.archive_reader import (
    ABOUT,
    IDENTITY,
    POLICIES,
    encode_about,
    excess,
    open_archive,
)
from onnxreg.registry.store.directory import staging
from onnxreg.registry.store.layout import blob_path, index_path, new_identity
from onnxreg.registry.store.protocol import Carried, RegistryReader
from onnxreg.registry.store.streams import Content, copy_verified
from onnxreg.registry.support.disk import Disk, host_errors
from onnxreg.schema.core.errors import InputError, RegError
from onnxreg.schema.core.progress import SILENT, Progress
from onnxreg.schema.core.ref import POLICY_LOG, Ref, Version


class ArchiveResult(NamedTuple):
    """A created archive: the versions of each model, the number of blobs, and the size of the file in bytes."""

    registry: str
    carried: Carried
    blobs: int
    size: int


def choose(source: RegistryReader, refs: Collection[str], every: bool = False) -> Carried:
    """Return the versions to archive: one for each REF, or all present ones if `every`. InputError if there are none."""
    carried: dict[str, frozenset[Version]] = {}
    if every:
        for name in matching(source, refs) if refs else source.names():
            versions = open_log(source, name).versions
            carried[name] = frozenset(version for version, entry in versions.items() if entry.gone is None)
    else:
        for ref in map(Ref.parse, refs):
            version = find(source, ref, yanked=Version.is_version(ref.tag or "")).version
            carried[ref.name] = carried.get(ref.name, frozenset()) | {version}
    if not any(carried.values()):
        raise InputError("there is nothing to archive", "name versions, or take every one: --all")
    return carried


def create_archive(
    source: RegistryReader,
    carried: Carried,
    target: Path,
    progress: Progress = SILENT,
) -> ArchiveResult:
    """Write an archive to `target`, in place of an earlier archive. After an error or a kill, `target` is unchanged.

    InputError if `target` exists and is not an archive, or if the new archive exceeds a limit; NotFoundError or IntegrityError
    if part of the source is missing or damaged.
    """
    if target.is_dir():
        raise InputError(f"{target} is a directory", "name the file to write")
    if target.exists():
        try:
            open_archive(target)
        except RegError as error:
            raise InputError(f"{target} exists, and is not an archive", "name another file") from error
    entries: dict[str, Content] = {}
    for name in sorted(carried):
        entries |= _model_entries(source, name, carried[name])
    blobs = len(entries) - len(carried)
    policies = source.read_index(POLICY_LOG)
    parts = {IDENTITY: new_identity(source.registry_id, mirror=True), ABOUT: encode_about(carried)}
    parts |= {POLICIES: policies.data} if policies else {}
    entries |= {name: Content.of(name, data) for name, data in parts.items()}
    if limit := excess(entries):
        raise InputError(f"the archive {limit}", "make several, of fewer models or versions")
    destination, disk = target.resolve(), Disk()
    with host_errors(f"writing {target}"):
        destination.parent.mkdir(parents=True, exist_ok=True)
        with staging(destination.parent, disk, f".{destination.name}.") as directory:
            _write(directory / destination.name, entries, progress)
            disk.write_all([(directory / destination.name, destination)], destination.parent)
        return ArchiveResult(source.registry_id, carried, blobs, destination.stat().st_size)


def _model_entries(source: RegistryReader, name: str, versions: Collection[Version]) -> dict[str, Content]:
    """Return, by path, the archive's files of a model and these versions. IntegrityError if the model's log is damaged."""
    ledger = load(source, name)
    assert ledger.index is not None
    ledger.prove()
    entries = {index_path(name): Content.of(index_path(name), ledger.index.data)}
    blobs = [*documents(ledger)]
    for version in sorted(versions):
        blobs += files(ledger, version, ledger.versions[version])
    for blob in blobs:
        size = len(ledger.fetch(blob.digest)) if blob.size is None else blob.size
        entry = Content(blob.path, size, blob.digest, partial(source.open_blob, blob.digest))
        entries.setdefault(blob_path(blob.digest), entry)
    return entries


def _write(path: Path, entries: Mapping[str, Content], progress: Progress) -> None:
    progress.plan(len(entries), sum(entry.size for entry in entries.values()))
    with zipfile.ZipFile(path, "x", zipfile.ZIP_STORED) as archive:
        for name, entry in sorted(entries.items()):
            info = zipfile.ZipInfo(name)
            info.create_system, info.external_attr = 3, (stat.S_IFREG | 0o644) << 16
            info.file_size = entry.size
            with archive.open(info, "w") as sink:
                copy_verified(entry, cast(BinaryIO, sink), progress)
