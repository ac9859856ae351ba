"""An archive is a registry in one file: a zip without compression, with an entry for each file of the registry.

archive.json                   the versions whose files the archive contains
registry.json                  the id of the registry that the archive mirrors
policy.jsonl                   an exact copy, if the registry has one
index/<name>.jsonl             an exact copy, with the whole history of the model
blobs/sha256/ab/<64 hex>       the documents of the history, and the files of the versions in archive.json

The same versions of the same registry give the same bytes.
"""

import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property, partial
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, cast

from onnxreg.registry.log.contents import documents, files, set_pushed
from onnxreg.registry.log.log import find, load, matching, open_log
from onnxreg.registry.store import protocol
from onnxreg.registry.store.directory import staging
from onnxreg.registry.store.streams import Content, Readable, copy_verified
from onnxreg.registry.system import Disk, check_outside, host_errors, path_text
from onnxreg.schema.core import canonical
from onnxreg.schema.core.bounds import MAX_ARCHIVE_FILES, MAX_ARCHIVE_MODELS, MAX_DOCUMENT_BYTES
from onnxreg.schema.core.canonical import Digest, convert
from onnxreg.schema.core.errors import HostError, InputError, IntegrityError, RegError, about
from onnxreg.schema.core.files import check_given
from onnxreg.schema.core.ref import POLICY_LOG, Ref, Version, check_name
from onnxreg.schema.core.units import SILENT, Progress

SUFFIXES = (".onnxreg", ".zip")  # a file whose name ends with one of these suffixes is opened as an archive
ABOUT, IDENTITY = "archive.json", "registry.json"
POLICIES = protocol.index_path(POLICY_LOG)
FORMAT, FORMAT_VERSION = "onnxreg-archive", 1
COPY_AGAIN = "copy it again, or have it made again: reg archive create"
HEADER_BYTES, END_BYTES = 30, 22
"""The sizes in bytes of an entry's header (without the name) and of a zip's last record (APPNOTE.TXT 4.3.7, 4.3.16)."""


def exceeded_limit(names: Collection[str]) -> str:
    """Return a phrase for the limit of archives that these entries exceed, or "" if they exceed no limit."""
    if len(names) > MAX_ARCHIVE_FILES:
        return f"has more than {MAX_ARCHIVE_FILES:,} files"
    models = sum(protocol.model_of(name) is not None for name in names)
    return f"has more than {MAX_ARCHIVE_MODELS:,} models" if models > MAX_ARCHIVE_MODELS else ""


def read_about(data: bytes, url: str) -> protocol.Carried:
    """Decode `archive.json`. Raises IntegrityError if it is malformed, and HostError if a newer build wrote it."""
    with about(f"{ABOUT} of {url} is damaged", IntegrityError, COPY_AGAIN):
        value = convert(canonical.decode(data, ABOUT), dict[str, Any], "it")
        kind, version = value.get("format"), value.get("format_version")
        if kind == FORMAT and version != FORMAT_VERSION:
            raise HostError(f"{url} has the archive format {str(version)[:20]}", protocol.UPGRADE)
        if kind != FORMAT:
            raise InputError("it describes no archive")
        carried = convert(value.get("versions"), dict[str, frozenset[Version]], "its versions")
        return {check_name(name): versions for name, versions in carried.items()}


class ArchiveStore(protocol.ReadOnlyStore):
    """A read-only `ObjectStore` with the files in an archive. Raises IntegrityError if the file is not an archive."""

    description = "an archive"
    instead = "push to a registry, and have a new archive made of it: reg archive create"

    def __init__(self, path: Path) -> None:
        self.url = path_text(path)
        self._lock = Lock()
        with host_errors(f"reading {path}"):
            try:
                self._archive = zipfile.ZipFile(path)
            except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError) as error:
                failure = f"{path} is not an archive, or a part of one: {error}"
                raise IntegrityError(failure, COPY_AGAIN) from error
            is_end = self._read(path.stat().st_size - END_BYTES, 4) == b"PK\5\6"
        entries = self._archive.infolist()
        self._entries = {info.orig_filename: info for info in entries}
        fault = "goes on behind its end" if not is_end else exceeded_limit(self._entries)
        if fault := fault or _fault(entries):
            raise IntegrityError(f"{path} is not an archive of onnxreg: it {fault}", COPY_AGAIN)

    def _read(self, offset: int, count: int) -> bytes:
        file = cast(BinaryIO, self._archive.fp)
        with self._lock, host_errors(f"reading {self.url}"):
            file.seek(offset)
            return file.read(count)

    @cached_property
    def directory_digest(self) -> Digest:
        facts = sorted((key, entry.file_size, entry.CRC) for key, entry in self._entries.items())
        return Digest.of(repr(facts).encode())

    def get(self, key: str, cached: protocol.StoredObject | None = None) -> protocol.StoredObject | None:
        if (stream := self.open(key)) is None:
            return None
        with stream:
            data = stream.read(MAX_DOCUMENT_BYTES + 1)
        if len(data) > MAX_DOCUMENT_BYTES or zlib.crc32(data) != self._entries[key].CRC:
            raise IntegrityError(f"{key} of {self.url} is too large, or has another check sum", COPY_AGAIN)
        return protocol.StoredObject(data, Digest.of(data).hex)

    def open(self, key: str, start: int = 0) -> BinaryIO | None:
        if (entry := self._entries.get(key)) is None:
            return None
        name = key.encode()
        header = self._read(entry.header_offset, HEADER_BYTES + len(name)).ljust(HEADER_BYTES, b"\0")
        magic, name_length, more = struct.unpack("<4s22xHH", header[:HEADER_BYTES])
        begin = entry.header_offset + HEADER_BYTES + name_length + more
        end = begin + entry.file_size
        if (magic, header[HEADER_BYTES:]) != (b"PK\3\4", name) or end > self._archive.start_dir:
            raise IntegrityError(f"{key} of {self.url} is not where its directory says", COPY_AGAIN)
        return cast(BinaryIO, io.BufferedReader(_Span(self._read, min(begin + start, end), end, key)))

    def has(self, keys: Iterable[str]) -> set[str]:
        return {key for key in keys if key in self._entries}

    def list(self, prefix: str) -> Iterator[protocol.TreeFile]:
        tree = sorted(self._entries.keys() - {ABOUT})
        return (
            protocol.TreeFile(key, self._entries[key].file_size) for key in tree if key.startswith(prefix)
        )


class _Span(Readable):
    def __init__(self, read: Callable[[int, int], bytes], offset: int, end: int, key: str) -> None:
        self._read, self._offset, self._end, self._key = read, offset, end, key

    def readinto(self, buffer: Any, /) -> int:
        count = min(len(buffer), self._end - self._offset)
        data = self._read(self._offset, count)
        if len(data) < count:
            raise IntegrityError(f"the archive was cut off while {self._key} was read", COPY_AGAIN)
        buffer[:count] = data
        self._offset += count
        return count


class ArchiveRegistry(protocol.RegistryStore):
    store: ArchiveStore

    def __init__(self, path: Path) -> None:
        super().__init__(ArchiveStore(path))
        about = self.store.get(ABOUT)
        if about is None or not self.store.has([IDENTITY]):
            raise IntegrityError(f"{path} has no {ABOUT} or no {IDENTITY}", COPY_AGAIN)
        self.carried: protocol.Carried = read_about(about.data, self.url)
        self.check_exists()

    @property
    def location(self) -> str:
        return f"{Path(self.url).absolute()}#{self.store.directory_digest.short}"

    def confirm(self, name: str) -> None:
        self.store.refuse(f"pushing {name}")

    def blob_url(self, digest: Digest) -> str:
        return f"zip://{protocol.BlobKey(digest).path}::{Path(self.url).absolute().as_uri()}"

    def open_blob(self, digest: Digest, start: int = 0) -> BinaryIO:
        try:
            return super().open_blob(digest, start)
        except protocol.MissingBlobError:
            carried = self.carried.items()
            refs = [f"{name}:{version}" for name, versions in sorted(carried) for version in sorted(versions)]
            files = f"it carries the files of {', '.join(refs[:4])}{' ...' if refs[4:] else ''}"
            error = protocol.MissingBlobError(digest, f"{self.url}: {files}")
            error.hint = "ask for one with that version"
            raise error from None


def open_archive(path: Path) -> ArchiveRegistry:
    """Open an archive.

    Raises NotFoundError if the file does not exist, InputError if it is not an archive, and IntegrityError if it is
    damaged.
    """
    check_given(path, "archive", "`reg archive create` makes one")
    with host_errors(f"reading {path}"), path.open("rb") as file:
        if path.suffix not in SUFFIXES and file.read(4) != b"PK\3\4" and not zipfile.is_zipfile(file):
            raise InputError(f"{path} is a file, and no archive", "name a directory, or an archive")
    return ArchiveRegistry(path)


def _fault(entries: Collection[zipfile.ZipInfo]) -> str:
    behind, names = 0, set[str]()
    for info in sorted(entries, key=lambda info: info.header_offset):
        name = info.orig_filename  # zipfile cuts `filename` at a zero byte
        if not names and info.header_offset:
            return "begins with something else"
        if name in names:
            return f"has two entries {name[:80]!r}"
        key = protocol.BlobKey.of_path(name)
        is_part = (key is not None and not key.generation) or protocol.model_of(name) is not None
        is_part |= name in (ABOUT, IDENTITY, POLICIES)
        if not is_part or stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
            return f"has {name[:80]!r}, which no registry has"
        is_plain = info.compress_type == zipfile.ZIP_STORED and info.compress_size == info.file_size
        if not is_plain or info.flag_bits & 1:
            return f"holds {name[:80]!r} compressed or encrypted"
        if info.header_offset < behind:
            return f"has overlapping entries, such as {name[:80]!r}"
        names.add(name)
        behind = info.header_offset + HEADER_BYTES + len(name) + info.file_size
    return ""


def choose(source: protocol.RegistryReader, refs: Collection[str], every: bool = False) -> protocol.Carried:
    """Return the versions that `refs` name or match. If `every` is set, return all versions of the models in `refs`.

    Raises InputError if no version matches.
    """
    carried: dict[str, frozenset[Version]] = {}
    limits = protocol.innermost(source).carried  # of an archive
    if every:
        for name in matching(source, refs) if refs else source.names():
            versions = open_log(source, name).versions
            carried[name] = frozenset(
                version
                for version, entry in versions.items()
                if entry.gone is None and (limits is None or version in limits.get(name, ()))
            )
    else:
        for ref in map(Ref.parse, refs):
            version = find(source, ref, yanked=Version.is_version(ref.tag or "")).version
            carried[ref.name] = carried.get(ref.name, frozenset()) | {version}
    if not any(carried.values()):
        raise InputError("there is nothing to archive", "name versions, or take every one: --all")
    return carried


def create_archive(
    source: protocol.RegistryReader, carried: protocol.Carried, target: Path, progress: Progress = SILENT
) -> tuple[int, int]:
    """Write an archive to `target`, in place of an earlier archive. Return its number of blobs and its size in bytes.

    After an error or a kill, `target` is unchanged. Raises InputError if `target` is a file but not an archive, or is
    inside a registry, or if the new archive exceeds a limit. Raises NotFoundError or IntegrityError if part of the
    source is missing or damaged.
    """
    check_outside(target)
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
    parts = {POLICIES: policies.data} if policies else {}
    listed = {name: [str(version) for version in sorted(versions)] for name, versions in carried.items()}
    document = {"format": FORMAT, "format_version": FORMAT_VERSION, "versions": listed}
    parts |= {
        IDENTITY: protocol.new_identity(source.registry_id, mirror=True),
        ABOUT: canonical.encode(document),
    }
    entries |= {name: Content.of(name, data) for name, data in parts.items()}
    if limit := exceeded_limit(entries):
        raise InputError(f"the archive {limit}", "make several, of fewer models or versions")
    destination, disk = target.resolve(), Disk()
    with host_errors(f"writing {target}"):
        destination.parent.mkdir(parents=True, exist_ok=True)
        with staging(destination.parent, disk, f".{destination.name}.") as directory:
            progress.plan(len(entries), sum(entry.size for entry in entries.values()))
            with zipfile.ZipFile(directory / destination.name, "x", zipfile.ZIP_STORED) as archive:
                for name, entry in sorted(entries.items()):
                    info = zipfile.ZipInfo(name)
                    info.create_system, info.external_attr = 3, (stat.S_IFREG | 0o644) << 16
                    info.file_size = entry.size
                    with archive.open(info, "w") as sink:
                        copy_verified(entry, cast(BinaryIO, sink), progress)
            disk.write_all([(directory / destination.name, destination)], destination.parent)
        return blobs, destination.stat().st_size


def _model_entries(
    source: protocol.RegistryReader, name: str, versions: Collection[Version]
) -> dict[str, Content]:
    ledger = load(source, name)
    assert ledger.index is not None
    ledger.prove()
    set_pushed(source, ledger, versions)
    entries = {protocol.index_path(name): Content.of(protocol.index_path(name), ledger.index.data)}
    blobs = [*documents(ledger)]
    for version in sorted(versions):
        blobs += files(ledger, version, ledger.versions[version])
    for blob in blobs:
        size = len(ledger.fetch(blob.digest)) if blob.size is None else blob.size
        entry = Content(blob.path, size, blob.digest, partial(source.open_blob, blob.digest))
        entries.setdefault(protocol.blob_path(blob.digest), entry)
    return entries
