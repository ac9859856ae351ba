"""Digests of files: read once, and again as soon as somebody may have touched them."""

import hashlib
import os
import time
from pathlib import Path

import pytest

from onnxreg.converters.source import source_files
from onnxreg.converters.source.source_files import digest_file
from onnxreg.schema.core.files import SETTLED_NANOSECONDS


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were read."""
    found: list[str] = []
    real = hashlib.file_digest

    def noted(file: object, algorithm: str) -> object:
        found.append(Path(getattr(file, "name", "")).name)
        return real(file, algorithm)  # type: ignore[arg-type]

    monkeypatch.setattr(source_files.hashlib, "file_digest", noted)
    return found


def settle(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written now was written long ago."""
    now = time.time_ns
    monkeypatch.setattr(source_files.time, "time_ns", lambda: now() + 10 * SETTLED_NANOSECONDS)


def written(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def test_an_unchanged_file_is_read_once_but_a_fresh_one_again(
    tmp_path: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = written(tmp_path / "fresh", b"one")
    assert [str(digest_file(tmp_path / "fresh")) for _ in range(2)] == [known] * 2
    settle(monkeypatch)
    assert written(tmp_path / "weights", b"one") == known
    assert [str(digest_file(tmp_path / "weights")) for _ in range(3)] == [known] * 3
    assert read == ["fresh", "fresh", "weights"]


@pytest.mark.parametrize("how", ["written over", "replaced"])
def test_a_change_is_seen_though_size_and_time_are_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    settle(monkeypatch)
    path = tmp_path / "weights"
    before, times = written(path, b"one"), path.stat()
    assert str(digest_file(path)) == before
    time.sleep(0.05)  # the clock of a file system ticks a hundred times a second or oftener
    after = written(path if how == "written over" else tmp_path / "new", b"two")
    if how == "replaced":
        (tmp_path / "new").replace(path)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert path.stat().st_mtime_ns == times.st_mtime_ns
    assert str(digest_file(path)) == after
