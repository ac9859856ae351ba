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
from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, cast

from onnxreg.registry.store.layout import UPGRADE, BlobKey, index_path, model_of
from onnxreg.registry.store.object_store import ObjectRegistry, ReadOnlyStore
from onnxreg.registry.store.protocol import Carried, MissingBlobError, StoredObject, TreeFile
from onnxreg.registry.support.disk import host_errors, path_text
from onnxreg.schema.core import canonical
from onnxreg.schema.core.bounds import MAX_ARCHIVE_FILES, MAX_ARCHIVE_MODELS, MAX_DOCUMENT_BYTES
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import HostError, InputError, IntegrityError, NotFoundError
from onnxreg.schema.core.given_file import check_given
from onnxreg.schema.core.ref import POLICY_LOG, Version, check_name

SUFFIXES = (".onnxreg", ".zip")
"""A file with one of these is meant to be an archive, whatever is in it."""
ABOUT, IDENTITY, TRUST = "archive.json", "registry.json", "trust.toml"
POLICIES = index_path(POLICY_LOG)
FORMAT, FORMAT_VERSION = "onnxreg-archive", 1
COPY_AGAIN = "copy it again, or have it made again: reg archive create"
HEADER_BYTES, END_BYTES = 30, 22
"""Bytes of an entry's header before its name, and of the last record of a zip (APPNOTE.TXT 4.3.7, 4.3.16)."""


def excess(names: Collection[str]) -> str:
    """The limit that an archive with these entries exceeds, in a few words; empty if it exceeds none."""
    if len(names) > MAX_ARCHIVE_FILES:
        return f"more than {MAX_ARCHIVE_FILES:,} files"
    models = sum(model_of(name) is not None for name in names)
    return f"more than {MAX_ARCHIVE_MODELS:,} models" if models > MAX_ARCHIVE_MODELS else ""


def encode_about(carried: Carried) -> bytes:
    """The bytes of `archive.json`."""
    versions = {name: [str(version) for version in sorted(carried[name])] for name in carried}
    return canonical.encode({"format": FORMAT, "format_version": FORMAT_VERSION, "versions": versions})


def read_about(data: bytes, url: str) -> Carried:
    """Read `archive.json`. IntegrityError if it is malformed, HostError if a newer build wrote it."""
    carried: dict[str, frozenset[Version]] = {}
    try:
        value: Any = canonical.decode(data, ABOUT)
        kind, version = value["format"], value["format_version"]
        if (kind, version) == (FORMAT, FORMAT_VERSION):
            for name, versions in value["versions"].items():
                if not isinstance(versions, list):
                    raise TypeError(f"the versions of {name} are not a list")
                carried[check_name(name)] = frozenset(map(Version.parse, versions))
            return carried
    except (InputError, KeyError, TypeError, AttributeError) as error:
        raise IntegrityError(f"{ABOUT} of {url} is damaged: {error}", COPY_AGAIN) from error
    if kind == FORMAT:
        raise HostError(f"{url} has the archive format {str(version)[:20]}", UPGRADE)
    raise IntegrityError(f"{ABOUT} of {url} describes no archive", COPY_AGAIN)


class ArchiveStore(ReadOnlyStore):
    """An `ObjectStore` that refuses to write. Raises IntegrityError if the file is not an archive."""

    description = "an archive"
    instead = "push to a registry, and have a new archive made of it: reg archive create"

    def __init__(self, path: Path) -> None:
        self.url = path_text(path)
        self._path = path
        with host_errors(f"reading {path}"):
            self._entries = _read_directory(path)

    @cached_property
    def directory_digest(self) -> Digest:
        """Over the path, size and check sum of every file in it."""
        facts = sorted((key, entry.file_size, entry.CRC) for key, entry in self._entries.items())
        return Digest.of(repr(facts).encode())

    def get(self, key: str, cached: StoredObject | None = None) -> StoredObject | None:
        stream = self.open(key)
        if stream is None:
            return None
        with stream, host_errors(f"reading {self.url}"):
            data = stream.read(MAX_DOCUMENT_BYTES + 1)
        if len(data) > MAX_DOCUMENT_BYTES:
            raise IntegrityError(f"{key} of {self.url} is larger than {MAX_DOCUMENT_BYTES} bytes")
        if zlib.crc32(data) != self._entries[key].CRC:
            raise IntegrityError(f"{key} of {self.url} is damaged: it has another check sum", COPY_AGAIN)
        return data, Digest.of(data).hex

    def open(self, key: str, start: int = 0) -> BinaryIO | None:
        """A stream over an entry's bytes from an offset. IntegrityError if its own header is not as the directory says."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        with host_errors(f"reading {self.url}"):
            file = self._path.open("rb")
            begin = _begin(file, entry)
            if begin is None:
                file.close()
                raise IntegrityError(f"{key} of {self.url} is not where its directory says", COPY_AGAIN)
            file.seek(begin + start)
            return cast(BinaryIO, io.BufferedReader(Window(file, max(entry.file_size - start, 0))))

    def has(self, keys: Iterable[str]) -> set[str]:
        return {key for key in keys if key in self._entries}

    def list(self, prefix: str) -> Iterator[TreeFile]:
        """List the files of the tree, without those that only an archive has."""
        tree = sorted(self._entries.keys() - {ABOUT, TRUST})
        return (TreeFile(key, self._entries[key].file_size) for key in tree if key.startswith(prefix))


class ArchiveRegistry(ObjectRegistry):
    """The registry in an archive; `carried` are the versions whose files are in it."""

    def __init__(self, path: Path) -> None:
        archive = ArchiveStore(path)
        super().__init__(archive)
        self._archive = archive
        about = archive.get(ABOUT)
        for part in (ABOUT, IDENTITY):
            if not archive.has([part]):
                raise IntegrityError(f"{path} has no {part}, which every archive has", COPY_AGAIN)
        self.carried: Carried = read_about(about[0] if about else b"", self.url)
        self.check_exists()

    @property
    def location(self) -> str:
        """The identity of the archive: a file that replaces it is another place."""
        return f"{Path(self.url).absolute()}#{self._archive.directory_digest.short}"

    def confirm(self, name: str) -> None:
        """RemoteError: an archive is read only, and may not carry all blobs of its index."""
        self._archive.refuse(f"pushing {name}")

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
    check_given(path, "archive", "`reg archive create` makes one")
    with host_errors(f"reading {path}"), path.open("rb") as file:
        if path.suffix not in SUFFIXES and file.read(4) != b"PK\3\4" and not zipfile.is_zipfile(file):
            raise InputError(
                f"{path} is a file, and no archive",
                "name a directory, or a file that reg archive create made",
            )
    return ArchiveRegistry(path)


def _read_directory(path: Path) -> Mapping[str, zipfile.ZipInfo]:
    """The entries by name. IntegrityError for the first property that our archives never have."""
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            entries, end = archive.infolist(), archive.start_dir
            file.seek(-END_BYTES, io.SEEK_END)
            fault = "" if file.read(4) == b"PK\5\6" else "goes on behind its end"
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError, struct.error) as error:
        raise IntegrityError(f"{path} is not an archive, or a part of one: {error}", COPY_AGAIN) from error
    by_name: dict[str, zipfile.ZipInfo] = {}
    behind = 0
    for info in sorted(entries, key=lambda info: info.header_offset):
        name = info.orig_filename
        is_stored = info.compress_type == zipfile.ZIP_STORED and info.compress_size == info.file_size
        is_file = stat.S_IFMT(info.external_attr >> 16) in (0, stat.S_IFREG)
        if not by_name and info.header_offset:
            fault = fault or "begins with something else"
        elif name in by_name:
            fault = fault or f"has two entries {name[:80]!r}"
        elif info.filename != name or not _is_part(name) or not is_file:
            fault = fault or f"has {name[:80]!r}, which no registry has"
        elif not is_stored or info.flag_bits & 1:
            fault = fault or f"holds {name[:80]!r} compressed or encrypted"
        elif info.header_offset < behind:
            fault = fault or f"has overlapping entries, such as {name[:80]!r}"
        by_name[name] = info
        behind = info.header_offset + HEADER_BYTES + len(name) + info.file_size
    fault = fault or (
        "is empty" if not entries else "has entries that overlap its directory" if behind > end else ""
    )
    fault = fault or (f"has {limit}" if (limit := excess(by_name)) else "")
    if fault:
        raise IntegrityError(f"{path} is not an archive of onnxreg: it {fault}", COPY_AGAIN)
    return by_name


def _is_part(name: str) -> bool:
    """True if an archive may have an entry of this name."""
    key = BlobKey.of_path(name)
    is_plain = key is not None and not key.generation
    return is_plain or name in (ABOUT, IDENTITY, POLICIES, TRUST) or model_of(name) is not None


def _begin(file: BinaryIO, entry: zipfile.ZipInfo) -> int | None:
    """The offset of an entry's bytes; None if the header before them is not the one that zipfile writes for it.

    The version that is needed is another one in the directory for entries that begin beyond 2 GiB.
    """
    file.seek(entry.header_offset)
    header = file.read(HEADER_BYTES)
    plain = copy(entry)
    plain.extra = b""
    try:
        expected = plain.FileHeader(zip64=header[18:22] == b"\xff" * 4)
    except (zipfile.LargeZipFile, struct.error):
        return None
    header += file.read(len(expected) - HEADER_BYTES)
    is_same = header[:4] + header[6:] == expected[:4] + expected[6:]
    return entry.header_offset + len(expected) if is_same else None


class Window(io.RawIOBase):
    """The next `size` bytes of a file. Closes the file."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = cast(Any, file)
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, block: Any, /) -> int:
        count: int = self._file.readinto(memoryview(block)[: self._left])
        self._left -= count
        return count

    def close(self) -> None:
        self._file.close()
        super().close()
