"""Reading a zip that compresses nothing, strictly: its entries are parts of the file, one behind the other.

Nothing is ever written out under the name that it has in the zip. What a liberal reader puts up with (two entries of one
name, overlapping entries, links, compression, other bytes around) is refused.
"""

import io
import stat
import struct
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from onnxreg.schema.core.errors import Advice, IntegrityError

COPY_AGAIN_HINT = Advice("copy-archive-again")
LOCAL_HEADER = struct.Struct("<4s5H3L2H")
"""The local header before an entry's name and bytes (APPNOTE.TXT 4.3.7)."""
ZIP64_MARK = 0xFFFFFFFF
"""The value of a size that is in the extra field, for entries beyond 4 GiB (4.5.3)."""
END_RECORD_BYTES = 22
"""Bytes of the last record of a zip without a comment (4.3.16)."""


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
