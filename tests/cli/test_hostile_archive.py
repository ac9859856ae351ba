"""Archives that are made to harm: one clear error with exit status 4 each, soon, and nothing is written."""

import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.sampling import sampled

from onnxreg.registry import Registry
from onnxreg.registry.transfer.archive import choose, create_archive
from onnxreg.schema.core.bounds import MAX_DOCUMENT_BYTES
from onnxreg.schema.manifest.draft import Draft

NAME = "acme/pii"
Reg = Callable[..., Any]
ARCHIVE = "a.onnxreg"
FLAGS, METHOD, CHECKSUM, STORED, SIZE, ATTRIBUTES, OFFSET = 8, 10, 16, 20, 24, 38, 42
"""Fields of a record of the directory, from its beginning on (APPNOTE.TXT 4.3.12)."""


def hole() -> bytes:
    """More zeros than a document may have."""
    return b"\0" * (MAX_DOCUMENT_BYTES + 1)


@pytest.fixture(autouse=True)
def archive(draft: Callable[..., Draft], tmp_path: Path) -> Path:
    registry = Registry(tmp_path / "r")
    registry.add(draft(tmp_path / "draft"))
    create_archive(registry.store, choose(registry.store, [NAME]), tmp_path / ARCHIVE)
    return tmp_path / ARCHIVE


def files() -> dict[str, bytes]:
    with zipfile.ZipFile(ARCHIVE) as found:
        return {name: found.read(name) for name in found.namelist()}


def weights() -> str:
    """The name of the largest entry."""
    found = files()
    return max(found, key=lambda name: len(found[name]))


def write(changed: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(ARCHIVE, "w", compression) as made:
        for name, data in sorted(changed.items()):
            made.writestr(name, data)


def add(name: str, data: bytes = b"x", mode: int = 0o100644) -> None:
    entry = zipfile.ZipInfo(name)
    entry.external_attr = mode << 16
    with zipfile.ZipFile(ARCHIVE, "a") as made:
        made.writestr(entry, data)


def patch(at: int, kind: str, value: Callable[[int], int], name: str | None = None) -> None:
    """Change a field in the directory's record of an entry, by default of the largest."""
    data, wanted = bytearray(Path(ARCHIVE).read_bytes()), (name or weights()).encode()
    record = data.rindex(wanted) - 46
    assert data[record : record + 4] == b"PK\1\2"
    (before,) = struct.unpack_from(kind, data, record + at)
    struct.pack_into(kind, data, record + at, value(before))
    Path(ARCHIVE).write_bytes(data)


def patch_sizes(by: int) -> None:
    name = weights()
    for field in (STORED, SIZE):
        patch(field, "<I", lambda size: size + by, name)


def rename_in_the_entry() -> None:
    data, name = bytearray(Path(ARCHIVE).read_bytes()), weights().encode()
    at = data.index(name)
    data[at + len(name) - 1] ^= 1
    Path(ARCHIVE).write_bytes(data)


def overlap() -> None:
    """The second entry of the directory is the first one's bytes."""
    with zipfile.ZipFile(ARCHIVE) as found:
        first, second = sorted(found.infolist(), key=lambda entry: entry.header_offset)[:2]
    patch(OFFSET, "<I", lambda _: first.header_offset, second.filename)


def without(name: str) -> None:
    write({path: data for path, data in files().items() if path != name})


HOSTILE: dict[str, Callable[[], object]] = {
    "a bomb": lambda: write(files() | {weights(): hole()}, zipfile.ZIP_DEFLATED),
    "packed with bzip2": lambda: write(files(), zipfile.ZIP_BZIP2),
    "packed with lzma": lambda: write(files(), zipfile.ZIP_LZMA),
    "a method that nobody knows": lambda: patch(METHOD, "<H", lambda _: 77),
    "an entry that calls itself encrypted": lambda: patch(FLAGS, "<H", lambda flags: flags | 1),
    "a path that climbs": lambda: add("../../evil"),
    "an absolute path": lambda: add("/etc/evil"),
    "a path of another system": lambda: add("blobs\\evil"),
    "a path below the local part": lambda: add("local/remotes.json"),
    "a symbolic link": lambda: add(f"blobs/sha256/00/{'0' * 64}", b"/etc/passwd", 0o120777),
    "a device": lambda: add(f"blobs/sha256/00/{'0' * 64}", b"", 0o020666),
    "a link in the place of the weights": lambda: patch(ATTRIBUTES, "<I", lambda _: 0o120777 << 16),
    "entries that share their bytes": overlap,
    "an entry that begins beyond the file": lambda: patch(OFFSET, "<I", lambda _: 2**31),
    "an entry that is said to be larger": lambda: patch_sizes(100),
    "an entry that is said to be smaller": lambda: patch_sizes(-100),
    "an entry that is said to be 4 GB": lambda: patch(SIZE, "<I", lambda _: 2**32 - 2),
    "another name in the entry itself": rename_in_the_entry,
    "other weights under the same name": lambda: write(files() | {weights(): b"evil"}),
    "absent weights": lambda: without(weights()),
    "an absent history": lambda: without(f"index/{NAME}.jsonl"),
    "no archive.json": lambda: without("archive.json"),
    "an archive.json that is too large": lambda: write(files() | {"archive.json": hole()}),
    "a history that is too large": lambda: write(files() | {f"index/{NAME}.jsonl": hole()}),
    "cut in the middle": lambda: os.truncate(ARCHIVE, Path(ARCHIVE).stat().st_size // 2),
    "another zip around": lambda: Path(ARCHIVE).write_bytes(b"PK\3\4" + Path(ARCHIVE).read_bytes()),
    "a hole of 5 GB": lambda: (Path(ARCHIVE).write_bytes(b""), os.truncate(ARCHIVE, 5 * 10**9)),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("case", sampled(HOSTILE, 2))
def test_each_is_one_error(reg: Reg, case: str) -> None:
    HOSTILE[case]()
    for words in (("archive", "verify", ARCHIVE), ("--registry", "new", "pull", NAME, f"./{ARCHIVE}")):
        done = reg(*words)
        absent = case.startswith(("absent", "an absent")) and "pull" in words
        assert done.status in ((3, 4) if absent else (4,)), (words, done.out, done.err)
        assert "Traceback" not in done.err
    assert not list(Path("new/index").rglob("*.jsonl"))
    assert not Path("../evil").exists() and not Path("/etc/evil").exists()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_entries_of_one_name(reg: Reg) -> None:
    add(weights(), b"evil")
    done = reg("archive", "verify", ARCHIVE)
    assert done.status == 4
    assert "two entries" in done.err


@pytest.mark.parametrize("name", ["pipe.onnxreg", "pipe"])
def test_a_pipe_or_a_device_is_no_archive(reg: Reg, name: str) -> None:
    os.mkfifo(name)
    Path("zero.onnxreg").symlink_to("/dev/zero")
    for path in (name, "zero.onnxreg"):
        done = reg("archive", "verify", path)
        assert done.status == 2
        assert "is not a regular file" in done.err


def test_the_archive_itself_is_taken(reg: Reg) -> None:
    assert reg("archive", "verify", ARCHIVE).status == 0
    assert reg("--registry", "new", "pull", NAME, f"./{ARCHIVE}").status == 0
