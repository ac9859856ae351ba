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


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written now was written long ago."""
    now = time.time_ns
    monkeypatch.setattr(source_files.time, "time_ns", lambda: now() + 10 * SETTLED_NANOSECONDS)


def written(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def test_an_unchanged_file_is_read_once(tmp_path: Path, read: list[str], settled: None) -> None:
    told = written(tmp_path / "weights", b"one")
    assert [str(digest_file(tmp_path / "weights")) for _ in range(3)] == [told] * 3
    assert read == ["weights"]


def test_a_fresh_file_is_read_again(tmp_path: Path, read: list[str]) -> None:
    told = written(tmp_path / "weights", b"one")
    assert [str(digest_file(tmp_path / "weights")) for _ in range(2)] == [told] * 2
    assert read == ["weights"] * 2


def test_a_change_is_seen_though_size_and_time_are_put_back(tmp_path: Path, settled: None) -> None:
    path = tmp_path / "weights"
    before, times = written(path, b"one"), path.stat()
    assert str(digest_file(path)) == before
    time.sleep(0.05)  # the clock of a file system ticks a hundred times a second or oftener
    after = written(path, b"two")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert path.stat().st_mtime_ns == times.st_mtime_ns
    assert str(digest_file(path)) == after


def test_another_file_under_the_name_is_another_file(tmp_path: Path, settled: None) -> None:
    path = tmp_path / "weights"
    before = written(path, b"one")
    assert str(digest_file(path)) == before
    after = written(tmp_path / "new", b"two")
    (tmp_path / "new").replace(path)
    assert str(digest_file(path)) == after
