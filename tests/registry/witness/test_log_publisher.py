"""The publisher: what it appends, what it refuses, and what it continues after it was killed."""

import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.witness.logs import WitnessedRegistry

from onnxreg.registry import Registry
from onnxreg.registry.log.decisions import Decisions
from onnxreg.registry.signing import generate
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.memory import MemoryStore
from onnxreg.registry.store.object_store import ObjectRegistry
from onnxreg.registry.transfer.mirror_registry import mirror
from onnxreg.registry.witness import signers
from onnxreg.registry.witness.heads import HeadSurvey
from onnxreg.registry.witness.inspection import inspect, verify_log
from onnxreg.registry.witness.signers import LogPublisher
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import ForkError, InputError, IntegrityError
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.gates.policy import read_policy
from onnxreg.schema.witness.merkle_map import MapEntry

Grow = Callable[[str], None]


class Killed(BaseException):
    """The end of a process."""


class Dying(DirectoryRegistry):
    """A registry whose process dies before its n-th write of the witness log."""

    left = -1

    def _step(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed

    def write_files(self, files: Mapping[str, bytes]) -> None:
        for path, data in files.items():
            self._step()
            super().write_files({path: data})

    def swap_file(self, path: str, data: bytes, expected: str | None) -> bool:
        self._step()
        return super().swap_file(path, data, expected)


def test_each_change_is_one_entry(witnessed: WitnessedRegistry, grow: Grow) -> None:
    first = witnessed.publish()
    assert (first.head.size, first.changed) == (1, ("acme/ner", "acme/pii", "lab/ocr"))
    assert witnessed.publish().changed == ()
    grow("acme/pii")
    grow("acme/pii")
    second = witnessed.publish()
    assert (second.head.size, second.changed, second.refused) == (2, ("acme/pii",), {})
    entries = {entry.name: entry for entry in inspect(witnessed.store).heads}
    index = witnessed.store.read_index("acme/pii")
    assert index is not None and entries["acme/pii"].seq == 3
    assert entries["acme/pii"].head.hex.encode() in index.data
    assert verify_log(witnessed.store).refused == {}


def test_the_log_of_policies_is_in_the_map(witnessed: WitnessedRegistry, registry: Registry) -> None:
    registry.set_policy(read_policy(b'[[rule]]\nchannel = "stable"\ncertified = ["onnx-int8"]\n', "policy"))
    witnessed.publish()
    assert inspect(witnessed.store).heads.get(".policy") is not None


@pytest.mark.more
def test_a_long_log_fills_its_tiles(own_user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """258 entries: a full tile, a partial one, and one of the level above."""
    heads, store = iter(range(1, 1000)), MemoryStore()
    witnessed = WitnessedRegistry(ObjectRegistry.create(store))

    def survey(*_: object) -> HeadSurvey:
        number = next(heads)
        return HeadSurvey({"acme/pii": MapEntry("acme/pii", number, Digest.of(b"%d" % number))})

    monkeypatch.setattr(signers, "survey", survey)
    for _ in range(258):
        witnessed.publish()
    sizes = [len(store.objects[f"witness/tile/{path}"]) for path in ("0/000", "0/001.p/2", "1/000.p/1")]
    assert sizes == [256 * 32, 64, 32]
    assert inspect(witnessed.store).heads.get("acme/pii") == MapEntry("acme/pii", 258, Digest.of(b"258"))


@pytest.mark.parametrize("step", range(1, 7))
def test_a_killed_publisher_is_continued(witnessed: WitnessedRegistry, grow: Grow, step: int) -> None:
    witnessed.publish()
    grow("acme/pii")
    store = Dying(Path(witnessed.store.url))
    store.left = step
    try:
        LogPublisher(store, witnessed.key).publish()
    except Killed:
        grow("acme/ner")
        assert inspect(witnessed.store).checkpoint.head.size == 1
    else:
        assert step == 6
        grow("acme/ner")
    result = witnessed.publish()
    decided = step > 2
    assert (result.head.size, "acme/pii" in result.changed) == ((3, False) if decided else (2, True))
    assert verify_log(witnessed.store).changed == {}


def test_publishers_at_once_make_one_history(
    witnessed: WitnessedRegistry, grow: Grow, registry: Registry
) -> None:
    """Each has a state directory of its own, as on machines of their own: only the store keeps them apart."""
    witnessed.publish()

    def run(number: int) -> None:
        publisher = LogPublisher(DirectoryRegistry(registry.store.root), witnessed.key)
        publisher._memory._folder = registry.store.root.parent / f"memory-{number}"
        for _ in range(5):
            grow(("acme/pii", "acme/ner", "lab/ocr")[number])
            publisher.publish()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(run, range(3)))
    found = verify_log(witnessed.store)
    assert (found.changed, found.refused) == ({}, {})
    assert 6 <= inspect(witnessed.store).checkpoint.head.size <= 16
    witnessed.cosign()


def test_a_model_that_goes_back_keeps_its_entry(witnessed: WitnessedRegistry, grow: Grow) -> None:
    index = Path(witnessed.store.url) / "index" / "acme" / "pii.jsonl"
    old = index.read_bytes()
    grow("acme/pii")
    grow("acme/ner")
    witnessed.publish()
    index.write_bytes(old)
    (index.parent / "ner.jsonl").unlink()
    grow("lab/ocr")
    result = witnessed.publish()
    assert result.changed == ("lab/ocr",)
    assert result.refused == {
        "acme/pii": "it ends at line 1, and had 2 lines",
        "acme/ner": "it is gone, and had 2 lines",
    }
    assert set(verify_log(witnessed.store).refused) == {"acme/pii", "acme/ner"}
    accepted = witnessed.publish("acme/pii", "acme/ner")
    assert (accepted.changed, accepted.refused) == (("acme/ner", "acme/pii"), {})
    assert inspect(witnessed.store).heads.get("acme/ner") is None


def test_a_rewritten_model_keeps_its_entry(
    witnessed: WitnessedRegistry, registry: Registry, grow: Grow
) -> None:
    index = Path(witnessed.store.url) / "index" / "acme" / "pii.jsonl"
    old = index.read_bytes()
    grow("acme/pii")
    witnessed.publish()
    index.write_bytes(old)
    Decisions(registry.store, None).pin(Ref.parse("acme/pii:1.0.0"), "another line")
    assert "it was rewritten: line 2" in witnessed.publish().refused["acme/pii"]


def test_an_older_checkpoint_is_not_continued(
    witnessed: WitnessedRegistry, grow: Grow, tmp_path: Path
) -> None:
    witnessed.publish()
    folder = Path(witnessed.store.url) / "witness"
    shutil.copytree(folder, tmp_path / "old")
    grow("acme/pii")
    witnessed.publish()
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "old", folder)
    with pytest.raises(IntegrityError, match="went back in time: its checkpoint has size 1, 2 was signed"):
        witnessed.publish()
    shutil.rmtree(folder)
    with pytest.raises(IntegrityError, match=r"the witness log of .* is gone: it had size 2"):
        witnessed.publish()


def test_a_checkpoint_of_another_key_is_not_continued(witnessed: WitnessedRegistry) -> None:
    witnessed.publish()
    other = WitnessedRegistry(witnessed.store, generate("ed25519"))
    with pytest.raises(IntegrityError, match="is signed by another key"):
        other.publish()


def test_a_forged_next_entry_is_not_signed(witnessed: WitnessedRegistry, grow: Grow) -> None:
    """The file is the publisher's own, for the tree that he would make, but signed by a stranger."""
    witnessed.publish()
    folder = Path(witnessed.store.url) / "witness"
    forged = WitnessedRegistry(witnessed.store, generate("ed25519"))
    shutil.copytree(folder, folder.parent / "kept")
    shutil.rmtree(folder)
    forged.publish()
    grow("lab/ocr")
    forged.publish()
    planted = (folder / "next").read_bytes()
    shutil.rmtree(folder)
    (folder.parent / "kept").rename(folder)
    (folder / "next").write_bytes(planted)
    result = witnessed.publish()
    assert (result.head.size, result.changed) == (2, ("lab/ocr",))
    assert verify_log(witnessed.store, str(witnessed.log_key)).refused == {}


def test_a_planted_tile_is_replaced(witnessed: WitnessedRegistry, grow: Grow) -> None:
    witnessed.publish()
    folder = Path(witnessed.store.url) / "witness" / "tile"
    for part in ("0", "entries"):
        (folder / part / "000.p" / "2").write_bytes(b"planted")
    grow("lab/ocr")
    witnessed.publish()
    assert verify_log(witnessed.store).refused == {}


def test_a_mirror_has_no_log_of_its_own(witnessed: WitnessedRegistry, tmp_path: Path) -> None:
    copy = DirectoryRegistry.create(tmp_path / "mirror", mirror_of=witnessed.store.registry_id)
    mirror(witnessed.store, copy)
    with pytest.raises(InputError, match="is a mirror"):
        LogPublisher(copy, witnessed.key).publish()


def test_a_rewritten_log_is_a_fork_for_its_publisher(
    witnessed: WitnessedRegistry, grow: Grow, tmp_path: Path
) -> None:
    """Another machine with the same key began the log anew."""
    witnessed.publish()
    shutil.rmtree(Path(witnessed.store.url) / "witness")
    other = LogPublisher(witnessed.store, witnessed.key)
    other._memory._folder = tmp_path / "other"
    grow("acme/pii")
    other.publish()
    with pytest.raises(ForkError, match="was rewritten"):
        witnessed.publish()
