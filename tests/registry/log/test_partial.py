"""A registry that holds only some artifacts of a version: on record, and everybody who asks keeps to it."""

from collections.abc import Callable
from contextlib import suppress
from typing import cast

import pytest
from support.registries import memory, owner
from support.registries.home import Home
from support.registries.parts import COMPANIONS, FULL, HALF, INT8, NAME, ONE, SIDECAR, draft

from onnxreg.registry.log.commit import blob_keys, commit, usage
from onnxreg.registry.log.contents import Selection
from onnxreg.registry.log.log import Log, load
from onnxreg.registry.maintain import verify
from onnxreg.registry.search.catalogs import LocalCatalog
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.registry.system import stamp
from onnxreg.registry.transfer.exchange import ExchangeRequest, TransferResult, exchange
from onnxreg.registry.transfer.mirror import mirror
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import ConflictError, IntegrityError, NotFoundError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.events import Hold
from onnxreg.schema.manifest.vocabulary import FILENAME
from onnxreg.schema.query.resolve import Query

V1 = Version(1, 0, 0)
PART = {INT8, SIDECAR, *COMPANIONS}
Pull = Callable[..., TransferResult]


@pytest.fixture
def pull(whole, other) -> Pull:
    """Pull formats of 1.0.0 from where everything is."""

    def run(*formats: str, precision: str | None = None, restore: bool = False) -> TransferResult:
        return other.pull(ONE, whole.place, restore=restore, selection=Selection(formats, precision))

    return run


@pytest.fixture
def part(other, pull) -> Home:
    """Where the int8 artifact is."""
    pull("onnx-int8")
    return other


def held(registry: Home) -> tuple[str, ...] | None:
    return registry.find(ONE).entry.held


def paths_there(registry: Home) -> set[str]:
    """The files of the manifest whose blobs lie in a registry."""
    here = {key.digest for key in blob_keys(registry.store)}
    return {file.path for file in registry.get(ONE).manifest.all_files() if file.digest in here}


def hold(remote: RegistryStore, *paths: str) -> None:
    def change(log: Log) -> set[Digest]:
        manifest = log.versions[V1].manifest
        log.append(Hold(**stamp(NAME), version=V1, manifest=manifest, paths=paths or None))
        return set()

    with remote.push() as push:
        commit(remote, push, NAME, change)


def edit_index(registry: Home, old: str, new: str) -> bytes:
    """Replace text of the state line; the bytes before."""
    path = registry.tree.index(NAME)
    before = path.read_bytes()
    registry.tree.overwrite(path, before.replace(old.encode(), new.encode(), 1))
    assert path.read_bytes() != before
    return before


@pytest.mark.parametrize(
    ("formats", "precision", "expected", "files"),
    [
        (("onnx-int8",), None, (INT8,), PART),
        (("onnx-android",), None, (FULL, HALF), {FULL, HALF, *COMPANIONS}),
        (("onnx-android",), "float16", (HALF,), {HALF, *COMPANIONS}),
        ((), "float32", (FULL,), {FULL, *COMPANIONS}),
    ],
)
def test_what_was_chosen_comes_with_its_companions_and_is_on_record(
    whole, other, pull, formats, precision, expected, files
):
    done = pull(*formats, precision=precision)
    assert (done.events, done.blobs, other.kinds()) == (2, len(files) + 2, ["publish", "hold"])
    assert done.artifacts == {V1: expected} and held(other) == expected
    assert paths_there(other) == files
    assert other.find(ONE).entry.status(()) == "partial"
    assert other.get(ONE).data == whole.get(ONE).data
    other.check()
    assert verify(other.store).unreferenced == 0


@pytest.mark.parametrize(
    ("formats", "precision", "events", "blobs", "expected"),
    [
        (("onnx-int8",), None, 0, 0, (INT8,)),
        (("onnx-android",), "float16", 1, 2, (HALF, INT8)),
        (("onnx-android",), None, 1, 3, None),
        ((), None, 1, 3, None),
    ],
)
def test_a_later_pull_fetches_what_is_lacking(whole, part, pull, formats, precision, events, blobs, expected):
    done = pull(*formats, precision=precision)
    assert (done.events, done.blobs, held(part)) == (events, blobs, expected)
    if expected is None:
        assert part.find(ONE).entry.status(()) == ""
        assert "paths" not in part.log(NAME)[-1].event.to_json()
        assert part.find(ONE).entry.to_json().keys() == whole.find(ONE).entry.to_json().keys()
        assert paths_there(part) == {FULL, HALF} | PART
        assert pull("onnx-int8").events == 0 and held(part) is None
    part.check()


@pytest.mark.parametrize(
    ("formats", "precision", "message"),
    [
        (("onnx-int4",), None, r"has no onnx-int4$"),
        (("onnx-int8", "webgpu"), None, r"has no webgpu$"),
        (("onnx-int8",), "float16", "has no onnx-int8 of precision float16"),
        ((), "int4", "has no artifact of precision int4"),
    ],
)
def test_absent_formats_are_refused(formats, precision, message, other, pull):
    with pytest.raises(NotFoundError, match=message) as caught:
        pull(*formats, precision=precision)
    assert caught.value.hint == "it has onnx-android (float32), onnx-android (float16), onnx-int8 (int8)"
    assert other.names() == []


def test_resolve_and_search_keep_to_what_is_held(part):
    found = part.resolve(NAME)
    assert found.artifact.path == INT8
    assert {(each.artifact, each.code) for each in found.outcome.rejected} == {
        (FULL, "not-held"),
        (HALF, "not-held"),
    }
    with pytest.raises(NotFoundError) as caught:
        part.resolve(NAME, Query(formats=("onnx-android",)))
    assert f"{FULL} is not held here" in caught.value.hint
    rows = LocalCatalog(part.store).refresh(artifacts=True).query()
    assert {item.path: item.held for item in rows} == {FULL: False, HALF: False, INT8: True}


def test_files_are_written_out_as_far_as_they_are_held(part, pull, tmp_path):
    target = tmp_path / "out"
    for files in (PART, PART | {FULL, HALF}):
        part.write_out(ONE, target)
        assert {path.name for path in target.iterdir()} == files | {FILENAME}
        assert (target / FILENAME).read_bytes() == part.get(ONE).data
        pull()


def test_a_collection_keeps_what_is_held_and_frees_what_no_longer_is(part, pull):
    assert not owner.gc(part)[1].freed
    (model,) = usage(part.store)["models"]
    assert (model["versions"], model["blobs"]) == (1, 6)
    pull()
    hold(part.store, INT8)
    assert len(owner.gc(part)[1].freed) == 3
    assert paths_there(part) == PART
    part.check()
    assert pull().blobs == 3


def test_a_lost_blob_is_damage_and_is_repaired(whole, part):
    lost = next(file for file in whole.get(ONE).manifest.all_files() if file.path == SIDECAR)
    part.tree.blob(str(lost.digest)).unlink()
    assert [damage.kind for damage in verify(part.store).damages] == ["missing"]
    repaired = owner.repair(part, source=whole.place)
    assert len(repaired.repaired) == 1 and not repaired.damages
    assert paths_there(part) == PART


def test_a_state_line_that_lost_what_is_held_is_repaired(part):
    good = edit_index(part, f'"held":["{INT8}"],', "")
    assert [damage.kind for damage in verify(part.store).damages] == ["state"]
    assert not owner.repair(part).damages
    assert part.tree.index(NAME).read_bytes() == good


def test_a_verbatim_mirror_follows(part, pull):
    copied = memory.remote(part.id, mirror=True)
    steps: list[tuple[Callable[[], object], int]] = [
        (lambda: None, 6),
        (lambda: pull("onnx-android", precision="float32"), 2),
        (pull, 1),
    ]
    for step, blobs in steps:
        step()
        assert mirror(part.store, copied).blobs == blobs
        assert not verify(copied).damages
    hold(part.store, INT8)
    assert len(mirror(part.store, copied).freed.freed) == 3
    assert copied.read_index(NAME).data == part.store.read_index(NAME).data  # type: ignore[union-attr]
    assert not verify(copied).damages


def test_a_copy_of_one_registry_takes_no_part_of_a_version(whole, tmp_path):
    (tmp_path / "copy").mkdir()
    identity = (whole.store.root / "registry.json").read_bytes()
    (tmp_path / "copy" / "registry.json").write_bytes(identity)
    with pytest.raises(ConflictError, match="two copies of one registry"):
        Home(tmp_path / "copy").pull(ONE, whole.place, selection=Selection(("onnx-int8",)))


@pytest.mark.parametrize("way", ["push", "add", "mirror"])
def test_a_whole_version_makes_it_whole(whole, part, tmp_path, way):
    if way == "push":
        done = whole.push(ONE, part.place)
        assert (done.events, done.blobs) == (1, 3)
        assert whole.push(ONE, part.place).events == 0
    elif way == "add":
        assert not part.add(draft(tmp_path / "again"), "1.0.0").new
    else:
        mirror(whole.store, part.store)
    assert held(part) is None
    part.check()


def test_a_mirror_with_an_id_of_its_own_lists_it(part):
    there = memory.remote()
    (skipped,) = mirror(part.store, there).skipped
    assert (skipped.name, skipped.tag, skipped.error) == (NAME, "1.0.0", None)
    assert "only onnx-int8" in skipped.reason
    assert list(there.names()) == []


def test_pulling_from_where_only_a_part_is(part, tmp_path):
    third = Home(tmp_path / "third")
    for selection in (Selection(("onnx-android",)), Selection()):
        with pytest.raises(NotFoundError, match=r"only onnx-int8 \(int8\) of acme/pii:1.0.0 is held"):
            third.pull(ONE, part.place, selection=selection)
    assert third.names() == []
    third.pull(ONE, part.place, selection=Selection(("onnx-int8",)))
    assert (held(third), third.kinds()) == ((INT8,), ["publish", "hold"])
    hold_line = third.log(NAME)[-1]
    assert hold_line.via is None and hold_line.event.id != part.log(NAME)[-1].event.id
    third.check()


class Meanwhile:
    """A source beside which something else happens as soon as the first blob is read."""

    def __init__(self, source: RegistryStore, act: Callable[[], object]) -> None:
        self._source, self._acts = source, [act]

    def __getattr__(self, name: str) -> object:
        return getattr(self._source, name)

    def open_blob(self, digest: Digest, start: int = 0) -> object:
        if digest != load(self._source, NAME).versions[V1].manifest:
            with suppress(IndexError):
                self._acts.pop()()
        return self._source.open_blob(digest, start)


@pytest.mark.parametrize(
    ("then", "expected"), [(("onnx-android",), None), (("onnx-int8",), (INT8,)), ((), None)]
)
def test_two_pulls_at_once_add_up(then, expected, whole, other):
    def pull(source: object, *formats: str) -> TransferResult:
        wish = ExchangeRequest(NAME, [V1], Selection(formats))
        return exchange(cast(RegistryStore, source), other.store, wish)

    done = pull(Meanwhile(whole.store, lambda: pull(whole.store, *then)), "onnx-int8")
    assert held(other) == expected == done.artifacts[V1]
    assert other.kinds().count("publish") == 1
    other.check()


def test_an_artifact_that_no_version_has_cannot_be_held(whole):
    hold(whole.store, "elsewhere.onnx")
    assert [damage.kind for damage in verify(whole.store).damages] == ["manifest"]
    with pytest.raises(IntegrityError, match=r"holds elsewhere\.onnx, which is not an artifact"):
        owner.gc(whole)
    assert paths_there(whole) >= {FULL, HALF, INT8}


def test_a_source_that_lies_about_what_it_holds_is_found_out(other, pull):
    """The log says everything, its state line less: a mirror would refer to what it did not bring."""
    pull()
    edit_index(other, '{"manifest"', f'{{"held":["{INT8}"],"manifest"')
    assert held(other) == (INT8,)
    copied = memory.remote(other.id, mirror=True)
    (skipped,) = mirror(other.store, copied).skipped
    assert isinstance(skipped.error, IntegrityError)
    assert list(copied.names()) == []
