"""The doctor finds each seeded fault once; space by model: what is shared, its own, or referred to by nothing."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.registries import memory, owner
from support.registries.home import Home

from onnxreg.registry.log.commit import blob_keys, collect, survey, usage
from onnxreg.registry.maintain import MAX_LISTED_PATHS, Diagnosis, clear_leftovers, examine
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import BlobKey, MemoryStore, RegistryStore
from onnxreg.registry.system import state_directory
from onnxreg.schema.core.errors import ConflictError, InputError, NotFoundError

CONDEMNED, INTENT = "gc/condemned/0123456789abcdef", "gc/intents/0123456789abcdef-0123456789abcdef"
PROBE = "gc/probe-0123456789abcdef"


@pytest.fixture
def filled(registry) -> Home:
    registry.make()
    return registry


def faults(remote: RegistryStore) -> dict[str, Diagnosis]:
    return {finding.check: finding for finding in examine(remote, remote.url) if not finding.ok}


def tree(root: Path) -> dict[str, tuple[int, int]]:
    """Every file and directory but for the lock files, which any command leaves."""
    found = (path for path in root.rglob("*") if "locks" not in path.parts)
    return {str(path): (path.lstat().st_mode, path.lstat().st_size) for path in found if not path.is_dir()}


def test_a_healthy_registry_has_no_findings_and_is_not_changed(registry):
    registry.make()
    before = tree(registry.store.root)
    assert [finding.check for finding in examine(registry.store, "here")] == ["registry.json", "files"]
    assert faults(registry.store) == {} and tree(registry.store.root) == before
    remote = memory.remote()
    assert isinstance(remote.store, MemoryStore)
    before_there = remote.store.objects.copy()
    assert faults(remote) == {} and remote.store.objects == before_there


def _identity(root: Path, **more: Any) -> None:
    path = root / "registry.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **more}))


FAULTS: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "registry.json is damaged": ("registry.json", lambda root: _file(root, "registry.json"), "integrity"),
    "a newer writer": ("registry.json", lambda root: _identity(root, min_writer=99), "environment"),
    "a newer layout": ("registry.json", lambda root: _identity(root, min_reader=99), "environment"),
    "no registry": ("registry.json", lambda root: (root / "registry.json").unlink(), "not-found"),
    "a stray file": ("files", lambda root: _file(root, "notes.txt"), "integrity"),
    "a link among the blobs": ("files", lambda root: (root / "blobs/x").symlink_to("/etc"), "integrity"),
    "a bad index name": ("files", lambda root: _file(root, "index/Bad Name.jsonl"), "integrity"),
    "many strays": (
        "files",
        lambda root: [_file(root, f"stray{number}") for number in range(10)],
        "integrity",
    ),
    "damaged remotes": ("remotes", lambda _: _file(state_directory(), "remotes.json"), "integrity"),
}


def _file(root: Path, name: str) -> None:
    (root / name).write_bytes(b"?")


@pytest.mark.parametrize("what", FAULTS)
def test_each_fault_is_found_alone_and_has_a_fix(filled, what):
    check, harm, family = FAULTS[what]
    harm(filled.store.root)
    (finding,) = faults(DirectoryRegistry(filled.store.root)).values()
    assert (finding.check, finding.family) == (check, family)
    assert finding.fix and finding.detail
    if what == "many strays":
        assert finding.detail.endswith(f"and {10 - MAX_LISTED_PATHS} more")


def test_what_the_next_command_or_collection_takes_away_is_no_finding(filled):
    """A dead push, a dead collection and dead scratch; and a push that runs."""
    root = filled.store.root
    for path in (CONDEMNED, INTENT, "local/tmp/0123456789abcdef.lock"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b'{"name":"acme/pii"}')
    with filled.store.push() as push:
        filled.store.add_note("condemned", push.id, b"")
        filled.store.add_note("intents", f"{push.id}-{'0' * 16}", b'{"name":"acme/pii"}')
        assert faults(filled.store) == {}


def test_remotes_that_are_gone_or_another_registry(filled, tmp_path):
    for name in ("gone", "swapped", "fine"):
        filled.push("acme/pii", str(tmp_path / name))
        filled.remotes.add(name, str(tmp_path / name))
    shutil.rmtree(tmp_path / "gone")
    shutil.rmtree(tmp_path / "swapped")
    Home(tmp_path / "swapped")
    found = faults(filled.store)
    assert found.keys() == {"remote gone", "remote swapped"}
    assert (found["remote gone"].family, found["remote swapped"].family) == ("not-found", "integrity")


@pytest.mark.parametrize(
    ("path", "owner"), [(CONDEMNED, "collection"), (INTENT, "mirroring"), (PROBE, "first write")]
)
def test_what_only_a_person_may_clear(path, owner):
    """In a bucket nobody knows if the owner of a note runs; a collection makes only a push to an original start over."""
    remote = memory.remote("f" * 32, mirror=owner == "mirroring")
    assert isinstance(remote.store, MemoryStore)
    before = remote.store.objects.copy()
    remote.store.objects[path] = b'{"name":"acme/pii"}'
    (finding,) = [each for each in examine(remote, "gs://b/p?single_writer=yes") if not each.ok]
    assert f"of a {owner} that runs, or never ended" in finding.detail
    assert finding.fix == f"reg doctor 'gs://b/p?single_writer=yes' --clear {path}"
    if owner == "mirroring":
        with pytest.raises(ConflictError):
            collect(remote, patience=0)
    clear_leftovers(remote, [path])
    assert remote.store.objects == before
    collect(remote, patience=0)


def test_the_note_of_a_push_is_left_to_a_collection():
    remote = memory.remote()
    remote.add_note("intents", INTENT.rpartition("/")[2], b'{"name":"acme/pii"}')
    assert faults(remote) == {}
    with pytest.raises(InputError, match="is a part of the registry"):
        clear_leftovers(remote, [INTENT])


@pytest.fixture
def sharing(registry) -> Home:
    """Two models with the same companions; the weights of `small` are also those of a version of `acme/pii`."""
    registry.make(seed="a")
    registry.make(seed="b", size=1000)
    registry.make(name="small", seed="a")
    return registry


def test_the_parts_make_the_whole(sharing):
    found = usage(sharing.store)
    assert [(model["name"], model["versions"]) for model in found["models"]] == [
        ("acme/pii", 2),
        ("small", 1),
    ]
    large, small = found["models"]
    assert large["shared"] == small["shared"] > 0
    assert large["unique"] + small["unique"] + small["shared"] == found["total"]["bytes"]
    assert found["total"] == {
        "blobs": len(blob_keys(sharing.store)),
        "bytes": sum(blob_keys(sharing.store).values()),
    }
    assert found["unreferenced"] == {"blobs": 0, "bytes": 0}


def test_unique_bytes_are_freed_with_the_model(sharing):
    (small,) = usage(sharing.store, ["small"])["models"]
    (sharing.store.root / "index" / "small.jsonl").unlink()
    sharing.heads.reset(sharing.id)
    assert usage(sharing.store)["unreferenced"]["bytes"] == small["unique"] == owner.gc(sharing)[1].size


def test_unreferenced_bytes_are_freed_by_a_collection(sharing):
    owner.gc(sharing, 1, dry_run=True)
    owner.drop(sharing, "acme/pii:0.1.1")
    found, collected = usage(sharing.store), survey(sharing.store)
    assert found["unreferenced"] == {"blobs": len(collected.freed), "bytes": collected.size}
    assert collected.freed
    assert found["models"][0]["versions"] == 1


def test_a_blob_under_two_keys_counts_twice(sharing):
    digest = sharing.get("small").digest
    data = (sharing.store.root / BlobKey(digest).path).read_bytes()
    before = usage(sharing.store, ["small"])["models"][0]["unique"]
    (sharing.store.root / BlobKey(digest, 1).path).write_bytes(data)
    assert usage(sharing.store, ["small"])["models"][0]["unique"] == before + len(data)


def test_an_unknown_name_is_not_found(sharing):
    with pytest.raises(NotFoundError, match="there is no model smal"):
        usage(sharing.store, ["smal"])
