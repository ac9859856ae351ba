"""Events of kinds that a later build added, and its keys of the state line: kept, copied, counted, and never understood."""

import json
from collections.abc import Callable, Collection
from io import BytesIO
from typing import Any

import pytest
from support.registries import owner
from support.registries.gated import refusal
from support.registries.home import NAME, Home
from support.trust.tamper import canonical_json, digest_of

from onnxreg.registry.archive import choose, create_archive, open_archive
from onnxreg.registry.log.commit import commit, usage
from onnxreg.registry.log.log import Log
from onnxreg.registry.maintain import verify
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.transfer.mirror import mirror
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import HostError, IntegrityError
from onnxreg.schema.log.events import UnknownEvent
from onnxreg.schema.log.state import SEGMENT_LINES

ONE = f"{NAME}:1.0.0"
BLOB = b"what a later build attaches to a model"
ATTACHED = Digest.of(BLOB)
LISTED = {"digest": str(ATTACHED), "size": len(BLOB)}
LATER_KEY = {"note": ["as it was", 1, {"deep": None}]}
ABOUT = {"name": NAME, "time": "2027-01-01T00:00:00Z", "nonce": "ab" * 16}
LATER = {"kind": "deprecate", **ABOUT, "optional": True, "blobs": [LISTED], "since": {"any": "key"}}
"""The JSON of an event as a later build writes it."""


def append(registry: Home, *blobs: bytes, **changes: Any) -> None:
    """Write an event as a later build does."""

    def change(ledger: Log) -> Collection[Digest]:
        ledger.append(UnknownEvent.keep(LATER | changes))
        return [Digest.of(blob) for blob in blobs]

    with registry.store.push() as push:
        for blob in blobs:
            push.put(BytesIO(blob))
        commit(registry.store, push, NAME, change)


def force(registry: Home, **changes: Any) -> None:
    """Put an event behind the last line, as somebody who may write the file."""
    first, *rest = registry.tree.index(NAME).read_bytes().splitlines()
    head = json.loads(first)
    line = canonical_json({"seq": head["seq"] + 1, "prev": head["head"], "event": LATER | changes})
    changed = canonical_json({**head, "seq": head["seq"] + 1, "head": digest_of(line)})
    registry.tree.overwrite(registry.tree.index(NAME), b"\n".join([changed, *rest, line, b""]))


def mirror_of(registry: Home) -> DirectoryRegistry:
    return DirectoryRegistry.create(registry.store.root.with_name("mirror"), mirror_of=registry.id)


@pytest.fixture
def one(registry) -> Home:
    """A model with one version in a channel."""
    registry.make("1.0.0")
    registry.tag(ONE, "stable")
    return registry


@pytest.fixture
def extended(one) -> Home:
    """With an optional event of a later build in its log, and a second version."""
    append(one, BLOB)
    one.make("1.1.0", "b")
    return one


def test_an_optional_event_is_kept_and_changes_no_answer(extended):
    assert extended.kinds() == ["publish", "tag", "deprecate", "publish"]
    assert extended.log(NAME)[2].event.to_json() == LATER
    assert str(extended.get(NAME).version) == "1.1.0"
    extended.check()
    extended.yank(f"{NAME}:1.1.0", "bad")
    extended.check()


@pytest.mark.parametrize("is_sealed", [False, True], ids=["tail", "sealed"])
def test_its_blobs_are_referenced(extended, is_sealed):
    for number in range(SEGMENT_LINES if is_sealed else 0):
        extended.tag(f"{NAME}:1.{number % 2}.0", "stable")
    with_blob = usage(extended.store)["models"][0]["bytes"]
    owner.gc(extended)
    assert extended.store.has([ATTACHED])
    assert not verify(extended.store).unreferenced
    extended.tree.blob(LISTED["digest"]).unlink()
    (damage,) = verify(extended.store).damages
    assert (damage.kind, damage.name, damage.digest) == ("missing", f"{NAME} deprecate", ATTACHED)
    assert usage(extended.store)["models"][0]["bytes"] == with_blob - len(BLOB)


def test_it_supersedes_no_statement(one):
    """A refusal's statement stays, whatever a later event claims to replace."""
    owner.attest(one, ONE, refusal(one, "1.0.0"))
    (attested,) = (line.event for line in one.log(NAME) if line.event.kind == "attest")
    append(one, supersedes=[str(attested.id)], blobs=[])
    owner.gc(one)
    assert one.store.has([attested.statement]) == {attested.statement}
    one.check()


@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "in two steps"])
def test_mirrors_and_archives_copy_line_and_blobs(one, tmp_path, is_late):
    """An archive also the keys of a later build; a push and a pull copy none of it."""
    copy = mirror_of(one)
    if is_late:
        mirror(one.store, copy)
    append(one, BLOB)
    assert not mirror(one.store, copy).skipped
    one.tree.edit_state(NAME, lambda state: state.update(LATER_KEY))
    create_archive(one.store, choose(one.store, [ONE]), tmp_path / "models.zip")
    archive = open_archive(tmp_path / "models.zip")
    assert archive.read_index(NAME).data == one.tree.index(NAME).read_bytes()  # type: ignore[union-attr]
    for found in (copy, archive):
        assert found.has([ATTACHED]) and not verify(found).damages
        assert found.read_index(NAME).data.endswith(one.tree.index(NAME).read_bytes().partition(b"\n")[2])  # type: ignore[union-attr]


def test_push_and_pull_do_not_carry_it(extended, other, tmp_path):
    other.pull(NAME, extended.place)
    extended.push(NAME, str(tmp_path / "shared"))
    for place in (other, Home(tmp_path / "shared")):
        assert not place.store.has([ATTACHED])
        assert place.kinds() == ["publish"]
        place.check()


LATER_KEYS: dict[str, Callable[[Any], object]] = {
    "state": lambda value: value.update(LATER_KEY),
    "version": lambda value: value["versions"]["1.0.0"].update(LATER_KEY),
    "channel": lambda value: value["channels"]["stable"].update(LATER_KEY),
    "summary": lambda value: value["summaries"]["1.0.0"].update(LATER_KEY),
    "artifact": lambda value: value["summaries"]["1.0.0"]["artifacts"][0].update(LATER_KEY),
}


@pytest.mark.parametrize("where", LATER_KEYS)
def test_later_keys_are_not_compared_and_never_lost(one, other, where):
    one.tree.edit_state(NAME, LATER_KEYS[where])
    one.check()
    other.pull(NAME, one.place)
    other.check()
    copy = mirror_of(one)
    for change in (lambda: one.tag(ONE, "beta"), lambda: mirror(one.store, copy)):
        with pytest.raises(HostError, match="a newer onnxreg wrote the index of acme/pii"):
            change()
    assert one.state(NAME).channels.keys() == {"stable"}


LIES: dict[str, Callable[[Any], object]] = {
    "a known key": lambda value: value.update(refused=[LISTED["digest"]]),
    "a known key and a later one": lambda value: value.update(refused=[LISTED["digest"]], **LATER_KEY),
    "a known key of an artifact": lambda value: value["summaries"]["1.0.0"]["artifacts"][0].update(opset=1),
    "a number as true": lambda value: value["versions"]["1.0.0"].update(seq=2),
    "a summary that is a list": lambda value: value["summaries"].update({"1.0.0": []}),
    "another spelling": lambda value: None,
}


@pytest.mark.parametrize("lie", LIES)
def test_verify_still_compares_what_it_knows(one, lie):
    one.tree.edit_state(NAME, LIES[lie])
    if lie == "another spelling":
        one.tree.overwrite(one.tree.index(NAME), b" " + one.tree.index(NAME).read_bytes())
    assert [damage.kind for damage in verify(one.store).damages] == ["state"]


BLOBS = sorted(
    ({"digest": digest_of(bytes([n])), "size": 1} for n in range(3)), key=lambda blob: str(blob["digest"])
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
    "a known kind": {"kind": "yank", "version": "1.0.0", "manifest": LISTED["digest"]},
    "too many blobs": {"blobs": [{"digest": f"sha256:{n:064x}", "size": 1} for n in range(2000)]},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_anything_else_stops_every_reader(one, other, case):
    force(one, **HOSTILE[case])
    reads: list[Callable[[], object]] = [
        lambda: one.log(NAME),
        lambda: owner.gc(one),
        lambda: usage(one.store),
        lambda: other.pull(NAME, one.place),
        lambda: one.tag(ONE, "stable"),
    ]
    for read in reads:
        with pytest.raises(IntegrityError):
            read()
    assert verify(one.store).damages


def test_an_unknown_kind_is_named_and_the_update_too(one, capfd):
    force(one, optional=False)
    for words in (["log", NAME], ["gc"], ["resolve", NAME], ["mirror", one.place, f"{one.place}-copy"]):
        assert one.reg(*words) == 4, words
        said = capfd.readouterr().err
        assert "unknown kind 'deprecate'" in said, words
        assert words[0] == "mirror" or "upgrade this one" in said, words


def test_a_sealed_unknown_kind_stops_the_collector(one):
    """Its blobs are not known: nothing may be deleted."""
    append(one, BLOB)
    for number in range(SEGMENT_LINES):
        one.tag(ONE, f"c{number}")
    segment = one.tree.blob(one.tree.state(NAME)["segments"][0]).read_bytes()
    forged = segment.replace(b'"optional":true', b'"optional":1')
    assert forged != segment
    planted = one.tree.put(forged)
    one.tree.edit_state(NAME, lambda value: value.update(segments=[planted]))
    one.heads.reset(one.id)
    with pytest.raises(IntegrityError, match="unknown kind 'deprecate'"):
        owner.gc(one)


@pytest.mark.parametrize("size", [0, len(BLOB) - 1, len(BLOB) + 1, 2**50])
def test_a_size_that_lies_is_damage_and_is_not_copied(one, tmp_path, size):
    append(one, BLOB, blobs=[{**LISTED, "size": size}])
    assert [damage.digest for damage in verify(one.store).damages] == [ATTACHED]
    copy = mirror_of(one)
    assert [type(each.error) for each in mirror(one.store, copy).skipped] == [IntegrityError]
    assert copy.read_index(NAME) is None
    with pytest.raises(IntegrityError):
        create_archive(one.store, choose(one.store, [NAME]), tmp_path / "models.zip")
    assert not (tmp_path / "models.zip").exists()


def test_a_list_of_hundreds_fits_a_line(one):
    force(one, blobs=HOSTILE["too many blobs"]["blobs"][:500])
    assert len(verify(one.store).damages) == 500


def test_a_purged_blob_is_not_missing(extended):
    """A purge wins over an optional event that lists the same blob."""
    artifact = extended.tree.state(NAME)["summaries"]["1.0.0"]["artifacts"][0]
    append(extended, blobs=[{key: artifact[key] for key in ("digest", "size")}])
    owner.untag(extended, NAME, "stable")
    owner.purge(extended, ONE, "leaked")
    assert not extended.store.has([Digest.parse(artifact["digest"])])
    extended.check()
