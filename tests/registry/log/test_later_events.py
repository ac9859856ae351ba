"""Events of kinds that a later build added, and its keys of the state line: kept, copied, counted, and never understood."""

import json
import shutil
from collections.abc import Callable, Collection
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from support.registries import owner
from support.trust.tamper import Tree

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.log.commit import commit
from onnxreg.registry.log.log import Log
from onnxreg.registry.maintain.space import usage
from onnxreg.registry.maintain.verification import verify
from onnxreg.registry.store.archive_reader import open_archive
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.layout import blob_path
from onnxreg.registry.transfer.archive import choose, create_archive
from onnxreg.registry.transfer.mirror import mirror
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import HostError, IntegrityError
from onnxreg.schema.log.events import UnknownEvent
from onnxreg.schema.log.state import SEGMENT_LINES
from onnxreg.schema.manifest.draft import Draft

MakeDraft = Callable[..., Draft]
NAME = "acme/pii"
BLOB = b"what a later build attaches to a model"
LISTED = {"digest": str(Digest.of(BLOB)), "size": len(BLOB)}
LATER_KEY = {"note": ["as it was", 1, {"deep": None}]}


def later(**more: Any) -> dict[str, Any]:
    """The JSON of an event as a later build writes it."""
    about = {"name": NAME, "time": "2027-01-01T00:00:00Z", "nonce": "ab" * 16}
    return {
        "kind": "deprecate",
        **about,
        "optional": True,
        "blobs": [LISTED],
        "since": {"any": "key"},
        **more,
    }


def append(registry: Registry, value: dict[str, Any], *blobs: bytes) -> None:
    """Write an event as a later build does."""

    def change(ledger: Log) -> Collection[Digest]:
        ledger.append(UnknownEvent.keep(value))
        return [Digest.of(blob) for blob in blobs]

    with registry.store.push() as push:
        for blob in blobs:
            push.put(BytesIO(blob))
        commit(registry.store, push, NAME, change)


@pytest.fixture
def extended(registry: Registry, make_draft: MakeDraft) -> Registry:
    """A model with an optional event of a later build in its log."""
    registry.add(make_draft(), "1.0.0")
    append(registry, later(), BLOB)
    registry.add(make_draft(seed="b"), "1.1.0")
    return registry


def test_an_optional_event_is_kept_and_changes_no_answer(
    extended: Registry, other: Registry, make_draft: MakeDraft
) -> None:
    assert [str(each.event.kind) for each in extended.log(NAME)] == ["publish", "deprecate", "publish"]
    assert extended.log(NAME)[1].event.to_json() == later()
    assert str(extended.get(NAME).version) == "1.1.0"
    assert not verify(extended.store).damages
    extended.yank(f"{NAME}:1.1.0", "bad")
    assert not verify(extended.store).damages


@pytest.mark.parametrize("is_sealed", [False, True], ids=["tail", "sealed"])
def test_its_blobs_are_referenced(extended: Registry, is_sealed: bool) -> None:
    for number in range(SEGMENT_LINES if is_sealed else 0):
        extended.tag(f"{NAME}:1.{number % 2}.0", "stable")
    with_blob = usage(extended.store)["models"][0]["bytes"]
    owner.gc(extended)
    assert extended.store.has([Digest.of(BLOB)])
    assert not verify(extended.store).unreferenced
    (extended.store.root / blob_path(Digest.of(BLOB))).unlink()
    (damage,) = verify(extended.store).damages
    assert (damage.kind, damage.name, damage.digest) == ("missing", f"{NAME} deprecate", Digest.of(BLOB))
    assert usage(extended.store)["models"][0]["bytes"] == with_blob - len(BLOB)


@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "in two steps"])
def test_a_mirror_copies_line_and_blobs(
    registry: Registry, make_draft: MakeDraft, tmp_path: Path, is_late: bool
) -> None:
    registry.add(make_draft(), "1.0.0")
    copy = DirectoryRegistry.create(tmp_path / "mirror", mirror_of=registry.id)
    if is_late:
        mirror(registry.store, copy)
    append(registry, later(), BLOB)
    report = mirror(registry.store, copy)
    assert not report.skipped
    assert copy.has([Digest.of(BLOB)])
    assert Tree(copy.root).index(NAME).read_bytes() == Tree(registry.store.root).index(NAME).read_bytes()
    assert not verify(copy).damages


def test_an_archive_carries_line_and_blobs(extended: Registry, tmp_path: Path) -> None:
    Tree(extended.store.root).edit_state(NAME, lambda value: value.update(LATER_KEY))
    target = tmp_path / "models.zip"
    create_archive(extended.store, choose(extended.store, [f"{NAME}:1.1.0"]), target)
    found = open_archive(target)
    assert found.has([Digest.of(BLOB)])
    assert not verify(found).damages
    index_file = found.read_index(NAME)
    assert index_file is not None and index_file.data == Tree(extended.store.root).index(NAME).read_bytes()


def test_push_and_pull_do_not_carry_it(extended: Registry, other: Registry, tmp_path: Path) -> None:
    other.pull(NAME, str(extended.store.root))
    extended.push(NAME, str(tmp_path / "shared"))
    for place in (other.store, DirectoryRegistry(tmp_path / "shared")):
        assert not place.has([Digest.of(BLOB)])
        assert b"deprecate" not in Tree(place.root).index(NAME).read_bytes()
        assert not verify(place).damages


LATER_KEYS: dict[str, Callable[[Any], object]] = {
    "state": lambda value: value.update(LATER_KEY),
    "version": lambda value: value["versions"]["1.0.0"].update(LATER_KEY),
    "channel": lambda value: value["channels"]["stable"].update(LATER_KEY),
    "summary": lambda value: value["summaries"]["1.0.0"].update(LATER_KEY),
    "artifact": lambda value: value["summaries"]["1.0.0"]["artifacts"][0].update(LATER_KEY),
}


@pytest.mark.parametrize("where", LATER_KEYS)
def test_later_keys_are_not_compared(
    registry: Registry, other: Registry, make_draft: MakeDraft, where: str
) -> None:
    registry.add(make_draft(), "1.0.0")
    registry.tag(f"{NAME}:1.0.0", "stable")
    Tree(registry.store.root).edit_state(NAME, LATER_KEYS[where])
    assert not verify(registry.store).damages
    other.pull(NAME, str(registry.store.root))
    assert not verify(other.store).damages


@pytest.mark.parametrize("where", LATER_KEYS)
def test_no_line_is_added_where_a_later_key_would_be_lost(
    registry: Registry, make_draft: MakeDraft, tmp_path: Path, where: str
) -> None:
    registry.add(make_draft(), "1.0.0")
    registry.tag(f"{NAME}:1.0.0", "stable")
    Tree(registry.store.root).edit_state(NAME, LATER_KEYS[where])
    copy = DirectoryRegistry.create(tmp_path / "copy", mirror_of=registry.id)
    for change in (lambda: registry.tag(f"{NAME}:1.0.0", "beta"), lambda: mirror(registry.store, copy)):
        with pytest.raises(HostError, match="a newer onnxreg wrote the index of acme/pii"):
            change()
    assert registry.state(NAME).channels.keys() == {"stable"}


LIES: dict[str, Callable[[Any], object]] = {
    "a known key": lambda value: value.update(refused=[LISTED["digest"]]),
    "a known key and a later one": lambda value: value.update(refused=[LISTED["digest"]], **LATER_KEY),
    "a known key of an artifact": lambda value: value["summaries"]["1.0.0"]["artifacts"][0].update(opset=1),
    "a number as true": lambda value: value["versions"]["1.0.0"].update(seq=2),
    "a summary that is a list": lambda value: value["summaries"].update({"1.0.0": []}),
}


@pytest.mark.parametrize("lie", LIES)
def test_verify_still_compares_what_it_knows(registry: Registry, make_draft: MakeDraft, lie: str) -> None:
    registry.add(make_draft(), "1.0.0")
    Tree(registry.store.root).edit_state(NAME, LIES[lie])
    assert [damage.kind for damage in verify(registry.store).damages] == ["state"]


def test_a_state_line_that_is_not_canonical_is_reported(registry: Registry, make_draft: MakeDraft) -> None:
    registry.add(make_draft(), "1.0.0")
    first, _, rest = Tree(registry.store.root).index(NAME).read_bytes().partition(b"\n")
    Tree(registry.store.root).index(NAME).write_bytes(b" " + first + b"\n" + rest)
    assert [damage.kind for damage in verify(registry.store).damages] == ["state"]


BLOBS = sorted(
    ({"digest": str(Digest.of(bytes([n]))), "size": 1} for n in range(3)), key=lambda b: b["digest"]
)
HOSTILE: dict[str, dict[str, Any]] = {
    "not optional": {"optional": False},
    "optional in words": {"optional": "yes"},
    "optional as a number": {"optional": 1},
    "optional as null": {"optional": None},
    "no list": {"blobs": None},
    "a text as list": {"blobs": LISTED["digest"]},
    "digests alone": {"blobs": [LISTED["digest"]]},
    "no digest": {"blobs": [{"digest": "../../etc/passwd", "size": 1}]},
    "another key of a blob": {"blobs": [{**LISTED, "path": "../x"}]},
    "a size below 0": {"blobs": [{**LISTED, "size": -1}]},
    "a size as text": {"blobs": [{**LISTED, "size": "9"}]},
    "true as a size": {"blobs": [{**LISTED, "size": True}]},
    "one blob twice": {"blobs": [LISTED, LISTED]},
    "another order": {"blobs": BLOBS[::-1]},
    "a kind of a terminal": {"kind": "\u001b[2J"},
    "an empty kind": {"kind": ""},
    "a long kind": {"kind": "k" * 41},
    "a list as kind": {"kind": ["deprecate"]},
    "a name of none": {"name": "../x"},
    "a time of none": {"time": "now"},
    "a reason that is a list": {"reason": []},
}


def with_line(registry: Registry, value: dict[str, Any]) -> None:
    """Put an event behind the last line, as somebody who may write the file."""
    first, *rest = Tree(registry.store.root).index(NAME).read_bytes().splitlines()
    head = json.loads(first)
    line = canonical.encode({"seq": head["seq"] + 1, "prev": head["head"], "event": value})
    changed = canonical.encode({**head, "seq": head["seq"] + 1, "head": str(Digest.of(line))})
    Tree(registry.store.root).index(NAME).write_bytes(b"\n".join([changed, *rest, line, b""]))


@pytest.mark.parametrize("case", HOSTILE)
def test_anything_else_stops_every_reader(
    registry: Registry, other: Registry, make_draft: MakeDraft, case: str
) -> None:
    registry.add(make_draft(), "1.0.0")
    with_line(registry, {**later(), **HOSTILE[case]})
    reads: list[Callable[[], object]] = [
        lambda: registry.log(NAME),
        lambda: owner.gc(registry),
        lambda: usage(registry.store),
        lambda: other.pull(NAME, str(registry.store.root)),
        lambda: registry.tag(f"{NAME}:1.0.0", "stable"),
    ]
    for read in reads:
        with pytest.raises(IntegrityError):
            read()
    assert verify(registry.store).damages


def test_a_known_kind_is_never_optional(registry: Registry, make_draft: MakeDraft) -> None:
    registry.add(make_draft(), "1.0.0")
    manifest = Tree(registry.store.root).state(NAME)["versions"]["1.0.0"]["manifest"]
    with_line(registry, later(kind="yank", version="1.0.0", manifest=manifest))
    with pytest.raises(IntegrityError, match="unknown field `blobs`"):
        registry.log(NAME)


def test_an_unknown_kind_is_named_and_the_update_too(
    registry: Registry, make_draft: MakeDraft, capfd: pytest.CaptureFixture[str]
) -> None:
    registry.add(make_draft(), "1.0.0")
    with_line(registry, {**later(), "optional": False})
    home = ["--registry", str(registry.store.root)]
    for words in (
        ["log", NAME],
        ["gc"],
        ["resolve", NAME],
        ["mirror", str(registry.store.root), f"{home[1]}-copy"],
    ):
        assert main([*home, *words]) == 4, words
        said = capfd.readouterr().err
        assert "unknown kind 'deprecate'" in said, words
        assert words[0] == "mirror" or "upgrade this one" in said, words


def test_a_sealed_unknown_kind_stops_the_collector(registry: Registry, make_draft: MakeDraft) -> None:
    """Its blobs are not known: nothing may be deleted."""
    registry.add(make_draft(), "1.0.0")
    append(registry, later(), BLOB)
    for number in range(SEGMENT_LINES):
        registry.tag(f"{NAME}:1.0.0", f"c{number}")
    root = registry.store.root
    segment = (root / blob_path(Digest.parse(Tree(root).state(NAME)["segments"][0]))).read_bytes()
    forged = segment.replace(b'"optional":true', b'"optional":1')
    assert forged != segment
    digest = Digest.of(forged)
    (root / blob_path(digest)).parent.mkdir(parents=True, exist_ok=True)
    (root / blob_path(digest)).write_bytes(forged)
    Tree(root).edit_state(NAME, lambda value: value.update(segments=[str(digest)]))
    registry.heads.reset(registry.id)
    with pytest.raises(IntegrityError, match="unknown kind 'deprecate'"):
        owner.gc(registry)


@pytest.mark.parametrize("size", [0, len(BLOB) - 1, len(BLOB) + 1, 2**50])
def test_a_size_that_lies_is_damage_and_is_not_copied(
    registry: Registry, make_draft: MakeDraft, tmp_path: Path, size: int
) -> None:
    registry.add(make_draft(), "1.0.0")
    append(registry, later(blobs=[{**LISTED, "size": size}]), BLOB)
    assert [damage.digest for damage in verify(registry.store).damages] == [Digest.of(BLOB)]
    copy = DirectoryRegistry.create(tmp_path / "mirror", mirror_of=registry.id)
    report = mirror(registry.store, copy)
    assert [isinstance(each.error, IntegrityError) for each in report.skipped] == [True]
    assert not Tree(copy.root).index(NAME).exists()
    with pytest.raises(IntegrityError):
        create_archive(registry.store, choose(registry.store, [NAME]), tmp_path / "models.zip")
    assert not (tmp_path / "models.zip").exists()


def test_a_long_list_fits_a_line_or_is_refused(registry: Registry, make_draft: MakeDraft) -> None:
    registry.add(make_draft(), "1.0.0")
    digests = sorted(str(Digest.of(number.to_bytes(4, "big"))) for number in range(2000))
    blobs = [{"digest": digest, "size": 1} for digest in digests]
    with_line(registry, later(blobs=blobs[:500]))
    assert len(verify(registry.store).damages) == 500
    shutil.rmtree(registry.store.root)
    fresh = Registry(registry.store.root)
    fresh.add(make_draft(), "1.0.0")
    with_line(fresh, later(blobs=blobs))
    with pytest.raises(IntegrityError, match="too large"):
        fresh.log(NAME)


def test_a_purged_blob_is_not_missing(registry: Registry, make_draft: MakeDraft) -> None:
    """A purge wins over an optional event that lists the same blob."""
    registry.add(make_draft(), "1.0.0")
    registry.add(make_draft(seed="b"), "1.1.0")
    artifact = Tree(registry.store.root).state(NAME)["summaries"]["1.0.0"]["artifacts"][0]
    append(registry, later(blobs=[{key: artifact[key] for key in ("digest", "size")}]))
    owner.purge(registry, f"{NAME}:1.0.0", "leaked")
    assert not registry.store.has([Digest.parse(artifact["digest"])])
    assert not verify(registry.store).damages
