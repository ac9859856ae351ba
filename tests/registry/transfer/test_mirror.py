"""Mirrors: verbatim copies, and registries made of whole other ones; pushes of many models, and channels that travel."""

import itertools
import re
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from support.registries import growing, memory, owner
from support.registries.home import Home
from support.sampling import sampled
from support.servers import static
from support.servers.faults import Plan

from onnxreg.registry import Registry
from onnxreg.registry.log.commit import blob_keys, collect
from onnxreg.registry.log.contents import references
from onnxreg.registry.log.decisions import Decisions
from onnxreg.registry.log.log import load
from onnxreg.registry.maintain import verify
from onnxreg.registry.store import requests
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import RegistryStore, UnlistedError, blob_path
from onnxreg.registry.system import trust_file
from onnxreg.registry.transfer.exchange import ExchangeRequest, SkippedVersion, exchange, worst_error
from onnxreg.registry.transfer.mirror import mirror, open_both
from onnxreg.registry.trust.known_heads import CheckedReader, KnownHeads
from onnxreg.schema.core import errors
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import ConflictError, HostError, InputError, IntegrityError, NotFoundError
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.core.units import Progress
from onnxreg.schema.gates.policy import Policy
from onnxreg.schema.log.events import Tag


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Home:
    home = Home(tmp_path_factory.mktemp("filled") / "home")
    for seed in "abc":
        home.make(seed=seed)
    home.make(name="small", seed="s")
    home.tag("acme/pii:0.1.1", "stable")
    home.yank("acme/pii:0.1.0", "bad")
    return home


@pytest.fixture
def filled(template, tmp_path) -> Home:
    return template.copied(tmp_path / "home")


@pytest.fixture(params=sampled(["local", "memory"], 2))
def copied(request, registry, tmp_path) -> RegistryStore:
    """An empty mirror of `registry`."""
    if request.param == "memory":
        return memory.remote(registry.id, mirror=True)
    return DirectoryRegistry.create(tmp_path / "mirror", mirror_of=registry.id)


def indexes(remote: RegistryStore) -> dict[str, bytes]:
    return {name: index.data for name in remote.names() if (index := remote.read_index(name)) is not None}


def is_copy(copied: RegistryStore, source: RegistryStore) -> bool:
    """True if the copy has the same index files, and nothing of it is damaged."""
    return indexes(copied) == indexes(source) and not verify(copied).damages


def referred(remote: RegistryStore) -> set[Digest]:
    return {item.digest for name in remote.names() for item in references(load(remote, name))}


def reg_mirror(registry: Registry, source: object, target: object, **words: bool) -> Any:
    return mirror(*open_both(registry.remotes, str(source), str(target), **words))


def test_a_mirror_is_the_same_to_the_byte(filled, copied):
    done = mirror(filled.store, copied)
    assert (done.models, done.versions, done.events, done.skipped) == (2, 4, 6, [])
    assert done.blobs == len(blob_keys(copied)) == len(referred(filled.store))
    assert is_copy(copied, filled.store)
    again = mirror(filled.store, copied)
    assert (again.versions, again.events, again.blobs, again.size) == (0, 0, 0, 0)
    with pytest.raises(ConflictError, match="known to other"):  # who reads the mirror may have it
        owner.drop(filled, "acme/pii:0.1.2")


def test_a_mirror_follows_past_a_sealing(registry, copied):
    for number in range(70):
        registry.make(f"1.0.{number}", seed="a", size=1)
        if number in (3, 66):
            mirror(registry.store, copied)
    mirror(registry.store, copied)
    assert is_copy(copied, registry.store)


@pytest.mark.parametrize("models", [1, 30])
def test_requests_to_a_bucket(models, tmp_path):
    """They grow with the models; a second run asks for each index file once."""
    assert growing.mirror_to_bucket(models, tmp_path / "first")["requests"] <= 14 * models + 7
    assert growing.mirror_again(models, tmp_path / "again")["requests"] <= models + 2


def test_expired_and_purged_blobs_are_deleted_there_too(filled, copied):
    mirror(filled.store, copied)
    entries = filled.state("acme/pii").versions.values()
    weights = {filled.get(f"acme/pii@{entry.manifest}").manifest.artifacts[0].digest for entry in entries}
    owner.untag(filled, "acme/pii", "stable")
    owner.gc(filled, 1)
    owner.purge(filled, "acme/pii:0.1.2", "leaked")
    done = mirror(filled.store, copied)
    assert len(done.freed.freed) == 6 and done.blobs == 0
    assert copied.has(weights) == set()
    assert is_copy(copied, filled.store)
    assert {line.event.kind for line in load(copied, "acme/pii").lines()}.isdisjoint({"fence"})


def test_restored_blobs_are_sent_again(filled, other, copied):
    filled.push("small", other.place)
    filled.make("9.0.0", name="small", seed="again")
    mirror(filled.store, copied)
    owner.gc(filled, 1)
    mirror(filled.store, copied)
    filled.pull("small:0.1.0", other.place, restore=True)
    mirror(filled.store, copied)
    assert is_copy(copied, filled.store)


def test_deleting_is_made_up_for_after_an_interruption(filled, copied):
    """The log with the takedown arrived, and then the lights went out."""
    mirror(filled.store, copied)
    owner.purge(filled, "acme/pii:0.1.2", "leaked")

    exchange(filled.store, copied, ExchangeRequest("acme/pii", []))
    assert indexes(copied) == indexes(filled.store)
    assert len(mirror(filled.store, copied).freed.freed) == 2


class Interrupted(Progress):
    """Stops the work after so many blocks."""

    def __init__(self, blocks: int) -> None:
        self.left = blocks

    def file(self, path: str, size: int | None) -> Any:
        return nullcontext(self.moved)

    def moved(self, count: int) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


def test_an_interrupted_mirror_resumes(filled):
    copied = memory.remote(filled.id, mirror=True)
    with pytest.raises(KeyboardInterrupt):
        mirror(filled.store, copied, progress=Interrupted(12))
    there = blob_keys(copied).keys()
    assert there
    assert not verify(copied).damages
    done = mirror(filled.store, copied)
    assert done.blobs <= len(referred(filled.store)) - len(there)
    assert is_copy(copied, filled.store)


def test_a_fork_writes_nothing(filled, tmp_path, monkeypatch):
    shutil.copytree(filled.store.root, tmp_path / "fork")
    filled.make(name="another")
    filled.tag("small:0.1.0", "stable")
    monkeypatch.setenv("REG_STATE", str(tmp_path / "another user"))
    fork = Registry(tmp_path / "fork")
    fork.tag("small:0.1.0", "stable")
    owner.set_policy(filled, Policy())
    monkeypatch.setenv("REG_STATE", str(tmp_path / "a third user"))
    before = indexes(fork.store), [file[:2] for file in fork.store.files()]
    with pytest.raises(errors.ForkError) as error:
        mirror(filled.store, fork.store)
    assert all(place.state("small").head.short in error.value.message for place in (filled, fork))
    assert (indexes(fork.store), [file[:2] for file in fork.store.files()]) == before


def test_a_mirror_that_is_ahead_is_left_alone(filled, copied, tmp_path):
    old = Registry(shutil.copytree(filled.store.root, tmp_path / "old"))
    owner.purge(filled, "acme/pii:0.1.2", "leaked")
    mirror(filled.store, copied)
    done = mirror(old.store, copied)
    assert (done.events, done.blobs, done.skipped) == (0, 0, [])
    assert indexes(copied) == indexes(filled.store)


def test_a_mirror_is_read_only(filled, other, make_draft, tmp_path):
    store = DirectoryRegistry.create(tmp_path / "mirror", mirror_of=filled.id)
    mirror(filled.store, store)
    copied = Home(tmp_path / "mirror")
    other.make(name="mine")
    before = indexes(store)
    acts: list[Callable[[], object]] = [
        lambda: copied.add(make_draft(seed="x")),
        lambda: copied.add(make_draft(name="new")),
        lambda: copied.tag("small:0.1.0", "stable"),
        lambda: owner.untag(copied, "acme/pii", "stable"),
        lambda: copied.yank("small:0.1.0"),
        lambda: owner.pin(copied, "small:0.1.0"),
        lambda: owner.drop(copied, "small:0.1.0"),
        lambda: owner.purge(copied, "small:0.1.0", "why"),
        lambda: owner.gc(copied, 1),
        lambda: copied.pull("mine", other.place),
        lambda: other.push("mine", str(copied.store.root)),
        lambda: mirror(other.store, store),
        lambda: copied.workspace().__enter__(),
    ]
    for act in acts:
        with pytest.raises(ConflictError, match="a mirror of registry"):
            act()
    assert indexes(store) == before
    assert copied.find("acme/pii:stable").version == filled.find("acme/pii:stable").version
    assert not owner.verify(copied).damages and not owner.gc(copied)[1].freed
    other.pull("small", str(copied.store.root))
    assert other.get("small").data == filled.get("small").data


def test_a_mirror_repairs_and_is_repaired(filled, tmp_path):
    store = DirectoryRegistry.create(tmp_path / "mirror", mirror_of=filled.id)
    mirror(filled.store, store)
    copied = Home(tmp_path / "mirror")
    for one, other in ((filled, copied), (copied, filled)):
        (one.store.root / "index/small.jsonl").write_bytes(b"rotten")
        (one.store.root / blob_path(one.get("acme/pii").manifest.artifacts[0].digest)).unlink()
        assert not owner.repair(one, source=other.place).damages
    assert indexes(store) == indexes(filled.store)


def test_a_stalled_mirroring_is_not_fenced(filled):
    copied = memory.remote(filled.id, mirror=True)
    mirror(filled.store, copied)
    copied.add_note("intents", "0123456789abcdef-0123456789abcdef", b'{"name":"small"}')
    before = indexes(copied)
    with pytest.raises(ConflictError):
        collect(copied, patience=0)
    assert indexes(copied) == before


def test_a_registry_of_its_own_gets_every_version(filled, monkeypatch):
    other = memory.remote()
    done = mirror(filled.store, other)
    assert (done.models, done.versions, done.events, done.skipped) == (2, 4, 5, [])
    ledger = load(other, "acme/pii")
    assert sorted(ledger.versions) == sorted(filled.state("acme/pii").versions)
    assert ledger.channels == {} and any(entry.yanked for entry in ledger.versions.values())
    assert not verify(other).damages
    monkeypatch.setattr(other.store, "has", None)
    assert mirror(filled.store, other).events == 0, "no blob is looked for of what is there by its log"


def test_channels_travel_when_asked(filled, other):
    assert mirror(filled.store, other.store, channels=True, actor="ada").events == 6
    with pytest.raises(ConflictError, match="known to other registries"):
        owner.drop(filled, "small:0.1.0")
    assert other.find("acme/pii:stable").version == filled.find("acme/pii:stable").version
    assert mirror(filled.store, other.store, channels=True).events == 0
    filled.tag("acme/pii:0.1.2", "stable")
    other.tag("acme/pii:0.1.2", "ours")
    assert mirror(filled.store, other.store).events == 0
    assert mirror(filled.store, other.store, channels=True).events == 1
    lines = other.log("acme/pii")
    assert lines[-1].via is None and lines[-3].event.actor == "ada"
    assert set(other.state("acme/pii").channels) == {"stable", "ours"}


def test_refused_versions_are_listed_and_the_rest_is_sent(filled, other):
    """A conflict is an error; a takedown there, and what expired here, is none."""
    other.make("0.1.1", seed="z")
    other.make("0.3.0", seed="d")
    owner.purge(other, "acme/pii:0.3.0", "leaked")
    for version, seed in {"0.2.0": "y", "0.3.0": "d", "0.4.0": "e"}.items():
        filled.make(version, seed=seed)
    owner.gc(filled, 2)
    skipped = {item.tag: item for item in mirror(filled.store, other.store).skipped}
    assert skipped.keys() == {"0.1.0", "0.1.1", "0.1.2", "0.2.0", "0.3.0"}
    assert [tag for tag, item in skipped.items() if item.error] == ["0.1.1"]
    assert isinstance(skipped["0.1.1"].error, ConflictError) and "is expired" in skipped["0.2.0"].reason
    assert str(max(load(other.store, "acme/pii").versions)) == "0.4.0"
    assert other.names() == ["acme/pii", "small"]
    other.check()


def test_a_damaged_model_does_not_keep_the_others_back(filled, copied):
    (filled.store.root / blob_path(filled.get("small").manifest.artifacts[0].digest)).unlink()
    done = mirror(filled.store, copied)
    (left,) = done.skipped
    assert (left.name, left.tag) == ("small", None) and isinstance(left.error, NotFoundError)
    assert list(copied.names()) == ["acme/pii"]
    assert not verify(copied).damages


def test_a_source_without_the_policies_that_it_must_have_is_refused(filled, copied):
    trust_file().parent.mkdir(parents=True, exist_ok=True)
    trust_file().write_text('[[require]]\nmodels = [".policy"]\nlines = true\n')
    with pytest.raises(errors.IntegrityError, match="must have"):
        mirror(filled.store, copied)
    assert list(copied.names()) == []


@pytest.mark.parametrize("lost", ["the last lines", "the model"])
@pytest.mark.parametrize("exactly", [True, False])
def test_a_source_that_went_back_is_refused(filled, other, copied, lost, exactly):
    target = copied if exactly else other.store
    index = filled.tree.index("small")
    before = index.read_bytes()
    filled.tag("small:0.1.0", "stable")
    if lost == "the model":
        index.unlink()
        with pytest.raises(IntegrityError, match="went back in time"):
            mirror(filled.store, target)
        assert list(target.names()) == []
    else:
        index.write_bytes(before)
        (skipped,) = mirror(filled.store, target).skipped
        assert (skipped.name, skipped.tag, type(skipped.error)) == ("small", None, IntegrityError)
        assert list(target.names()) == ["acme/pii"]


def test_a_mirror_that_loses_what_was_written_is_noticed(filled, tmp_path):
    store = DirectoryRegistry.create(tmp_path / "mirror", mirror_of=filled.id)
    mirror(filled.store, store)
    (store.root / "index" / "small.jsonl").unlink()
    with pytest.raises(IntegrityError, match="went back in time"):
        CheckedReader(store, KnownHeads()).read_index("small")


def test_opening_both(filled, other, tmp_path):
    source, known = filled.place, other.remotes
    _, made = open_both(known, source, str(tmp_path / "made"))
    assert made.is_mirror and made.registry_id == filled.id
    _, own = open_both(known, source, str(tmp_path / "own"), new_id=True)
    assert not own.is_mirror and own.registry_id != filled.id
    assert not open_both(known, source, other.place)[1].is_mirror
    with pytest.raises(InputError, match="has the id of"):
        open_both(known, source, str(tmp_path / "made"), new_id=True)
    with pytest.raises(InputError, match="the same registry"):
        open_both(known, source, source)
    with pytest.raises(NotFoundError):
        open_both(known, str(tmp_path / "nowhere"), str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()
    shutil.rmtree(tmp_path / "made")
    with pytest.raises(NotFoundError):
        open_both(other.remotes, source, str(tmp_path / "made"))


def test_nothing_is_made_for_a_source_that_cannot_be_listed(filled, tmp_path):
    with static.serve(filled.store.root) as url, pytest.raises(UnlistedError):
        open_both(filled.remotes, url, str(tmp_path / "made"))
    assert not (tmp_path / "made").exists()


def dies_after(part: str, good: int) -> Plan:
    """Requests for such paths are answered so many times; then the server is gone."""
    left = itertools.count()
    dead: list[str] = []

    def plan(method: str, path: str) -> str | None:
        if part in path and next(left) >= good:
            dead.append(path)
        return "reset" if dead else None

    return plan


@pytest.mark.parametrize(
    ("part", "good"),
    [
        ("/index/", 0),
        ("/blobs/", 1),
        *(pytest.param("/blobs/", good, marks=pytest.mark.more) for good in (0, 8)),
    ],
)
def test_a_source_that_dies_leaves_a_copy_that_says_so_and_is_finished(
    filled, other, bucket_url, s3_proxy, tmp_path, monkeypatch, part, good
):
    source, target = other.remotes.open(bucket_url, create=True), str(tmp_path / "copy")
    mirror(filled.store, source)
    places = open_both(other.remotes, bucket_url, target)
    monkeypatch.setattr(requests, "MAX_TRIES", 2)
    s3_proxy.plan = dies_after(part, good)
    with pytest.raises(errors.RemoteError) as failed:
        mirror(*places)
    assert f"{target} has only what arrived: run `reg mirror` again" in failed.value.hint
    half = Registry(Path(target))
    assert not owner.verify(half).damages
    missing = set(filled.names()) - set(half.names())
    assert missing and set(half.names()) < set(filled.names())
    incomplete = f"{target}, a copy of registry .* may be incomplete"
    for name in missing:
        with pytest.raises(NotFoundError, match=incomplete) as absent:
            half.find(name)
        assert "goes on where it was cut off" in absent.value.hint
    s3_proxy.heal()
    done = reg_mirror(other, bucket_url, target)
    assert done.models == 2 and not done.skipped
    assert is_copy(half.store, source)


@pytest.fixture
def three(filled) -> Home:
    """With a third model."""
    filled.make(name="acme/ner", seed="n")
    return filled


def versions(place: Registry, name: str) -> list[str]:
    return sorted(map(str, load(place.store, name).versions))


def push_many(registry: Registry, other: Registry, glob: str = "*", **words: Any) -> list[Any]:
    return registry.push_many(glob, other.place, **words)


def test_a_glob_is_the_newest_release_of_each_model(three, other):
    sent = push_many(three, other, "acme/*")
    assert [(model.name, list(map(str, model.versions)), model.new) for model in sent] == [
        ("acme/ner", ["0.1.0"], 1),
        ("acme/pii", ["0.1.2"], 1),
    ]
    assert other.names() == ["acme/ner", "acme/pii"]
    assert versions(other, "acme/pii") == ["0.1.2"]
    other.check()


def test_every_version_travels_yanked_ones_with_their_yanks(three, other):
    sent = push_many(three, other, every=True)
    assert [model.has_copied for model in sent] == [True] * 3
    assert versions(other, "acme/pii") == versions(three, "acme/pii")
    assert load(other.store, "acme/pii").versions[Version.parse("0.1.0")].yanked
    assert other.state("acme/pii").channels == {}
    again = push_many(three, other, every=True)
    assert [(model.has_copied, model.skipped) for model in again] == [(False, [])] * 3
    with pytest.raises(ConflictError, match="known to other registries"):
        owner.drop(three, "small:0.1.0")


def test_a_push_lists_what_is_refused_and_sends_the_rest(three, other):
    other.make("0.1.2", seed="z")
    (three.store.root / blob_path(three.get("acme/ner").manifest.artifacts[0].digest)).unlink()
    owner.untag(three, "acme/pii", "stable")
    owner.gc(three, 1)
    sent = {model.name: model for model in push_many(three, other, every=True)}
    reasons = {item.tag: item for item in sent["acme/pii"].skipped}
    assert isinstance(reasons["0.1.2"].error, ConflictError)
    assert "is expired" in reasons["0.1.1"].reason and reasons["0.1.1"].error is None
    (lost,) = sent["acme/ner"].skipped
    assert (lost.tag, type(lost.error).__mro__[1]) == (None, NotFoundError)
    assert (sent["acme/ner"].has_copied, sent["small"].has_copied) == (False, True)
    assert other.names() == ["acme/pii", "small"]
    other.check()


def test_a_model_without_a_release_is_listed_and_a_glob_without_a_model_refused(three, other):
    three.yank("small:0.1.0")
    (sent,) = push_many(three, other, "smal?")
    (skipped,) = sent.skipped
    assert not sent.has_copied and skipped.error is None
    assert "each version is yanked or a pre-release" in skipped.reason
    for glob, near in (("acm/*", "acme/ner"), ("smalk*", "small")):
        with pytest.raises(NotFoundError, match="no model matches") as caught:
            push_many(three, other, glob)
        assert near in caught.value.hint


def test_a_place_in_the_way_ends_the_work(three, tmp_path, monkeypatch):
    asked = []

    def broken(*_: object, **__: object) -> None:
        asked.append(1)
        raise HostError("the disk is full")

    monkeypatch.setattr("onnxreg.registry.transfer.exchange.exchange", broken)
    with pytest.raises(HostError):
        three.push_many(to=str(tmp_path / "broken"), every=True)
    assert len(asked) == 1


def test_the_worst_error_of_a_push():
    errors = [NotFoundError("a"), None, ConflictError("b"), IntegrityError("c"), InputError("d")]
    skipped = [SkippedVersion("n", None, "", error) for error in errors]
    assert [*map(worst_error, (skipped, skipped[:3], skipped[1:2]))] == [errors[3], errors[2], None]


def test_a_channel_travels_with_the_version_it_holds(three, other):
    done = three.push("acme/pii:0.1.2", other.place, channels=["stable"])
    assert list(map(str, done.versions)) == ["0.1.2", "0.1.1"]
    assert [(tag.tag, str(tag.version)) for tag in done.channels] == [("stable", "0.1.1")]
    assert done.events == 3
    last = other.log("acme/pii")[-1]
    assert isinstance(last.event, Tag) and last.via is None
    again = three.push("acme/pii:0.1.2", other.place, channels=["stable"])
    assert (again.events, again.blobs, again.channels) == (0, 0, ())
    three.tag("acme/pii:0.1.2", "stable")
    moved = three.push("acme/pii:0.1.2", other.place, channels=["stable"])
    assert (moved.events, moved.blobs) == (1, 0)
    assert other.find("acme/pii:stable").version == Version.parse("0.1.2")


def test_a_pull_takes_a_channel_along(three, other):
    done = other.pull("acme/pii", three.place, channels=["stable"])
    assert str(done.versions[0]) == "0.1.2"
    assert other.find("acme/pii:stable").version == Version.parse("0.1.1")
    assert other.log("acme/pii")[-1].via is None
    other.check()


@pytest.mark.parametrize(("tag", "error"), [("beta", NotFoundError), ("1.0.0", InputError)])
def test_a_channel_that_is_none_sends_nothing(three, other, tag, error):
    with pytest.raises(error):
        three.push("acme/pii", other.place, channels=[tag])
    with pytest.raises(error):
        push_many(three, other, channels=[tag])
    assert other.names() == []


def test_models_without_the_channel_go_without_it(three, other):
    sent = push_many(three, other, channels=["stable"])
    assert [model.skipped for model in sent] == [[]] * 3
    assert versions(other, "acme/pii") == ["0.1.1", "0.1.2"]
    assert other.state("acme/pii").channels.keys() == {"stable"}
    assert other.state("small").channels == {}


def test_a_channel_stays_where_its_version_does_not_travel(three, other):
    other.make("0.1.1", seed="z")
    other.tag("acme/pii:0.1.1", "stable")
    (sent,) = push_many(three, other, "acme/pii", every=True, channels=["stable"])
    assert {item.tag for item in sent.skipped} == {"0.1.1", "stable"}
    assert all(isinstance(item.error, ConflictError) for item in sent.skipped)
    assert versions(other, "acme/pii") == ["0.1.0", "0.1.1", "0.1.2"]
    assert len([line for line in other.log("acme/pii") if isinstance(line.event, Tag)]) == 1


def test_no_channel_moves_to_a_yanked_version(three, other):
    """The version travels with its yank, and a channel that has it already stays."""
    three.push("acme/pii:0.1.1", other.place, channels=["stable"])
    three.tag("acme/pii:0.1.2", "stable")
    three.yank("acme/pii:0.1.2", "bad")
    for act in (
        lambda: three.push("acme/pii:0.1.1", other.place, channels=["stable"]),
        lambda: other.pull("acme/pii:0.1.1", three.place, channels=["stable"]),
    ):
        with pytest.raises(ConflictError, match=f"is yanked in {re.escape(other.store.url)}: ") as caught:
            act()  # it says where: here it may not be yanked
        assert caught.value.hint.endswith(f"reg yank acme/pii:0.1.2 --undo --remote {other.store.url}")
    copies: list[Callable[[], Any]] = [
        lambda: push_many(three, other, "acme/pii", every=True, channels=["stable"])[0],
        lambda: mirror(three.store, other.store, channels=True),
    ]
    for copy in copies:
        (skipped,) = copy().skipped
        assert skipped.tag == "stable" and isinstance(skipped.error, ConflictError)
    ledger = load(other.store, "acme/pii")
    assert ledger.versions[Version.parse("0.1.2")].yanked
    assert str(ledger.channels["stable"].version) == "0.1.1"
    three.yank("acme/pii:0.1.2", undo=True)
    assert [copy().skipped for copy in copies] == [[], []]
    three.yank("acme/pii:0.1.2", "bad")
    assert [copy().skipped for copy in copies] == [[], []]


def swaps_of(remote: Any, monkeypatch: pytest.MonkeyPatch, before: Callable[[], object]) -> list[str]:
    """The index files that are swapped from now on; `before` happens ahead of the first."""
    swapped: list[str] = []
    swap = remote.store.swap

    def watched(key: str, data: bytes, expected: str | None) -> bool:
        if key.startswith("index/"):
            swapped.append(key)
            if len(swapped) == 1:
                before()
        return bool(swap(key, data, expected))

    monkeypatch.setattr(remote.store, "swap", watched)
    return swapped


def test_version_and_channel_become_visible_at_once(three, monkeypatch):
    remote = memory.remote()
    swapped = swaps_of(remote, monkeypatch, lambda: None)
    exchange(three.store, remote, ExchangeRequest("acme/pii", [Version.parse("0.1.1")], channels=["stable"]))
    assert len(swapped) == 1
    assert load(remote, "acme/pii").channels.keys() == {"stable"}


@pytest.mark.parametrize("theirs", ["0.1.2", "0.1.1"])
def test_a_channel_that_somebody_moves_meanwhile(three, monkeypatch, theirs):
    remote = memory.remote()
    every = [Version.parse(version) for version in ("0.1.1", "0.1.2")]
    exchange(three.store, remote, ExchangeRequest("acme/pii", every))
    somebody = Decisions(remote, "somebody")
    swaps_of(remote, monkeypatch, lambda: somebody.tag(Ref("acme/pii", theirs), "stable"))

    def publish() -> None:
        exchange(three.store, remote, ExchangeRequest("acme/pii", every, channels=["stable"]))

    if theirs == "0.1.1":
        publish()
    else:
        with pytest.raises(ConflictError, match=r"holds 0\.1\.2 by now"):
            publish()
    ledger = load(remote, "acme/pii")
    assert str(ledger.channels["stable"].version) == theirs
    assert len([line for line in ledger.lines() if isinstance(line.event, Tag)]) == 1
