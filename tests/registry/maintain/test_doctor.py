"""The doctor: a healthy registry has no findings, each seeded fault has exactly one, and nothing is left behind."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from support.registries import owner

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.log.collect import collect
from onnxreg.registry.maintain import doctor
from onnxreg.registry.maintain.doctor import Diagnosis, clear_leftovers, examine
from onnxreg.registry.read.remotes import remotes_file
from onnxreg.registry.store import promises
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.memory import MemoryStore, memory_remote
from onnxreg.registry.store.object_store import ObjectRegistry
from onnxreg.registry.store.promises import CasGuardedStore, Swapper
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.registry.support.disk import READ_ONLY, Disk, replace_file
from onnxreg.schema.core.errors import ConflictError, InputError
from onnxreg.schema.manifest.draft import Draft

MakeDraft = Callable[..., Draft]


@pytest.fixture
def filled(registry: Registry, make_draft: MakeDraft, quick_probes: None) -> Registry:
    registry.add(make_draft())
    return registry


def faults(remote: RegistryStore) -> dict[str, Diagnosis]:
    return {finding.check: finding for finding in examine(remote) if not finding.ok}


def tree(root: Path) -> dict[str, tuple[int, int]]:
    """Every file and directory but for the lock files, which any command leaves."""
    found = (path for path in root.rglob("*") if "locks" not in path.parts)
    return {str(path): (path.lstat().st_mode, path.lstat().st_size) for path in found if not path.is_dir()}


def test_a_healthy_registry_has_no_findings_and_is_not_changed(
    registry: Registry, make_draft: MakeDraft
) -> None:
    registry.add(make_draft())
    before = tree(registry.store.root)
    found = examine(registry.store)
    assert [finding for finding in found if not finding.ok] == []
    assert tree(registry.store.root) == before
    assert len({finding.check for finding in found}) == len(found) >= 13


def test_a_healthy_object_store_has_no_findings_and_is_not_changed() -> None:
    remote = memory_remote()
    assert isinstance(remote.store, MemoryStore)
    before = remote.store.objects.copy()
    assert faults(remote) == {}
    assert remote.store.objects == before


def _identity(root: Path, **more: Any) -> None:
    path = root / "registry.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **more}))


def _file(root: Path, name: str, data: bytes = b"?") -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(data)


def _dead_scratch(root: Path) -> None:
    (root / "local/tmp/0123456789abcdef").mkdir()
    _file(root, "local/tmp/0123456789abcdef.lock", b"")


FAULTS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "registry.json is damaged": ("registry.json", lambda root: _file(root, "registry.json")),
    "a newer writer": ("registry.json", lambda root: _identity(root, min_writer=99)),
    "a newer layout": ("registry.json", lambda root: _identity(root, min_reader=99)),
    "no registry": ("registry.json", lambda root: (root / "registry.json").unlink()),
    "a stray file": ("stray files", lambda root: _file(root, "notes.txt")),
    "a link among the blobs": ("index and blobs", lambda root: (root / "blobs/x").symlink_to("/etc")),
    "a bad index name": ("index and blobs", lambda root: _file(root, "index/Bad Name.jsonl")),
    "another user's directory": ("permissions", lambda root: os.chown(root / "index", 12345, 12345)),
    "a dead intent": ("intents", lambda root: _file(root, "gc/intents/0123456789abcdef-0123456789abcdef")),
    "a dead collection": ("condemned", lambda root: _file(root, "gc/condemned/0123456789abcdef")),
    "dead scratch": ("scratch", _dead_scratch),
    "scratch of nobody": ("scratch", lambda root: (root / "local/tmp/0123456789abcdef").mkdir()),
    "damaged remotes": ("remotes.json", lambda root: replace_file(remotes_file(), b"{")),
}


@pytest.mark.parametrize("what", FAULTS)
def test_each_fault_is_found_alone_and_has_a_fix(filled: Registry, what: str) -> None:
    check, harm = FAULTS[what]
    if what == "another user's directory" and os.geteuid() != 0:
        pytest.skip("only root can give files away")
    harm(filled.store.root)
    (finding,) = faults(DirectoryRegistry(filled.store.root)).values()
    assert finding.check == check
    assert finding.fix and finding.detail


@pytest.mark.parametrize("what", ["a dead intent", "a dead collection", "dead scratch"])
def test_a_collection_cures_what_died(filled: Registry, what: str) -> None:
    check, harm = FAULTS[what]
    harm(filled.store.root)
    assert " gc" in faults(filled.store)[check].fix
    (filled.store.root / "gc/intents/0123456789abcdef-0123456789abcdef").unlink(missing_ok=True)
    owner.gc(filled)
    assert faults(filled.store) == {}


def test_a_probe_sweeps_what_a_killed_one_left(filled: Registry) -> None:
    (filled.store.scratch / "probe-0123456789abcdef").mkdir()
    _file(filled.store.root, "local/tmp/probe-0123456789abcdef.lock", b"")
    assert faults(filled.store) == {}
    assert list(filled.store.scratch.iterdir()) == []


def test_a_running_push_is_no_finding(filled: Registry) -> None:
    with filled.store.push() as push:
        filled.store.add_note("condemned", push.id, b"")
        filled.store.add_note("intents", f"{push.id}-{'0' * 16}", b'{"name":"acme/pii"}')
        assert faults(filled.store) == {}


def test_a_linked_local_directory(filled: Registry, tmp_path: Path) -> None:
    (filled.store.root / "local/locks").rename(tmp_path / "moved")
    (filled.store.root / "local/locks").symlink_to(tmp_path / "moved")
    found = faults(filled.store)
    assert found["links"].family == "integrity"


def test_missing_permissions_are_named(filled: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may do everything, so the answer of access(2) stands in for another user's."""
    index = filled.store.root / "index"
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != index)
    assert f"{index} cannot be written" in faults(filled.store)["permissions"].detail


MOUNTED_READ_ONLY = (
    "unshare",
    "-rm",
    "sh",
    "-c",
    'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"',
    "sh",
)


def test_a_file_system_that_is_mounted_read_only(filled: Registry) -> None:
    root = str(filled.store.root)
    if (
        shutil.which("unshare") is None
        or subprocess.run([*MOUNTED_READ_ONLY, root, "true"], check=False).returncode
    ):
        pytest.skip("needs a mount namespace of its own")
    command = [sys.executable, "-m", "onnxreg.cli", "--registry", root]
    doctor = subprocess.run(
        [*MOUNTED_READ_ONLY, root, *command, "doctor", "--json"], check=False, capture_output=True
    )
    fixes = {each["check"]: each["fix"] for each in json.loads(doctor.stdout)["findings"] if not each["ok"]}
    assert fixes == {"permissions": READ_ONLY, "access": READ_ONLY}
    tag = subprocess.run(
        [*MOUNTED_READ_ONLY, root, *command, "tag", "acme/pii", "beta"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (tag.returncode, tag.stderr.splitlines()[1]) == (9, f"hint: {READ_ONLY}")


@pytest.mark.parametrize(
    ("free", "total", "ok"), [(0.9, 4, False), (3, 100, False), (20, 4000, True), (2, 10, True)]
)
def test_too_little_space_is_a_finding(
    filled: Registry, monkeypatch: pytest.MonkeyPatch, free: float, total: float, ok: bool
) -> None:
    gib = 2**30
    usage = type(shutil.disk_usage("/"))(int(total * gib), int((total - free) * gib), int(free * gib))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    assert ("space" not in faults(filled.store)) == ok


def test_remotes_are_counted(filled: Registry, tmp_path: Path) -> None:
    def told() -> str:
        return next(each.detail for each in examine(filled.store) if each.check == "remotes.json")

    assert told() == "0 remotes"
    filled.push("acme/pii", str(tmp_path / "share"))
    filled.remotes.add("share", str(tmp_path / "share"))
    assert told() == "1 remote"


def test_remotes_that_are_gone_or_another_registry(filled: Registry, tmp_path: Path) -> None:
    for name in ("gone", "swapped", "fine"):
        filled.push("acme/pii", str(tmp_path / name))
        filled.remotes.add(name, str(tmp_path / name))
    shutil.rmtree(tmp_path / "gone")
    shutil.rmtree(tmp_path / "swapped")
    Registry(tmp_path / "swapped")
    found = faults(filled.store)
    assert found.keys() == {"remote gone", "remote swapped"}
    assert (found["remote gone"].family, found["remote swapped"].family) == ("not-found", "integrity")


def test_the_fix_of_a_swapped_remote_works(filled: Registry, tmp_path: Path) -> None:
    """Also if another place has the id that it had before."""
    filled.push("acme/pii", str(tmp_path / "share"))
    shutil.copytree(tmp_path / "share", tmp_path / "copy")
    for name in ("share", "copy"):
        filled.push("acme/pii", str(tmp_path / name))
        filled.remotes.add(name, str(tmp_path / name))
    shutil.rmtree(tmp_path / "share")
    Registry(tmp_path / "share")
    (finding,) = faults(filled.store).values()
    program, *words = shlex.split(finding.fix)
    assert (program, main(words)) == ("reg", 0)
    assert faults(filled.store) == {}


def test_a_copy_whose_history_forked(filled: Registry, tmp_path: Path) -> None:
    copied = Registry(shutil.copytree(filled.store.root, tmp_path / "copy"))
    filled.remotes.add("copy", str(tmp_path / "copy"))
    filled.yank("acme/pii:0.1.0")
    assert faults(filled.store) == {}, "behind is no fork"
    copied.tag("acme/pii", "stable")
    (finding,) = faults(filled.store).values()
    assert (finding.check, finding.family) == ("remote copy", "integrity")
    assert "different histories of acme/pii" in finding.detail


class Careless(MemoryStore):
    """Ignores conditions, as some gateways do."""

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        self.objects[key] = data
        return True


class Forgetful(MemoryStore):
    """Knows how to create only, not how to compare."""

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        if expected is None:
            return super().swap(key, data, None)
        self.objects[key] = data
        return True


class Racing(MemoryStore):
    """Looks, lets others run, and then writes."""

    def __init__(self) -> None:
        super().__init__()
        self._together = threading.Barrier(promises.RACERS)

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        found = self.get(key)
        if threading.current_thread() is not threading.main_thread():
            self._together.wait(30)
        if (found[1] if found else None) != expected:
            return False
        self.objects[key] = data
        return True


class Timid(MemoryStore):
    """Creates, but never replaces."""

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        return expected is None and super().swap(key, data, expected)


class Hoarding(MemoryStore):
    """Deletes nothing."""

    def delete(self, keys: Iterable[str]) -> None:
        pass


class Lying(MemoryStore):
    """Reads something else than was written."""

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        return super().swap(key, data[:1], expected)


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (Careless, "can be created again"),
        (Careless, "stale token is done"),
        (Careless, "8 of 8 writers creating"),
        (Forgetful, "stale token is done"),
        (Forgetful, "8 of 8 writers swapping"),
        (Racing, "8 of 8 writers creating"),
        (Racing, "8 of 8 writers swapping"),
        (Timid, "right token is refused"),
        (Timid, "0 of 8 writers swapping"),
        (Hoarding, "still there"),
        (Lying, "not what is read"),
    ],
)
def test_a_store_that_breaks_a_promise_is_found(kind: type[MemoryStore], word: str) -> None:
    store = kind()
    assert word in "; ".join(promises.cas_faults(Swapper.of(store), "probe", raced=True))
    if kind is not Hoarding:
        assert store.objects == {}


def test_a_careless_store_is_a_finding_for_writers() -> None:
    found = faults(ObjectRegistry.create(Careless()))
    assert found["compare-and-swap"].family == "remote"


def test_locks_that_do_not_exclude(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(promises.lock_faults(tmp_path)) == []
    monkeypatch.setattr(promises, "exclusive", lambda path: threading.Lock())
    assert list(promises.lock_faults(tmp_path)) == ["two processes can hold the same lock"]
    with FileLock(tmp_path / "probe.lock"):
        assert "still held" in "".join(promises.lock_faults(tmp_path))


def test_a_disk_that_cannot_sync(tmp_path: Path) -> None:
    class Broken(Disk):
        def sync_directory(self, path: Path) -> bool:
            raise OSError(22, "Invalid argument")

    assert list(promises.disk_faults(tmp_path, Disk())) == []
    shutil.rmtree(tmp_path / "deep")
    assert "fails: Invalid argument" in "".join(promises.disk_faults(tmp_path, Broken()))


def test_an_unknown_collection_of_an_object_store_needs_a_person() -> None:
    remote = memory_remote()
    remote.add_note("condemned", "0123456789abcdef", b"")
    remote.add_note("intents", "0123456789abcdef-0123456789abcdef", b"{}")
    assert faults(remote).keys() == {"condemned"}


def test_a_dead_mirroring_that_no_collection_can_end_is_cleared_by_a_person() -> None:
    path = "gc/intents/0123456789abcdef-0123456789abcdef"
    for is_mirror in (False, True):
        remote = memory_remote("f" * 32, mirror=is_mirror)
        remote.add_note("intents", path.rpartition("/")[2], b'{"name":"acme/pii"}')
        if not is_mirror:
            with pytest.raises(InputError, match="is a part of the registry"):
                clear_leftovers(remote, [path])
    fault = faults(remote)["intents"]
    assert "of a mirroring that runs, or never ended" in fault.detail
    assert fault.fix.endswith(f"--clear {path}")
    with pytest.raises(ConflictError):
        collect(remote, patience=0)
    clear_leftovers(remote, [path])
    collect(remote, patience=0)


class Guarded(MemoryStore):
    """Runs something whenever an object that is raced for was read."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], object] = lambda: None

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        self.meanwhile()
        return super().swap(key, data, expected)


def test_scratch_of_interrupted_probes_is_taken_away() -> None:
    store = Guarded()
    remote = ObjectRegistry.create(store)
    before = store.objects.copy()
    store.objects["gc/probe-0123456789abcdef"] = b"first"
    (finding,) = (finding for finding in examine(remote) if finding.check == "probes")
    assert (finding.ok, finding.detail) == (True, "took away 1 that were interrupted")
    assert store.objects == before


def test_scratch_of_a_probe_that_runs_is_left_alone() -> None:
    store = Guarded()
    remote = ObjectRegistry.create(store)
    running, gone = "gc/probe-0123456789abcdef", "gc/probe-fedcba9876543210"
    store.objects |= {running: b"first", gone: b"first"}

    def goes_on() -> None:
        store.objects[running] = os.urandom(16)
        store.objects.pop(gone, None)

    store.meanwhile = goes_on
    assert faults(remote) == {}
    assert running in store.objects


def test_a_store_that_is_proven_before_writing_has_a_finding_and_no_error() -> None:
    store = Careless()
    ObjectRegistry.create(store)
    found = faults(ObjectRegistry(CasGuardedStore(store, "a server")))
    assert found.keys() == {"compare-and-swap"}
    assert "reg mirror memory: DST" in found["compare-and-swap"].fix


def test_fixes_call_the_registry_what_its_user_does() -> None:
    remote = memory_remote()
    remote.add_note("condemned", "0123456789abcdef", b"")
    (finding,) = (finding for finding in examine(remote, "gs://b/p?single_writer=yes") if not finding.ok)
    assert finding.fix == "reg doctor 'gs://b/p?single_writer=yes' --clear gc/condemned/0123456789abcdef"


def test_many_stray_files_are_counted(filled: Registry) -> None:
    for number in range(doctor.MAX_LISTED_PATHS + 5):
        _file(filled.store.root, f"stray{number}")
    assert "and 5 more" in faults(filled.store)["stray files"].detail
