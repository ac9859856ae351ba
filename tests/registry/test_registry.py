"""The facade on a real directory: files that stay where they are, trees of others, and words that do not fit."""

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from support.registries import owner
from support.registries.home import Home

from onnxreg.registry.log.contents import Release
from onnxreg.registry.log.log import load
from onnxreg.registry.store.directory import DirectoryRegistry, DirectoryStore
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import ConflictError, InputError, IntegrityError, NotFoundError, RegError
from onnxreg.schema.core.files import FileState
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.events import Attest
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile
from onnxreg.schema.manifest.vocabulary import FILENAME
from onnxreg.schema.query.resolve import Query


def files_of(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_versions_are_numbered_and_published_once(registry):
    assert registry.make(seed="a").version == Version(0, 1, 0)
    assert registry.make(seed="b").version == Version(0, 1, 1)
    assert registry.make("2.0.0-rc.1", seed="c").version == Version.parse("2.0.0-rc.1")
    assert registry.make(seed="d").version == Version(2, 0, 0)
    again = registry.make(seed="d")
    assert (again.new, again.version, len(registry.log("acme/pii"))) == (False, Version(2, 0, 0), 4)
    with pytest.raises(ConflictError):
        registry.make("2.0.0", seed="e")
    assert registry.make("2.0.0", seed="d").new is False


def test_a_directory_holds_the_manifest_and_its_files_and_replaces_an_earlier_one(registry, tmp_path):
    """What a killed export left is swept."""
    registry.make(seed="a")
    registry.write_out("acme/pii", tmp_path / "out")
    (tmp_path / "link").symlink_to(tmp_path / "out")
    (tmp_path / ".out.0123456789abcdef").mkdir()
    (tmp_path / ".out.0123456789abcdef.lock").touch()
    second = registry.make(seed="b")
    registry.write_out("acme/pii", tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    files = files_of(tmp_path / "out")
    assert files.pop(FILENAME) == second.data
    expected = {entry.path: entry.digest for entry in second.manifest.all_files()}
    assert {path: Digest.of(data) for path, data in files.items()} == expected
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".out")] == []


@pytest.mark.parametrize("damage", ["cut", "flip", "remove"])
def test_a_damaged_blob_is_named_and_never_written_out(registry, tmp_path, damage):
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


def test_resolve_names_every_file_and_every_reason(registry):
    published = registry.make()
    found = registry.resolve("acme/pii", Query(formats=("onnx-int8",))).to_json()
    assert found["manifest"] == str(published.digest)
    assert found["artifact"]["path"] == "model_int8.onnx"
    assert [file["role"] for file in found["files"]] == ["artifact", "config", "tokenizer"]
    assert [(entry["artifact"], entry["code"]) for entry in found["rejected"]] == [("model.onnx", "format")]
    json.dumps(found)


def test_a_ref_finds_a_version(registry):
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


def test_no_absolute_path_is_published(registry, tmp_path):
    registry.make()
    registry.push("acme/pii", str(tmp_path / "shared"))
    needle = str(tmp_path).encode()
    assert all(needle not in data for data in files_of(tmp_path / "shared").values())


@pytest.mark.parametrize("place", ["link", "link/below"])
def test_a_registry_may_lie_below_a_link(registry, tmp_path, place):
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


def test_a_command_begins_while_another_that_made_nothing_ends(tmp_path, monkeypatch):
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


def add(registry: Home, folder: Path, states: dict[str, FileState]) -> Release:
    """As `reg add` does: the workspace has links."""
    with registry.workspace() as workspace:
        for name in states:
            (workspace / name).symlink_to(folder / name)
        files = (DraftFile("companion", "large.bin"),)
        artifact = DraftArtifact("onnx", "float32", "model.onnx")
        return registry.add(Draft("acme/m", workspace, (artifact,), files, {}, states))


def test_the_users_files_stay_and_are_read_each_time(tmp_path):
    registry = Home(tmp_path / "home")
    for name in ("model.onnx", "large.bin"):
        (tmp_path / name).write_bytes(os.urandom(2**16))
    states = {name: FileState.of((tmp_path / name).stat()) for name in ("model.onnx", "large.bin")}
    first = add(registry, tmp_path, states)
    assert not add(registry, tmp_path, states).new
    blob = registry.store.blob_path(first.manifest.files[0].digest)
    blob.chmod(0o644)
    blob.write_bytes(b"cut")
    (tmp_path / "model.onnx").write_bytes(b"new")
    with pytest.raises(InputError, match=r"model\.onnx changed while it was read"):
        add(registry, tmp_path, states)
    assert list(registry.state("acme/m").versions) == [first.version]
    states["model.onnx"] = FileState.of((tmp_path / "model.onnx").stat())
    assert add(registry, tmp_path, states).new
    assert Digest.of(blob.read_bytes()) == Digest.of((tmp_path / "large.bin").read_bytes())


INDEX = Path("index/acme/pii.jsonl")
ABOUT: dict[str, Any] = {"name": "acme/pii", "time": "2026-01-02T03:04:05Z", "nonce": "0" * 32}


@pytest.mark.parametrize("reason", ["", "x" * 2001])
def test_unreadable_reasons_are_not_written(registry, reason):
    registry.make()
    before = (registry.store.root / INDEX).read_bytes()
    for act in (
        lambda: registry.yank("acme/pii:0.1.0", reason),
        lambda: registry.tag("acme/pii", "stable", reason),
    ):
        with pytest.raises(InputError):
            act()
    assert (registry.store.root / INDEX).read_bytes() == before


@pytest.mark.parametrize("part", ["local/tmp", "blobs", "blobs/sha256", "index", "index/acme"])
def test_a_link_in_the_tree_leads_no_write_elsewhere(registry, tmp_path, part):
    registry.make(seed="a")
    victim = tmp_path / "victim"
    (victim / "0123456789abcdef").mkdir(parents=True)
    (victim / "0123456789abcdef" / "thesis").write_bytes(b"years")
    place = registry.store.root / part
    place.rename(tmp_path / "moved")
    place.symlink_to(victim)
    with pytest.raises(RegError):
        registry.make(seed="b")
    assert [path.name for path in victim.rglob("*")] == ["0123456789abcdef", "thesis"]
    if part == "index":
        with pytest.raises(IntegrityError, match=r"index of .* is a link"):
            registry.names()


def test_a_link_in_place_of_a_directory_of_blobs_takes_no_blob(registry, tmp_path):
    registry.make(seed="a")
    digest, victim = Digest.of(b"new"), tmp_path / "victim"
    victim.mkdir()
    folder = registry.store.blob_path(digest).parent
    assert not folder.exists()
    folder.symlink_to(victim)
    with pytest.raises(IntegrityError), registry.store.push() as push:
        push.put(BytesIO(b"new"), digest)
        push.flush()
    assert list(victim.iterdir()) == []


def nodes(value: Any) -> Iterator[Callable[[Any], None]]:
    """A setter for every place of a JSON value."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield lambda new, key=key: value.__setitem__(key, new)
            yield from nodes(value[key])


WRONG = [None, True, -1, "x", "../../etc/cron.d/x", [], {"a": 1}, "9" * 5000]


def test_a_lying_state_line_is_an_integrity_error_or_harmless(registry):
    registry.make("1.0.0")
    registry.tag("acme/pii", "stable")
    path = registry.store.root / INDEX
    first, rest = path.read_bytes().split(b"\n", 1)
    refused = 0
    for position in range(sum(1 for _ in nodes(json.loads(first)))):
        for wrong in WRONG:
            state = json.loads(first)
            list(nodes(state))[position](wrong)
            path.write_bytes(json.dumps(state).encode() + b"\n" + rest)
            try:
                found = registry.resolve("acme/pii:stable").to_json()
            except (IntegrityError, NotFoundError):
                refused += 1
            else:
                assert all(".." not in file["path"] for file in found["files"])
    assert refused > 200


def test_files_that_are_no_models_are_not_listed(registry):
    registry.make()
    index = registry.store.root / "index"
    for name in ("._pii.jsonl", "Bad Name.jsonl", "acme/UPPER.jsonl"):
        (index / name).write_bytes(b"")
    (index / "dir.jsonl").mkdir()
    (index / "link.jsonl").symlink_to(index / "acme" / "pii.jsonl")
    (index / "loop").symlink_to("loop")
    assert registry.names() == ["acme/pii"]


def test_verify_never_stops_at_the_first_damage(sealed):
    sealed.make(name="acme/other", seed="z")
    sealed.tree.index("acme/other").write_bytes(b"{}\n")
    broken = sealed.make(name="acme/broken", seed="z")
    checkpoint = sealed.state("acme/pii").checkpoint
    assert checkpoint is not None
    for digest in (checkpoint, *(artifact.digest for artifact in broken.manifest.artifacts)):
        sealed.store.blob_path(digest).unlink()
    found = sorted((found.kind, found.name.split()[0]) for found in owner.verify(sealed).damages)
    missing = [("missing", "acme/broken:0.1.0")] * 2
    assert found == [("log", "acme/pii"), *missing, ("missing", "acme/pii"), ("state", "acme/other")]


def test_sealed_versions_can_be_tagged_yanked_and_found(registry):
    first = registry.make(seed="first", size=1)
    for number in range(66):
        registry.make(seed=str(number), size=1)
    assert first.version not in registry.state("acme/pii").versions
    registry.tag(first.ref, "old")
    registry.yank(first.ref)
    assert registry.find(f"acme/pii@{first.digest}").entry.yanked
    registry.yank(first.ref, undo=True)
    assert registry.resolve("acme/pii:old").located.version == first.version
    registry.check()


def test_a_lost_old_manifest_does_not_stop_publishing(registry):
    first = registry.make(seed="a")
    registry.store.blob_path(first.digest).unlink()
    second = registry.make(seed="b")
    assert registry.find("acme/pii").version == second.version


def test_a_yanked_version_is_found_by_its_digest_only(registry):
    one, other = registry.make("1.0.0", seed="a"), registry.make("1.1.0", seed="b")
    with pytest.raises(IntegrityError):
        registry.yank(f"acme/pii:1.0.0@{other.digest}")
    registry.tag("acme/pii:1.0.0", "stable")
    registry.yank("acme/pii:stable", "wrong labels")
    with pytest.raises(NotFoundError, match=r"1\.0\.0 is yanked"):
        registry.find("acme/pii:stable")
    registry.yank(other.ref)
    with pytest.raises(NotFoundError):
        registry.find("acme/pii")
    assert registry.find(f"acme/pii@{one.digest}").version == one.version
    registry.yank("acme/pii:1.0.0", undo=True)
    assert registry.find("acme/pii").version == one.version


def test_a_broken_chain_is_not_extended(registry):
    for seed in "abc":
        registry.make(seed=seed)
    path = registry.store.root / INDEX
    lines = path.read_bytes().split(b"\n")
    lines[1] = lines[1].replace(lines[1][-40:-20], b"0" * 20)
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(IntegrityError):
        registry.make(seed="d")


def test_many_may_make_the_same_registry_at_once(tmp_path):
    for attempt in range(10):
        with ThreadPoolExecutor(8) as pool:
            made = list(pool.map(DirectoryRegistry.create, [tmp_path / f"r{attempt}"] * 8))
        assert len({remote.registry_id for remote in made}) == 1


def test_remotes_added_at_once_are_all_kept(registry):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: registry.remotes.add(f"r{number}", f"/srv/{number}"), range(8)))
    assert len(registry.remotes.urls) == 8


@pytest.mark.parametrize("where", ["cwd", "parent", "mount", "inside", "file", "foreign", "another"])
def test_places_that_nothing_is_written_to(registry, tmp_path, monkeypatch, where):
    registry.make()
    (tmp_path / "work" / "below").mkdir(parents=True)
    (tmp_path / "file").write_bytes(b"mine")
    registry.write_out("acme/pii", tmp_path / "foreign")
    (tmp_path / "another").mkdir()
    for directory in ("foreign", "another"):
        (tmp_path / directory / "NOTES.txt").write_bytes(b"mine")
    monkeypatch.chdir(tmp_path / "work" / "below")
    monkeypatch.setattr("os.path.ismount", lambda path: path == tmp_path / "mount")
    places = {
        "cwd": Path(),
        "parent": Path(".."),
        "inside": registry.store.root / "local" / "tmp" / "out",
        "file": tmp_path / "file",
    }
    with pytest.raises(InputError, match=r"NOTES\.txt" if where in ("foreign", "another") else None):
        registry.write_out("acme/pii", places.get(where, tmp_path / where))
    assert {(tmp_path / name / "NOTES.txt").read_bytes() for name in ("foreign", "another")} == {b"mine"}
    assert Path.cwd().is_dir()


def test_an_attestation_needs_its_manifest(registry):
    registry.make()
    statement = {"manifest": Digest.of(b"?"), "statement": Digest.of(b"!"), "media_type": "text/plain"}
    with pytest.raises(ConflictError):
        load(registry.store, "acme/pii").append(Attest(**ABOUT, **statement))


def test_a_model_for_another_task_is_no_next_patch(tmp_path):
    registry = Home(tmp_path / "home")

    def publish(task: str | None, text: str, version: str | None = None) -> str:
        with registry.workspace() as workspace:
            (workspace / "model.onnx").write_text(text)
            artifacts = (DraftArtifact("onnx", "float32", "model.onnx"),)
            draft = Draft("acme/m", workspace, artifacts, fields={"task": task} if task else {})
            return registry.add(draft, Version.parse(version) if version else None).version

    assert publish("token-classification", "a") == "0.1.0"
    with pytest.raises(ConflictError, match=r"acme/m:0\.1\.0 .*token-classification.*text-classification"):
        publish("text-classification", "b")
    with pytest.raises(ConflictError, match=r"acme/m:0\.1\.0 .*token-classification"):
        publish("text-classification", "b", "0.2.0")
    assert list(registry.state("acme/m").versions) == ["0.1.0"]
    assert publish("text-classification", "b", "1.0.0") == "1.0.0"
    assert publish("token-classification", "d", "0.1.1") == "0.1.1", "versions of one major are for one task"
    assert publish("token-classification", "a") == "0.1.0", "a version of the past stays what it is"
    assert publish(None, "c") == "1.0.1", "an unknown task may be the same"
