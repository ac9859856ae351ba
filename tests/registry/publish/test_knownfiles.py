"""Files that are added again: what nobody touched is not read."""

import os
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onnxreg.registry import Registry
from onnxreg.registry.log.log import Log
from onnxreg.registry.log.lookup import Release
from onnxreg.registry import publish as publishing
from onnxreg.registry.publish import KnownFiles
from onnxreg.registry.store.directory import DirectoryPush
from onnxreg.registry.store.layout import blob_path
from onnxreg.registry.support.environment import state_directory
from onnxreg.schema.core.digest import PIECE_BYTES, Digest
from onnxreg.schema.core.errors import InputError, NotFoundError
from onnxreg.schema.core.given_file import WRITTEN_BACK_NANOSECONDS, FileState
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile

FILES = {"model.onnx": 100, "large.bin": PIECE_BYTES + 1, "empty.bin": 0}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "mine"
    path.mkdir()
    for name, size in FILES.items():
        (path / name).write_bytes(random.Random(name).randbytes(size))
    return path


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "home")


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written now was written long ago."""
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + 10 * WRITTEN_BACK_NANOSECONDS)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were read, in any order."""
    found: list[str] = []
    put_file = DirectoryPush.put_file

    def noted(self: DirectoryPush, path: Path, hasher: object = None) -> tuple[Digest, int]:
        found.append(path.name)
        return put_file(self, path, hasher)  # type: ignore[arg-type]

    monkeypatch.setattr(DirectoryPush, "put_file", noted)
    return found


def seen(folder: Path) -> dict[str, FileState]:
    return {name: FileState.of((folder / name).stat()) for name in FILES}


def add(registry: Registry, folder: Path, states: dict[str, FileState] | None = None) -> Release:
    """As `reg add` does: the workspace has links."""
    with registry.workspace() as workspace:
        for name in FILES:
            (workspace / name).symlink_to(folder / name)
        companions = tuple(DraftFile("companion", name) for name in list(FILES)[1:])
        artifact = DraftArtifact("onnx", "float32", "model.onnx")
        return registry.add(
            Draft("acme/m", workspace, (artifact,), companions, {}, states or seen(folder)), None
        )


def cache(registry: Registry) -> Path:
    return state_directory() / "known-files" / f"{registry.id}.json"


@pytest.mark.usefixtures("settled")
def test_unchanged_files_are_not_read(registry: Registry, folder: Path, read: list[str]) -> None:
    first = add(registry, folder)
    assert sorted(read) == sorted(FILES)
    read.clear()
    again = add(Registry(registry.store.root), folder)
    assert read == []
    assert (again.version, again.digest, again.new) == (first.version, first.digest, False)
    assert (folder / "large.bin").stat().st_size == PIECE_BYTES + 1, "the user's files stay"


@pytest.mark.usefixtures("settled")
def test_changed_files_are_read(registry: Registry, folder: Path, read: list[str]) -> None:
    first = add(registry, folder)
    read.clear()
    before = (folder / "large.bin").stat()
    with (folder / "large.bin").open("r+b") as file:
        file.write(b"other")
    os.utime(folder / "large.bin", ns=(before.st_atime_ns, before.st_mtime_ns))
    second = add(registry, folder)
    assert read == ["large.bin"]
    assert second.new and second.digest != first.digest
    read.clear()
    assert not add(registry, folder).new and read == []
    assert cache(registry).read_text().count('"path"') == len(FILES), "the old state is forgotten"


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("changed", [False, True])
def test_a_blob_that_is_collected_meanwhile_is_brought_back_or_named(
    registry: Registry, folder: Path, monkeypatch: pytest.MonkeyPatch, changed: bool
) -> None:
    """Its file was not read, since its blob was there."""
    first = add(registry, folder)
    (folder / "model.onnx").write_bytes(b"another model")
    blob = registry.store.blob_path(Digest.of((folder / "large.bin").read_bytes()))
    commit = publishing.commit

    def collect_first(*arguments: Any, **options: Any) -> Log:
        blob.unlink()
        if changed:
            (folder / "large.bin").write_bytes(b"other")
        return commit(*arguments, **options)

    monkeypatch.setattr(publishing, "commit", collect_first)
    if changed:
        with pytest.raises(NotFoundError, match="a collection deleted blob"):
            add(registry, folder)
        assert list(registry.state("acme/m").versions) == [first.version]
    else:
        add(registry, folder)
        assert blob.is_file()


def test_fresh_files_are_read_each_time(registry: Registry, folder: Path, read: list[str]) -> None:
    add(registry, folder)
    add(registry, folder)
    assert len(read) == 2 * len(FILES)


@pytest.mark.usefixtures("settled")
def test_pieces_are_remembered(registry: Registry, folder: Path, tmp_path: Path) -> None:
    """Another model of the same files: its manifest is made of what is remembered alone."""
    add(registry, folder)
    known, fresh = KnownFiles(cache(registry)), Registry(tmp_path / "other")
    made = add(fresh, folder).manifest
    measured = {file.path: file for file in (*made.files, *made.artifacts)}
    for path, state in seen(folder).items():
        found = known.find(folder / path, state)
        assert found is not None
        assert (found.digest, found.size) == (measured[path].digest, measured[path].size)
        pieces = measured[path].pieces
        assert (found.pieces is None) == (pieces is None)
        if found.pieces and pieces:
            assert (found.pieces.size, list(found.pieces.digests)) == (pieces.size, list(pieces.digests))


def test_a_file_that_changes_meanwhile_is_refused(registry: Registry, folder: Path) -> None:
    before = seen(folder)
    (folder / "large.bin").write_bytes(b"new")
    with pytest.raises(InputError, match=r"large\.bin changed while it was read"):
        add(registry, folder, before)
    assert not list(registry.store.names())


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("how", ["garbage", "torn", "fifo", "directory", "not utf-8", "other json"])
def test_a_damaged_cache_costs_time_only(registry: Registry, folder: Path, read: list[str], how: str) -> None:
    first = add(registry, folder)
    path = cache(registry)
    whole = path.read_bytes()
    path.unlink()
    match how:
        case "fifo":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case _:
            torn = {"garbage": b"[[[\n", "torn": whole[:-9], "not utf-8": b"\xff\n", "other json": b"[1]\n"}
            path.write_bytes(torn[how])
    read.clear()
    again = add(registry, folder)
    assert len(read) == len(FILES)
    assert again.digest == first.digest
    if how != "directory":
        assert path.read_bytes().splitlines() != []


@pytest.mark.usefixtures("settled")
def test_a_blob_that_was_cut_is_stored_again(registry: Registry, folder: Path, read: list[str]) -> None:
    published = add(registry, folder)
    large = next(file.digest for file in published.manifest.files if file.path == "large.bin")
    path = registry.store.blob_path(large)
    path.chmod(0o644)
    path.write_bytes(b"cut")
    (folder / "model.onnx").write_bytes(b"new")
    assert add(registry, folder).new
    assert Digest.of(path.read_bytes()) == large


def test_whole_seconds_prove_nothing(folder: Path) -> None:
    """Such file systems show the time of the bytes, which anybody sets, as that of the inode."""
    state = FileState.of((folder / "model.onnx").stat())
    late = state.changed + 2 * WRITTEN_BACK_NANOSECONDS
    second = 10**9
    assert replace(state, modified=7 * second, changed=7 * second + 1).is_settled(late)
    assert not replace(state, modified=7 * second, changed=7 * second).is_settled(late)


@pytest.mark.usefixtures("settled")
def test_another_writer_of_the_tree_does_not_decide_what_is_published(
    registry: Registry, folder: Path
) -> None:
    """He has no key, but may write every file of the registry, such as on a shared disk."""
    add(registry, folder)
    good = Digest.of((folder / "large.bin").read_bytes())
    evil = bytes((folder / "large.bin").stat().st_size)
    blob = registry.store.root / blob_path(Digest.of(evil))
    blob.parent.mkdir(exist_ok=True)
    blob.write_bytes(evil)
    for path in (registry.store.root / "local").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes().replace(good.hex.encode(), Digest.of(evil).hex.encode()))
    (folder / "model.onnx").write_bytes(b"the next release")
    published = add(registry, folder)
    assert good in {file.digest for file in published.manifest.files}
