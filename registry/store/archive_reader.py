"""A registry in one file, for reading: the tree of any registry as the entries of a zip that compresses nothing.

archive.json                   which versions' files it carries
registry.json                  the id of the registry that it was made from; it is a mirror of that
policy.jsonl                   verbatim, if there is one
index/<name>.jsonl             verbatim: the history is whole
blobs/sha256/ab/<64 hex>       the history's documents, and the files of the carried versions
trust.toml                     a copy of somebody's trust roots, for people; nothing here reads it
"""

import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from onnxreg.registry.store.layout import UPGRADE, BlobKey, index_path, model_of
from onnxreg.registry.store.object_store import ObjectRegistry, ReadOnlyStore
from onnxreg.registry.store.protocol import MAX_DOCUMENT_BYTES, Carried, MissingBlobError, StoredObject
from onnxreg.registry.support.disk import host_errors, path_text
from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import items, mapping, required, text
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import Advice, HostError, InputError, IntegrityError, NotFoundError
from onnxreg.schema.core.given_file import check_given
from onnxreg.schema.core.ref import POLICY_LOG, Version, check_name

SUFFIX = ".onnxreg"
SUFFIXES = (SUFFIX, ".zip")
"""Of what is meant to be an archive, whatever is in it."""
ABOUT, IDENTITY, TRUST = "archive.json", "registry.json", "trust.toml"
POLICIES = index_path(POLICY_LOG)
FORMAT, FORMAT_VERSION = "onnxreg-archive", 1
MAX_MODELS, MAX_FILES = 10_000, 250_000
"""Of an archive: each is looked at, by `ls` and `verify` as well."""
COPY_AGAIN_HINT = Advice("copy-archive-again")
LOCAL_HEADER = struct.Struct("<4s5H3L2H")
"""The local header before an entry's name and bytes (APPNOTE.TXT 4.3.7)."""
ZIP64_MARK = 0xFFFFFFFF
"""The value of a size that is in the extra field, for entries beyond 4 GiB (4.5.3)."""
END_RECORD_BYTES = 22
"""Bytes of the last record of a zip without a comment (4.3.16)."""


def is_part(name: str) -> bool:
    """True if an archive may have an entry of this name."""
    key = BlobKey.of_path(name)
    plain = key is not None and not key.generation
    named = name in (ABOUT, IDENTITY, POLICIES, TRUST) or model_of(name) is not None
    return named or plain


def excess(names: Collection[str]) -> str:
    """The limit that an archive with these entries exceeds, in a few words; empty if it exceeds none."""
    if len(names) > MAX_FILES:
        return f"more than {MAX_FILES:,} files"
    models = sum(model_of(name) is not None for name in names)
    return f"more than {MAX_MODELS:,} models" if models > MAX_MODELS else ""


def encode_about(carried: Carried) -> bytes:
    """The bytes of `archive.json`."""
    versions = {name: [str(version) for version in sorted(carried[name])] for name in carried}
    return canonical.encode({"format": FORMAT, "format_version": FORMAT_VERSION, "versions": versions})


def read_about(data: bytes, url: str) -> Carried:
    """Read `archive.json`. IntegrityError if it is malformed, HostError if a newer build wrote it."""
    try:
        value = mapping(canonical.decode(data, ABOUT))
        kind, version = required(value, "format"), required(value, "format_version")
        if (kind, version) == (FORMAT, FORMAT_VERSION):
            return {
                check_name(name): _versions(versions) for name, versions in mapping(value["versions"]).items()
            }
    except (InputError, KeyError) as error:
        raise IntegrityError(f"{ABOUT} of {url} is damaged: {error}", COPY_AGAIN_HINT) from error
    if kind == FORMAT:
        raise HostError(f"{url} has the archive format {str(version)[:20]}", UPGRADE)
    raise IntegrityError(f"{ABOUT} of {url} describes no archive", COPY_AGAIN_HINT)


def _versions(value: object) -> frozenset[Version]:
    return frozenset(items(value, lambda version: Version.parse(text(version))))


class ArchiveStore(ReadOnlyStore):
    """An `ObjectStore` that refuses to write. Raises IntegrityError if the file is not an archive."""

    description = "an archive"
    instead = Advice("archive-is-read-only")

    def __init__(self, path: Path) -> None:
        self.url = path_text(path)
        self._path = path
        with host_errors(f"reading {path}"):
            self._entries = read_directory(path, is_part)
        if limit := excess(self._entries):
            raise IntegrityError(f"{path} is not an archive of onnxreg: it has {limit}", COPY_AGAIN_HINT)

    @property
    def directory_digest(self) -> Digest:
        """Over the path, size and check sum of every file in it."""
        entry_facts = sorted((key, entry.size, entry.crc) for key, entry in self._entries.items())
        return Digest.of(repr(entry_facts).encode())

    def get(self, key: str, cached: StoredObject | None = None) -> StoredObject | None:
        stream = self.open(key)
        if stream is None:
            return None
        with stream, host_errors(f"reading {self.url}"):
            data = stream.read(MAX_DOCUMENT_BYTES + 1)
        if len(data) > MAX_DOCUMENT_BYTES:
            raise IntegrityError(f"{key} of {self.url} is larger than {MAX_DOCUMENT_BYTES} bytes")
        if zlib.crc32(data) != self._entries[key].crc:
            raise IntegrityError(f"{key} of {self.url} is damaged: it has another check sum", COPY_AGAIN_HINT)
        return data, Digest.of(data).hex

    def open(self, key: str, start: int = 0) -> BinaryIO | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        with host_errors(f"reading {self.url}"):
            return open_entry(self._path, key, entry, start)

    def has(self, keys: Iterable[str]) -> set[str]:
        return {key for key in keys if key in self._entries}

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        """List the files of the tree, without those that only an archive has."""
        tree = sorted(self._entries.keys() - {ABOUT, TRUST})
        return ((key, self._entries[key].size) for key in tree if key.startswith(prefix))


class ArchiveRegistry(ObjectRegistry):
    """The registry in an archive; `carried` are the versions whose files are in it."""

    def __init__(self, path: Path) -> None:
        store = ArchiveStore(path)
        super().__init__(store)
        self._refuse = store.refuse
        self.directory_digest = store.directory_digest
        about_document = self.store.get(ABOUT)
        if about_document is None:
            raise IntegrityError(f"{path} has no {ABOUT}, which every archive has", COPY_AGAIN_HINT)
        self.carried: Carried = read_about(about_document[0], self.url)
        try:
            self.check_exists()
        except NotFoundError:
            raise IntegrityError(
                f"{path} has no registry.json, which every archive has", COPY_AGAIN_HINT
            ) from None

    @property
    def location(self) -> str:
        """The identity of the archive: a file that replaces it is another place."""
        return f"{Path(self.url).absolute()}#{self.directory_digest.short}"

    def confirm(self, name: str) -> None:
        """RemoteError: an archive is read only, and may not carry all blobs of its index."""
        self._refuse(f"pushing {name}")

    def blob_url(self, digest: Digest) -> str:
        """The URL of a file in a zip, as fsspec writes it."""
        return f"zip://{BlobKey(digest).path}::{Path(self.url).absolute().as_uri()}"

    def open_blob(self, digest: Digest, start: int = 0) -> BinaryIO:
        try:
            return super().open_blob(digest, start)
        except MissingBlobError:
            raise NotCarriedError(digest, self.url, self.carried) from None


class NotCarriedError(MissingBlobError):
    """A file of a version that the archive lists but does not carry."""

    def __init__(self, digest: Digest, url: str, carried: Carried) -> None:
        refs = [f"{name}:{version}" for name in sorted(carried) for version in sorted(carried[name])]
        more = f" and {len(refs) - 4} more" if len(refs) > 4 else ""
        message = f"{url} has no blob {digest.short}...: it carries the files of {', '.join(refs[:4])}{more}"
        NotFoundError.__init__(
            self, message, "ask for an archive that carries the version, or for a whole one"
        )


def open_archive(path: Path) -> ArchiveRegistry:
    """The registry in an archive.

    Raises NotFoundError if there is nothing, InputError if there is a directory or a file that does not even look like
    an archive, IntegrityError if it looks like one but is damaged.
    """
    check_given(path, "archive", Advice("create-archive"))
    with host_errors(f"reading {path}"):
        if path.suffix not in SUFFIXES and not is_zip(path):
            raise InputError(f"{path} is a file, and no archive", Advice("name-directory-or-archive"))
    return ArchiveRegistry(path)


@dataclass(frozen=True, slots=True)
class ZipEntry:
    """An entry's offset in the file (of its local header), its size in bytes, and its CRC-32.

    `about` is what the directory says of it beside: flags, method, time and date, as the local header has them. (The
    version that is needed is another one there for what begins beyond 2 GiB.)
    """

    header: int
    size: int
    crc: int
    about: tuple[int, ...]

    @classmethod
    def of(cls, info: zipfile.ZipInfo) -> "ZipEntry":
        year, month, day, hour, minute, second = info.date_time
        date, time = (year - 1980) << 9 | month << 5 | day, hour << 11 | minute << 5 | second // 2
        about = (info.flag_bits, info.compress_type, time, date)
        return cls(info.header_offset, info.file_size, info.CRC, about)


def is_zip(path: Path) -> bool:
    """True if a file begins as a zip with an entry does, or ends as one; the rest may be damaged."""
    with path.open("rb") as file:
        return file.read(4) == b"PK\3\4" or zipfile.is_zipfile(file)


def read_directory(path: Path, is_part: Callable[[str], bool]) -> Mapping[str, ZipEntry]:
    """Read the entries by name. IntegrityError if the file is not such a zip, or has an entry outside of it."""
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            entries, end = archive.infolist(), archive.start_dir
            file.seek(-END_RECORD_BYTES, io.SEEK_END)
            fault = "" if file.read(4) == b"PK\5\6" else "goes on behind its end"
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError, struct.error) as error:
        raise IntegrityError(
            f"{path} is not an archive, or a part of one: {error}", COPY_AGAIN_HINT
        ) from error
    fault = fault or _first_fault(entries, end, is_part)
    if fault:
        raise IntegrityError(f"{path} is not an archive of onnxreg: it {fault}", COPY_AGAIN_HINT)
    return {info.filename: ZipEntry.of(info) for info in entries}


def _first_fault(entries: list[zipfile.ZipInfo], end: int, is_part: Callable[[str], bool]) -> str:
    """The first property that our archives never have, in a few words; empty if there is none."""
    names: set[str] = set()
    behind = 0
    if not entries or min(info.header_offset for info in entries):
        return "begins with something else"
    for info in sorted(entries, key=lambda info: info.header_offset):
        name = info.orig_filename
        name_text = repr(name[:80])
        if name in names:
            return f"has two entries {name_text}"
        names.add(name)
        kind = stat.S_IFMT(info.external_attr >> 16)
        if info.filename != name or not is_part(name) or kind not in (0, stat.S_IFREG):
            return f"has {name_text}, which no registry has"
        stored = info.compress_type == zipfile.ZIP_STORED and info.compress_size == info.file_size
        if not stored or info.flag_bits & 1:
            return f"holds {name_text} compressed or encrypted"
        if info.header_offset < behind:
            return f"has overlapping entries, such as {name_text}"
        behind = info.header_offset + LOCAL_HEADER.size + len(name) + info.file_size
    return "has entries that overlap its directory" if behind > end else ""


def open_entry(path: Path, name: str, entry: ZipEntry, start: int = 0) -> BinaryIO:
    """Open a stream over an entry's bytes from an offset. IntegrityError if its local header disagrees."""
    file = path.open("rb")
    try:
        begin = _begin(file, entry, name.encode())
        if begin is None:
            raise IntegrityError(f"{name} of {path} is not where its directory says", COPY_AGAIN_HINT)
        return cast(BinaryIO, io.BufferedReader(ZipWindow(file, begin + start, max(entry.size - start, 0))))
    except BaseException:
        file.close()
        raise


def _begin(file: BinaryIO, entry: ZipEntry, name: bytes) -> int | None:
    """The offset of an entry's bytes."""
    file.seek(entry.header)
    header = file.read(LOCAL_HEADER.size)
    if len(header) < LOCAL_HEADER.size:
        return None
    signature, _, *about, crc, stored, size, length, extra = LOCAL_HEADER.unpack(header)
    same = signature == b"PK\3\4" and file.read(length) == name and crc == entry.crc
    same = same and tuple(about) == entry.about and {stored, size} <= {entry.size, ZIP64_MARK}
    return entry.header + LOCAL_HEADER.size + length + extra if same else None


class ZipWindow(io.RawIOBase):
    """A part of a file: `size` bytes from an offset on. Closes the file."""

    def __init__(self, file: BinaryIO, start: int, size: int) -> None:
        self._file = cast(Any, file)
        self._left = size
        file.seek(start)

    def readable(self) -> bool:
        return True

    def readinto(self, block: Any, /) -> int:
        count: int = self._file.readinto(memoryview(block)[: self._left])
        self._left -= count
        return count

    def close(self) -> None:
        self._file.close()
        super().close()
