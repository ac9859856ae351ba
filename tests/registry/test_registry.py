"""The facade on a real directory."""

import json
import stat
from pathlib import Path

import pytest
from support.registries import owner
from support.registries.home import Home

from onnxreg.registry.store.directory import DirectoryStore
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import ConflictError, IntegrityError, NotFoundError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.manifest.vocabulary import FILENAME
from onnxreg.schema.query.requirements import Query


def files_of(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_versions_are_numbered_and_published_once(registry: Home) -> None:
    assert registry.make(seed="a").version == Version(0, 1, 0)
    assert registry.make(seed="b").version == Version(0, 1, 1)
    assert registry.make("2.0.0-rc.1", seed="c").version == Version.parse("2.0.0-rc.1")
    assert registry.make(seed="d").version == Version(2, 0, 0)
    again = registry.make(seed="d")
    assert (again.new, again.version, len(registry.log("acme/pii"))) == (False, Version(2, 0, 0), 4)
    with pytest.raises(ConflictError):
        registry.make("2.0.0", seed="e")
    assert registry.make("2.0.0", seed="d").new is False


def test_the_written_directory_is_the_manifest_and_its_files(registry: Home, tmp_path: Path) -> None:
    published = registry.make()
    registry.write_out("acme/pii", tmp_path / "out")
    files = files_of(tmp_path / "out")
    assert Digest.of(files.pop(FILENAME)) == published.digest
    assert {path: Digest.of(data) for path, data in files.items()} == {
        entry.path: entry.digest for entry in published.manifest.all_files()
    }


def test_writing_out_replaces_an_earlier_export_as_a_whole(registry: Home, tmp_path: Path) -> None:
    """What a killed export left is swept."""
    first = registry.make(seed="a")
    registry.write_out("acme/pii", tmp_path / "out")
    (tmp_path / "link").symlink_to(tmp_path / "out")
    (tmp_path / ".out.0123456789abcdef").mkdir()
    (tmp_path / ".out.0123456789abcdef.lock").touch()
    second = registry.make(seed="b")
    registry.write_out("acme/pii", tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "out" / FILENAME).read_bytes() == second.data != first.data
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".out")] == []


@pytest.mark.parametrize("damage", ["cut", "flip", "remove"])
def test_a_damaged_blob_is_named_and_never_written_out(registry: Home, tmp_path: Path, damage: str) -> None:
    published = registry.make()
    victim = published.manifest.artifacts[1]
    path = registry.store.blob_path(victim.digest)
    data = path.read_bytes()
    path.unlink()
    if damage == "cut":
        path.write_bytes(data[:-1])
    elif damage == "flip":
        path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    report = owner.verify(registry, "acme/pii")
    assert [(found.kind, found.digest) for found in report.damages] == [
        ({"cut": "short", "flip": "damaged", "remove": "missing"}[damage], victim.digest)
    ]
    assert "model_int8.onnx" in report.damages[0].name
    with pytest.raises(NotFoundError if damage == "remove" else IntegrityError):
        registry.write_out("acme/pii", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".out")] == []


def test_resolve_names_every_file_and_every_reason(registry: Home) -> None:
    published = registry.make()
    found = registry.resolve("acme/pii", Query(formats=("onnx-int8",))).to_json()
    assert found["manifest"] == str(published.digest)
    assert found["artifact"]["path"] == "model_int8.onnx"
    assert [file["role"] for file in found["files"]] == ["artifact", "config", "tokenizer"]
    assert [(entry["artifact"], entry["code"]) for entry in found["rejected"]] == [("model.onnx", "format")]
    json.dumps(found)


def test_a_ref_finds_a_version(registry: Home) -> None:
    one = registry.make("1.0.0", seed="a")
    two = registry.make("2.0.0-beta", seed="b")
    registry.tag("acme/pii:2.0.0-beta", "beta")
    assert registry.find("acme/pii").version == one.version
    assert registry.find("acme/pii:beta").version == two.version
    assert registry.find(f"acme/pii@{two.digest}").version == two.version
    assert registry.find(f"acme/pii:1.0.0@{one.digest}").version == one.version
    with pytest.raises(IntegrityError):
        registry.find(f"acme/pii:1.0.0@{two.digest}")
    for ref in ("acme/pii:3.0.0", "acme/pii:nightly", f"acme/pii@{Digest.of(b'')}", "acme/none"):
        with pytest.raises(NotFoundError):
            registry.find(ref)


def test_a_yanked_version_is_had_by_digest_only(registry: Home) -> None:
    one = registry.make()
    registry.yank(one.ref, "wrong labels")
    with pytest.raises(NotFoundError):
        registry.find("acme/pii")
    assert registry.find(f"acme/pii@{one.digest}").version == one.version
    registry.yank(f"acme/pii:{one.version}", undo=True)
    assert registry.find("acme/pii").version == one.version


def test_no_absolute_path_is_published(registry: Home, tmp_path: Path) -> None:
    registry.make()
    registry.push("acme/pii", str(tmp_path / "shared"))
    needle = str(tmp_path).encode()
    assert all(needle not in data for data in files_of(tmp_path / "shared").values())


def test_blobs_are_read_only(registry: Home) -> None:
    registry.make()
    modes = {
        stat.S_IMODE(path.stat().st_mode)
        for path in (registry.store.root / "blobs").rglob("*")
        if path.is_file()
    }
    assert modes == {0o444}


@pytest.mark.parametrize("place", ["link", "link/below"])
def test_a_registry_may_lie_below_a_link(registry: Home, tmp_path: Path, place: str) -> None:
    """As everything below /tmp does on a Mac. Links within it are another matter."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    registry.make("1.0.0")
    there = Home(tmp_path / place)
    registry.push("acme/pii:1.0.0", str(tmp_path / place))
    there.pull("acme/pii:1.0.0", registry.place)
    there.tag("acme/pii:1.0.0", "stable")
    there.check()
    assert (tmp_path / "real").joinpath(*Path(place).parts[1:], "registry.json").is_file()


def test_a_command_begins_while_another_that_made_nothing_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two first commands in one place; the other removes the empty directories that it made."""
    make_scratch, ends = DirectoryStore.make_scratch, iter([True])

    def interrupted(store: DirectoryStore) -> None:
        make_scratch(store)
        if next(ends, False):
            for path in sorted(store.root.rglob("*"), reverse=True):
                path.rmdir()
            store.root.rmdir()

    monkeypatch.setattr(DirectoryStore, "make_scratch", interrupted)
    with Home(tmp_path / "new", create=None).workspace() as directory:
        assert directory.is_dir()
    assert not (tmp_path / "new").exists()
