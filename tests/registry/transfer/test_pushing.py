"""Pushing many models at once, and channels that travel with their versions."""

from collections.abc import Callable
from typing import Any

import pytest
from support.registries import owner

from onnxreg.registry import Registry
from onnxreg.registry.log.decisions import Decisions
from onnxreg.registry.log.log import load
from onnxreg.registry.store.layout import blob_path
from onnxreg.registry.store.protocol import memory_remote
from onnxreg.registry.transfer.exchange import ExchangeRequest, SkippedVersion, exchange, worst
from onnxreg.schema.core.errors import ConflictError, HostError, InputError, IntegrityError, NotFoundError
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.log.events import Tag


@pytest.fixture
def filled(registry, make_draft) -> Registry:
    """Two models of acme, one with three versions, a channel and a yank; a model of nobody."""
    for seed in "abc":
        registry.add(make_draft(seed=seed))
    registry.add(make_draft(name="acme/ner", seed="n"))
    registry.add(make_draft(name="small", seed="s"))
    registry.tag("acme/pii:0.1.1", "stable")
    registry.yank("acme/pii:0.1.0", "bad")
    return registry


def versions(place: Registry, name: str) -> list[str]:
    return sorted(map(str, load(place.store, name).versions))


def push_many(registry: Registry, other: Registry, glob: str = "*", **words: Any) -> list[Any]:
    return registry.push_many(glob, str(other.store.root), **words)


def test_a_glob_is_the_newest_release_of_each_model(filled, other):
    sent = push_many(filled, other, "acme/*")
    assert [(model.name, list(map(str, model.versions)), model.new) for model in sent] == [
        ("acme/ner", ["0.1.0"], 1),
        ("acme/pii", ["0.1.2"], 1),
    ]
    assert other.names() == ["acme/ner", "acme/pii"]
    assert versions(other, "acme/pii") == ["0.1.2"]
    assert not owner.verify(other).damages


def test_every_version_travels_yanked_ones_with_their_yanks(filled, other):
    sent = push_many(filled, other, every=True)
    assert [model.has_copied for model in sent] == [True] * 3
    assert versions(other, "acme/pii") == versions(filled, "acme/pii")
    assert load(other.store, "acme/pii").versions[Version.parse("0.1.0")].yanked
    assert other.state("acme/pii").channels == {}
    again = push_many(filled, other, every=True)
    assert [(model.has_copied, model.skipped) for model in again] == [(False, [])] * 3
    with pytest.raises(ConflictError, match="known to other registries"):
        owner.drop(filled, "small:0.1.0")


def test_refused_versions_are_listed_and_the_rest_is_sent(filled, other, make_draft):
    other.add(make_draft(seed="z"), "0.1.2")
    (filled.store.root / blob_path(filled.get("acme/ner").manifest.artifacts[0].digest)).unlink()
    owner.untag(filled, "acme/pii", "stable")
    owner.gc(filled, 1)
    sent = {model.name: model for model in push_many(filled, other, every=True)}
    reasons = {item.tag: item for item in sent["acme/pii"].skipped}
    assert isinstance(reasons["0.1.2"].error, ConflictError)
    assert "is expired" in reasons["0.1.1"].reason and reasons["0.1.1"].error is None
    (lost,) = sent["acme/ner"].skipped
    assert (lost.tag, type(lost.error).__mro__[1]) == (None, NotFoundError)
    assert (sent["acme/ner"].has_copied, sent["small"].has_copied) == (False, True)
    assert other.names() == ["acme/pii", "small"]
    assert not owner.verify(other).damages


def test_a_model_without_a_release_is_listed_and_a_glob_without_a_model_refused(filled, other):
    filled.yank("small:0.1.0")
    (sent,) = push_many(filled, other, "smal?")
    (skipped,) = sent.skipped
    assert not sent.has_copied and skipped.error is None
    assert "each version is yanked or a pre-release" in skipped.reason
    for glob, near in (("acm/*", "acme/ner"), ("smalk*", "small")):
        with pytest.raises(NotFoundError, match="no model matches") as caught:
            push_many(filled, other, glob)
        assert near in caught.value.hint


def test_a_place_in_the_way_ends_the_work(filled, tmp_path, monkeypatch):
    asked = []

    def broken(*_: object, **__: object) -> None:
        asked.append(1)
        raise HostError("the disk is full")

    monkeypatch.setattr("onnxreg.registry.transfer.exchange.exchange", broken)
    with pytest.raises(HostError):
        filled.push_many(to=str(tmp_path / "broken"), every=True)
    assert len(asked) == 1


def test_the_worst_error_of_a_push():
    errors = [NotFoundError("a"), None, ConflictError("b"), IntegrityError("c"), InputError("d")]
    skipped = [SkippedVersion("n", None, "", error) for error in errors]
    assert [worst(skipped), worst(skipped[:3]), worst(skipped[1:2])] == [errors[3], errors[2], None]


def test_a_channel_travels_with_the_version_it_holds(filled, other):
    done = filled.push("acme/pii:0.1.2", str(other.store.root), channels=["stable"])
    assert list(map(str, done.versions)) == ["0.1.2", "0.1.1"]
    assert [(tag.tag, str(tag.version)) for tag in done.channels] == [("stable", "0.1.1")]
    assert done.events == 3
    last = other.log("acme/pii")[-1]
    assert isinstance(last.event, Tag) and last.via is None
    again = filled.push("acme/pii:0.1.2", str(other.store.root), channels=["stable"])
    assert (again.events, again.blobs, again.channels) == (0, 0, ())
    filled.tag("acme/pii:0.1.2", "stable")
    moved = filled.push("acme/pii:0.1.2", str(other.store.root), channels=["stable"])
    assert (moved.events, moved.blobs) == (1, 0)
    assert other.find("acme/pii:stable").version == Version.parse("0.1.2")


def test_a_pull_takes_a_channel_along(filled, other):
    done = other.pull("acme/pii", str(filled.store.root), channels=["stable"])
    assert str(done.versions[0]) == "0.1.2"
    assert other.find("acme/pii:stable").version == Version.parse("0.1.1")
    assert other.log("acme/pii")[-1].via is None
    assert not owner.verify(other).damages


@pytest.mark.parametrize(("tag", "error"), [("beta", NotFoundError), ("1.0.0", InputError)])
def test_a_channel_that_is_none_sends_nothing(filled, other, tag, error):
    with pytest.raises(error):
        filled.push("acme/pii", str(other.store.root), channels=[tag])
    with pytest.raises(error):
        push_many(filled, other, channels=[tag])
    assert other.names() == []


def test_models_without_the_channel_go_without_it(filled, other):
    sent = push_many(filled, other, channels=["stable"])
    assert [model.skipped for model in sent] == [[]] * 3
    assert versions(other, "acme/pii") == ["0.1.1", "0.1.2"]
    assert other.state("acme/pii").channels.keys() == {"stable"}
    assert other.state("small").channels == {}


def test_a_channel_stays_where_its_version_does_not_travel(filled, other, make_draft):
    other.add(make_draft(seed="z"), "0.1.1")
    other.tag("acme/pii:0.1.1", "stable")
    (sent,) = push_many(filled, other, "acme/pii", every=True, channels=["stable"])
    assert {item.tag for item in sent.skipped} == {"0.1.1", "stable"}
    assert all(isinstance(item.error, ConflictError) for item in sent.skipped)
    assert versions(other, "acme/pii") == ["0.1.0", "0.1.1", "0.1.2"]
    assert len([line for line in other.log("acme/pii") if isinstance(line.event, Tag)]) == 1


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


def test_version_and_channel_become_visible_at_once(filled, monkeypatch):
    remote = memory_remote()
    swapped = swaps_of(remote, monkeypatch, lambda: None)
    exchange(filled.store, remote, ExchangeRequest("acme/pii", [Version.parse("0.1.1")], channels=["stable"]))
    assert len(swapped) == 1
    assert load(remote, "acme/pii").channels.keys() == {"stable"}


@pytest.mark.parametrize("theirs", ["0.1.2", "0.1.1"])
def test_a_channel_that_somebody_moves_meanwhile(filled, monkeypatch, theirs):
    remote = memory_remote()
    every = [Version.parse(version) for version in ("0.1.1", "0.1.2")]
    exchange(filled.store, remote, ExchangeRequest("acme/pii", every))
    somebody = Decisions(remote, "somebody")
    swaps_of(remote, monkeypatch, lambda: somebody.tag(Ref("acme/pii", theirs), "stable"))

    def publish() -> None:
        exchange(filled.store, remote, ExchangeRequest("acme/pii", every, channels=["stable"]))

    if theirs == "0.1.1":
        publish()
    else:
        with pytest.raises(ConflictError, match=r"holds 0\.1\.2 by now"):
            publish()
    ledger = load(remote, "acme/pii")
    assert str(ledger.channels["stable"].version) == theirs
    assert len([line for line in ledger.lines() if isinstance(line.event, Tag)]) == 1
