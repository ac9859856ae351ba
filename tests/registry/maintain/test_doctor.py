"""The doctor: a healthy registry has no findings, each seeded fault has exactly one, and nothing is left behind."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.registries.home import Home

from onnxreg.registry.log.commit import collect
from onnxreg.registry.maintain.verification import MAX_LISTED_PATHS, Diagnosis, clear_leftovers, examine
from onnxreg.registry.remotes import remotes_file
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import MemoryStore, RegistryStore, memory_remote
from onnxreg.registry.support.disk import replace_file
from onnxreg.schema.core.errors import ConflictError, InputError

CONDEMNED, INTENT = "gc/condemned/0123456789abcdef", "gc/intents/0123456789abcdef-0123456789abcdef"
PROBE = "gc/probe-0123456789abcdef"


@pytest.fixture
def filled(registry: Home) -> Home:
    registry.make()
    return registry


def faults(remote: RegistryStore) -> dict[str, Diagnosis]:
    return {finding.check: finding for finding in examine(remote, remote.url) if not finding.ok}


def tree(root: Path) -> dict[str, tuple[int, int]]:
    """Every file and directory but for the lock files, which any command leaves."""
    found = (path for path in root.rglob("*") if "locks" not in path.parts)
    return {str(path): (path.lstat().st_mode, path.lstat().st_size) for path in found if not path.is_dir()}


def test_a_healthy_registry_has_no_findings_and_is_not_changed(registry: Home) -> None:
    registry.make()
    before = tree(registry.store.root)
    assert [finding.check for finding in examine(registry.store, "here")] == ["registry.json", "files"]
    assert faults(registry.store) == {} and tree(registry.store.root) == before
    remote = memory_remote()
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
    "damaged remotes": ("remotes", lambda root: replace_file(remotes_file(), b"{"), "integrity"),
}


def _file(root: Path, name: str) -> None:
    (root / name).write_bytes(b"?")


@pytest.mark.parametrize("what", FAULTS)
def test_each_fault_is_found_alone_and_has_a_fix(filled: Home, what: str) -> None:
    check, harm, family = FAULTS[what]
    harm(filled.store.root)
    (finding,) = faults(DirectoryRegistry(filled.store.root)).values()
    assert (finding.check, finding.family) == (check, family)
    assert finding.fix and finding.detail
    if what == "many strays":
        assert finding.detail.endswith(f"and {10 - MAX_LISTED_PATHS} more")


def test_what_the_next_command_or_collection_takes_away_is_no_finding(filled: Home) -> None:
    """A dead push, a dead collection and dead scratch; and a push that runs."""
    root = filled.store.root
    for path in (CONDEMNED, INTENT, "local/tmp/0123456789abcdef.lock"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b'{"name":"acme/pii"}')
    with filled.store.push() as push:
        filled.store.add_note("condemned", push.id, b"")
        filled.store.add_note("intents", f"{push.id}-{'0' * 16}", b'{"name":"acme/pii"}')
        assert faults(filled.store) == {}


def test_remotes_that_are_gone_or_another_registry(filled: Home, tmp_path: Path) -> None:
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
def test_what_only_a_person_may_clear(path: str, owner: str) -> None:
    """In a bucket nobody knows if the owner of a note runs; a collection makes only a push to an original start over."""
    remote = memory_remote("f" * 32, mirror=owner == "mirroring")
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


def test_the_note_of_a_push_is_left_to_a_collection() -> None:
    remote = memory_remote()
    remote.add_note("intents", INTENT.rpartition("/")[2], b'{"name":"acme/pii"}')
    assert faults(remote) == {}
    with pytest.raises(InputError, match="is a part of the registry"):
        clear_leftovers(remote, [INTENT])
