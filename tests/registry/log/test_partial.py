"""A registry that holds only some artifacts of a version: on record, and everybody who asks keeps to it."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest
from support.registries import owner
from support.registries.parts import COMPANIONS, FULL, HALF, INT8, NAME, ONE, SIDECAR, draft

from onnxreg.registry import Registry
from onnxreg.registry.log.collect import blob_keys
from onnxreg.registry.log.commit import commit
from onnxreg.registry.log.contents import Selection
from onnxreg.registry.log.log import Log
from onnxreg.registry.log.lookup import load
from onnxreg.registry.maintain.space import usage
from onnxreg.registry.maintain.verification import verify
from onnxreg.registry.search.catalogs import LocalCatalog
from onnxreg.registry.store.layout import blob_path
from onnxreg.registry.store.protocol import RegistryStore, memory_remote
from onnxreg.registry.support.environment import stamp
from onnxreg.registry.transfer.exchange import TransferResult, exchange
from onnxreg.registry.transfer.merge import ExchangeRequest
from onnxreg.registry.transfer.mirror import mirror
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import ConflictError, IntegrityError, NotFoundError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.events import Hold
from onnxreg.schema.manifest.manifest import Manifest
from onnxreg.schema.manifest.vocabulary import FILENAME
from onnxreg.schema.query.requirements import Query

V1 = Version(1, 0, 0)

Pull = Callable[..., TransferResult]


@pytest.fixture
def pull(whole: Registry, other: Registry) -> Pull:
    """Pull formats of 1.0.0 from where everything is."""

    def run(*formats: str, precision: str | None = None, restore: bool = False) -> TransferResult:
        source, selection = str(whole.store.root), Selection(formats, precision)
        return other.pull(ONE, source, restore=restore, selection=selection)

    return run


def held(registry: Registry) -> tuple[str, ...] | None:
    return registry.find(ONE).entry.held


def paths_there(registry: Registry, manifest: Manifest) -> set[str]:
    """The files of a manifest whose blobs lie in a registry."""
    here = {key.digest for key in blob_keys(registry.store)}
    return {file.path for file in manifest.all_files() if file.digest in here}


def manifest_of(registry: Registry) -> Manifest:
    return registry.get(ONE).manifest


def kinds(registry: Registry) -> list[str]:
    return [line.event.kind for line in registry.log(NAME)]


def hold(remote: RegistryStore, *paths: str) -> None:
    def change(log: Log) -> set[Digest]:
        manifest = log.versions[V1].manifest
        log.append(Hold(**stamp(NAME), version=V1, manifest=manifest, paths=paths or None))
        return set()

    with remote.push() as push:
        commit(remote, push, NAME, change)


def test_one_format_comes_with_its_companions_and_is_on_record(
    whole: Registry, other: Registry, pull: Pull
) -> None:
    done = pull("onnx-int8")
    assert (done.events, done.blobs) == (2, 6) and kinds(other) == ["publish", "hold"]
    assert done.artifacts == {V1: (INT8,)} and held(other) == (INT8,)
    assert paths_there(other, manifest_of(whole)) == {INT8, SIDECAR, *COMPANIONS}
    assert other.find(ONE).entry.status(None) == "partial"
    assert other.get(ONE).data == whole.get(ONE).data
    assert verify(other.store).damages == [] and verify(other.store).unreferenced == 0


@pytest.mark.parametrize(
    ("formats", "precision", "events", "blobs", "expected"),
    [
        (("onnx-int8",), None, 0, 0, (INT8,)),
        (("onnx-android",), "float16", 1, 2, (HALF, INT8)),
        (("onnx-android",), None, 1, 3, None),
        ((), None, 1, 3, None),
    ],
)
def test_a_later_pull_fetches_what_is_lacking(
    whole: Registry, other: Registry, pull: Pull,
    formats: tuple[str, ...], precision: str | None, events: int, blobs: int, expected: tuple[str, ...] | None,
) -> None:  # fmt: skip
    pull("onnx-int8")
    done = pull(*formats, precision=precision)
    assert (done.events, done.blobs, held(other)) == (events, blobs, expected)
    if expected is None:
        assert other.find(ONE).entry.status(None) == ""
        assert other.log(NAME)[-1].event.to_json().keys().isdisjoint({"paths"})
        assert other.find(ONE).entry.to_json().keys() == whole.find(ONE).entry.to_json().keys()
        files = {file.path for file in manifest_of(whole).all_files()}
        assert paths_there(other, manifest_of(whole)) == files
        assert pull("onnx-int8").events == 0 and held(other) is None
    assert not verify(other.store).damages


@pytest.mark.parametrize(
    ("formats", "precision", "expected"),
    [
        (("onnx-android",), None, (FULL, HALF)),
        (("onnx-android",), "float16", (HALF,)),
        ((), "float32", (FULL,)),
    ],
)
def test_a_partial_pull_holds_what_was_chosen(
    formats: tuple[str, ...], precision: str | None, expected: tuple[str, ...], other: Registry, pull: Pull
) -> None:
    pull(*formats, precision=precision)
    assert held(other) == expected
    assert not verify(other.store).damages


@pytest.mark.parametrize(
    ("formats", "precision", "message"),
    [
        (("onnx-int4",), None, r"has no onnx-int4$"),
        (("onnx-int8", "webgpu"), None, r"has no webgpu$"),
        (("onnx-int8",), "float16", "has no onnx-int8 of precision float16"),
        ((), "int4", "has no artifact of precision int4"),
    ],
)
def test_absent_formats_are_refused(
    formats: tuple[str, ...], precision: str | None, message: str, other: Registry, pull: Pull
) -> None:
    with pytest.raises(NotFoundError, match=message) as caught:
        pull(*formats, precision=precision)
    assert caught.value.hint == "it has onnx-android (float32), onnx-android (float16), onnx-int8 (int8)"
    assert other.names() == []


def test_resolve_and_search_keep_to_what_is_held(other: Registry, pull: Pull) -> None:
    pull("onnx-int8")
    found = other.resolve(NAME)
    assert found.artifact.path == INT8
    assert {(each.artifact, each.code) for each in found.rejected} == {(FULL, "not-held"), (HALF, "not-held")}
    with pytest.raises(NotFoundError) as caught:
        other.resolve(NAME, Query(formats=("onnx-android",)))
    assert f"{FULL} is not held here" in caught.value.hint
    found = LocalCatalog(other.store).refresh(artifacts=True)
    assert {item.path: item.held for item in found.query()} == {FULL: False, HALF: False, INT8: True}


def test_files_are_written_out_as_far_as_they_are_held(
    whole: Registry, other: Registry, pull: Pull, tmp_path: Path
) -> None:
    pull("onnx-int8")
    target = tmp_path / "out"
    other.write_out(ONE, target)
    assert {path.name for path in target.iterdir()} == {INT8, SIDECAR, *COMPANIONS, FILENAME}
    assert (target / FILENAME).read_bytes() == whole.get(ONE).data
    pull()
    other.write_out(ONE, target)
    assert {FULL, HALF, INT8} < {path.name for path in target.iterdir()}


def test_a_collection_keeps_what_is_held_and_frees_what_no_longer_is(
    whole: Registry, other: Registry, pull: Pull
) -> None:
    pull("onnx-int8")
    assert not owner.gc(other)[1].freed
    (model,) = usage(other.store)["models"]
    assert (model["versions"], model["blobs"]) == (1, 6)
    pull()
    hold(other.store, INT8)
    _, collected = owner.gc(other)
    assert len(collected.freed) == 3
    assert paths_there(other, manifest_of(whole)) == {INT8, SIDECAR, *COMPANIONS}
    assert not verify(other.store).damages
    assert pull().blobs == 3


def test_a_lost_blob_is_damage_and_is_repaired(whole: Registry, other: Registry, pull: Pull) -> None:
    pull("onnx-int8")
    lost = next(file for file in manifest_of(whole).all_files() if file.path == SIDECAR)
    (other.store.root / blob_path(lost.digest)).unlink()
    assert [damage.kind for damage in verify(other.store).damages] == ["missing"]
    repaired = owner.repair(other, source=str(whole.store.root))
    assert len(repaired.repaired) == 1 and not repaired.report.damages
    assert paths_there(other, manifest_of(whole)) == {INT8, SIDECAR, *COMPANIONS}


def test_a_state_line_that_lost_what_is_held_is_repaired(other: Registry, pull: Pull) -> None:
    pull("onnx-int8")
    path = other.store.root / "index" / "acme" / "pii.jsonl"
    good = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(good.replace(f'"held":["{INT8}"],'.encode(), b"", 1))
    assert {damage.kind for damage in verify(other.store).damages} == {"state"}
    assert not owner.repair(other).report.damages
    assert path.read_bytes() == good


def test_a_verbatim_mirror_follows(whole: Registry, other: Registry, pull: Pull) -> None:
    copied = memory_remote(other.id, mirror=True)
    pull("onnx-int8")
    assert mirror(other.store, copied).blobs == 6
    assert not verify(copied).damages
    pull("onnx-android", precision="float32")
    assert mirror(other.store, copied).blobs == 2
    pull()
    assert mirror(other.store, copied).blobs == 1
    assert not verify(copied).damages
    hold(other.store, INT8)
    assert len(mirror(other.store, copied).freed.freed) == 3
    assert copied.read_index(NAME).data == other.store.read_index(NAME).data  # type: ignore[union-attr]
    assert not verify(copied).damages


def test_a_copy_of_one_registry_takes_no_part_of_a_version(whole: Registry, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    identity = (whole.store.root / "registry.json").read_bytes()
    (tmp_path / "copy" / "registry.json").write_bytes(identity)
    with pytest.raises(ConflictError, match="two copies of one registry"):
        Registry(tmp_path / "copy").pull(ONE, str(whole.store.root), selection=Selection(("onnx-int8",)))


@pytest.mark.parametrize("way", ["push", "add"])
def test_a_whole_version_makes_it_whole(
    whole: Registry, other: Registry, pull: Pull, tmp_path: Path, way: str
) -> None:
    pull("onnx-int8")
    if way == "push":
        done = whole.push(ONE, str(other.store.root))
        assert (done.events, done.blobs) == (1, 3)
        assert whole.push(ONE, str(other.store.root)).events == 0
    else:
        assert not other.add(draft(tmp_path / "again"), "1.0.0").new
    assert held(other) is None and not verify(other.store).damages


def test_a_mirror_with_an_id_of_its_own_lists_it(whole: Registry, other: Registry, pull: Pull) -> None:
    pull("onnx-int8")
    there = memory_remote()
    done = mirror(other.store, there)
    (skipped,) = done.skipped
    assert (skipped.name, skipped.tag, skipped.error) == (NAME, "1.0.0", None)
    assert "only onnx-int8" in skipped.reason
    assert list(there.names()) == []
    mirror(whole.store, other.store)
    assert held(other) is None and not verify(other.store).damages


def test_pulling_from_where_only_a_part_is(other: Registry, pull: Pull, tmp_path: Path) -> None:
    pull("onnx-int8")
    source, third = str(other.store.root), Registry(tmp_path / "third")
    for selection in (Selection(("onnx-android",)), Selection()):
        with pytest.raises(NotFoundError, match=r"only onnx-int8 \(int8\) of acme/pii:1.0.0 is held"):
            third.pull(ONE, source, selection=selection)
    assert third.names() == []
    third.pull(ONE, source, selection=Selection(("onnx-int8",)))
    assert held(third) == (INT8,)
    assert kinds(third) == ["publish", "hold"]
    hold_event = third.log(NAME)[-1]
    assert hold_event.via is None and hold_event.event.id != other.log(NAME)[-1].event.id
    assert not verify(third.store).damages


class Meanwhile:
    """A source beside which something else happens as soon as the first blob is read."""

    def __init__(self, source: RegistryStore, act: Callable[[], object]) -> None:
        self._source, self._acts = source, [act]

    def __getattr__(self, name: str) -> object:
        return getattr(self._source, name)

    def open_blob(self, digest: Digest, start: int = 0) -> object:
        if digest != load(self._source, NAME).versions[V1].manifest:
            with suppress(IndexError):
                act = self._acts.pop()
                act()
        return self._source.open_blob(digest, start)


@pytest.mark.parametrize(
    ("then", "expected"), [(("onnx-android",), None), (("onnx-int8",), (INT8,)), ((), None)]
)
def test_two_pulls_at_once_add_up(
    then: tuple[str, ...], expected: tuple[str, ...] | None, whole: Registry, other: Registry
) -> None:
    def pull_too() -> None:
        exchange(whole.store, other.store, ExchangeRequest(NAME, [V1], Selection(then)))

    source = cast(RegistryStore, Meanwhile(whole.store, pull_too))
    done = exchange(source, other.store, ExchangeRequest(NAME, [V1], Selection(("onnx-int8",))))
    assert held(other) == expected == done.artifacts[V1]
    assert kinds(other).count("publish") == 1
    assert not verify(other.store).damages


def test_an_expired_version_is_restored_in_part(
    whole: Registry, other: Registry, pull: Pull, tmp_path: Path
) -> None:
    pull("onnx-android")
    other.add(draft(tmp_path / "newer", "b"), "2.0.0")
    owner.gc(other, 1)
    with pytest.raises(ConflictError, match="is expired there"):
        pull("onnx-int8")
    pull("onnx-int8", restore=True)
    assert held(other) == (INT8,)
    assert kinds(other) == ["publish", "hold", "publish", "expire", "restore", "hold"]
    assert not verify(other.store).damages
    pull()
    assert held(other) is None and not verify(other.store).damages


def test_bytes_taken_down_do_not_come_back_with_the_rest(
    whole: Registry, other: Registry, pull: Pull
) -> None:
    pull("onnx-int8")
    full = next(item for item in manifest_of(whole).artifacts if item.path == FULL)
    owner.purge(other, ONE, "leaked")
    assert full.digest in other.state(NAME).tombstones
    with pytest.raises(ConflictError, match="is purged there"):
        pull("onnx-int8", restore=True)


def test_an_artifact_that_no_version_has_cannot_be_held(whole: Registry) -> None:
    hold(whole.store, "elsewhere.onnx")
    assert [damage.kind for damage in verify(whole.store).damages] == ["manifest"]
    with pytest.raises(IntegrityError, match=r"holds elsewhere\.onnx, which is not an artifact"):
        owner.gc(whole)
    assert paths_there(whole, manifest_of(whole)) >= {FULL, HALF, INT8}


def test_a_source_that_lies_about_what_it_holds_is_found_out(other: Registry, pull: Pull) -> None:
    """The log says everything, its state line less: a mirror would refer to what it did not bring."""
    pull()
    path = other.store.root / "index" / "acme" / "pii.jsonl"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes().replace(b'{"manifest"', f'{{"held":["{INT8}"],"manifest"'.encode(), 1))
    assert held(other) == (INT8,)
    copied = memory_remote(other.id, mirror=True)
    (skipped,) = mirror(other.store, copied).skipped
    assert isinstance(skipped.error, IntegrityError)
    assert list(copied.names()) == []
