"""The cache: an entry is whole or is none, whatever happens to its files and to the process that makes it."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from onnxreg.converters.engine import cache as module
from onnxreg.converters.engine.cache import ENTRY_FILE, StepCache
from onnxreg.converters.source.source_files import link_or_copy

KEY = {"pass": "X", "params": {"a": [1, 2]}}
FILES = {"model.onnx": b"graph", "sub/data": b"weights"}


def made(root: Path, files: dict[str, bytes] = FILES) -> Path:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def found(cache: StepCache, target: Path, key: Any = KEY) -> dict[str, bytes] | None:
    """The files of an entry; None where there is none."""
    target.mkdir()
    if not cache.find("steps", key, target):
        assert list(target.iterdir()) == []
        return None
    paths = [path for path in target.rglob("*") if path.is_file()]
    return {path.relative_to(target).as_posix(): path.read_bytes() for path in paths}


@pytest.fixture
def cache(tmp_path: Path) -> StepCache:
    """With one entry."""
    cache = StepCache(tmp_path / "cache")
    cache.keep("steps", KEY, made(tmp_path / "made"))
    return cache


def entry(cache: StepCache) -> Path:
    (place,) = cache.root.glob("steps/*")
    return place


def test_an_entry_answers_its_own_key_and_its_digests(cache, tmp_path):
    assert found(cache, tmp_path / "own") == FILES
    assert found(cache, tmp_path / "other", {**KEY, "params": {}}) is None
    assert found(StepCache(tmp_path / "elsewhere"), tmp_path / "none") is None
    digests = json.loads((entry(cache) / ENTRY_FILE).read_bytes())["files"]
    for name, known in {"true": digests, "false": {"model.onnx": digests["sub/data"]}}.items():
        cache.keep("steps", {"pass": name}, made(tmp_path / name), known)
    assert found(cache, tmp_path / "a", {"pass": "true"}) == FILES
    assert found(cache, tmp_path / "b", {"pass": "false"}) is None


@pytest.mark.parametrize("file", [*FILES, ENTRY_FILE])
@pytest.mark.parametrize("how", ["cut", "changed", "removed"])
def test_a_damaged_entry_is_removed_and_can_be_made_again(cache, tmp_path, file, how):
    damaged = entry(cache) / file
    data = damaged.read_bytes()
    damaged.unlink()
    if how != "removed":
        damaged.write_bytes(data[:-1] if how == "cut" else data.replace(data[:2], b"??", 1))
    assert found(cache, tmp_path / "a") is None
    assert list(cache.root.glob("steps/*")) == []
    cache.keep("steps", KEY, made(tmp_path / "again"))
    assert found(cache, tmp_path / "b") == FILES


def failing(number: int) -> Any:
    def fail(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_an_entry_is_found_where_files_cannot_be_linked_and_nothing_is_written_over(
    cache, tmp_path, monkeypatch
):
    made(tmp_path, {"a": b"a", "b": b"b"})
    with pytest.raises(FileExistsError):
        link_or_copy(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"b"
    monkeypatch.setattr(os, "link", failing(errno.EXDEV))
    cache.keep("steps", {"other": 1}, made(tmp_path / "two"))
    assert found(cache, tmp_path / "x") == found(cache, tmp_path / "y", {"other": 1}) == FILES


def test_a_full_disk_keeps_nothing_and_is_no_error(tmp_path, monkeypatch):
    cache = StepCache(tmp_path / "cache")
    monkeypatch.setattr(module.canonical, "encode", lambda value, what: b"{}")
    monkeypatch.setattr(Path, "write_bytes", failing(errno.ENOSPC))
    cache.keep("steps", KEY, tmp_path)
    cache.remember("exports", KEY, "x")
    assert [path for path in cache.root.rglob("*") if path.is_file()] == []


def test_values_are_remembered_and_replaced(cache):
    assert cache.find_value("exports", KEY) is None
    cache.remember("exports", KEY, {"manifest": "one"})
    cache.remember("exports", KEY, {"manifest": "two"})
    assert cache.find_value("exports", KEY) == {"manifest": "two"}
    (place,) = cache.root.glob("exports/*")
    (place / ENTRY_FILE).write_bytes(b"{")
    assert cache.find_value("exports", KEY) is None


def test_many_make_one_entry_at_once(tmp_path):
    cache, source = StepCache(tmp_path / "cache"), made(tmp_path / "made")
    gate = threading.Barrier(8)

    def work(number: int) -> None:
        gate.wait()
        for turn in range(5):
            cache.keep("steps", KEY, source)
            assert found(cache, tmp_path / f"{number}-{turn}") == FILES

    with ThreadPoolExecutor(8) as pool:
        assert len(list(pool.map(work, range(8)))) == 8
    assert [path.name for path in cache.root.iterdir()] == ["steps"]


def test_an_entry_that_is_trimmed_while_it_is_read_is_none(cache, tmp_path, monkeypatch):
    """Between the reading of the entry and that of its files, another process makes room."""
    real = module.link_or_copy

    def trimmed_first(source: Path, target: Path) -> None:
        StepCache(cache.root, 0).trim()
        real(source, target)

    monkeypatch.setattr(module, "link_or_copy", trimmed_first)
    assert found(cache, tmp_path / "a") is None


def test_the_unused_go_first(tmp_path):
    cache = StepCache(tmp_path / "cache", 15_000)
    for number in range(4):
        cache.keep("steps", {"number": number}, made(tmp_path / f"made{number}", {"f": bytes(10_000)}))
    for place in cache.root.glob("steps/*"):
        os.utime(place / ENTRY_FILE, (1, 1))
    assert found(cache, tmp_path / "used", {"number": 2}) is not None
    told = cache.trim(dry_run=True)
    assert (told.entries, len(list(cache.root.glob("steps/*")))) == (3, 4)
    assert cache.trim() == told
    assert told.bytes > 30_000
    assert 10_000 < told.kept < 15_000
    assert found(cache, tmp_path / "still", {"number": 2}) is not None


KILLED = """
import os, pathlib, signal, sys
from onnxreg.converters.engine import cache as module

real = module.digest_file

def digest_file(path):
    if path.name == "b":
        os.kill(os.getpid(), signal.SIGKILL)
    return real(path)

module.digest_file = digest_file
module.StepCache(pathlib.Path(sys.argv[1])).keep("steps", {"a": 1}, pathlib.Path(sys.argv[2]))
"""


def test_files_of_a_killed_process_are_swept(tmp_path):
    cache, source = StepCache(tmp_path / "cache"), made(tmp_path / "made", {"a": b"a" * 100, "b": b"b"})
    done = subprocess.run([sys.executable, "-c", KILLED, cache.root, source], check=False)
    assert done.returncode == -signal.SIGKILL
    (staged,) = cache.root.iterdir()
    assert found(cache, tmp_path / "x", {"a": 1}) is None
    assert cache.trim().entries == 0, "it may be another process's that still works"
    long_ago = time.time() - module.ABANDONED_AFTER_SECONDS - 60
    os.utime(staged, (long_ago, long_ago))
    told = cache.trim()
    assert (told.entries, told.bytes) == (1, 101)
    assert list(cache.root.iterdir()) == []
    assert {path.name: path.read_bytes() for path in source.iterdir()} == {"a": b"a" * 100, "b": b"b"}
