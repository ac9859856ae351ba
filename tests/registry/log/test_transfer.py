"""Push, pull and the rule for two logs."""

import pytest
from support.registries import owner
from support.registries.drafts import write_draft
from support.registries.home import Home

from onnxreg.cli.main import main
from onnxreg.registry.log.log import Log
from onnxreg.registry.store.protocol import blob_path
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import ConflictError, InputError, IntegrityError, NotFoundError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.events import Publish
from onnxreg.schema.log.state import VersionSummary


def test_push_then_pull_elsewhere(registry, other, tmp_path):
    published = registry.make()
    shared = str(tmp_path / "shared")
    first = registry.push("acme/pii", shared)
    assert (first.events, first.blobs) == (1, 6)
    second = registry.push("acme/pii", shared)
    assert (second.events, second.blobs, second.size) == (0, 0, 0)
    other.pull("acme/pii", shared)
    assert other.get("acme/pii").data == published.data
    other.check()


def test_an_empty_file_adds_nothing_to_the_size_of_a_transfer(registry, tmp_path):
    draft = write_draft(tmp_path / "draft", "acme/pii", "a", 100)
    (draft.root / "config.json").write_bytes(b"")
    registry.add(draft, "0.1.0")
    sent = registry.push("acme/pii", str(tmp_path / "shared"))
    blobs = [path for path in (tmp_path / "shared" / "blobs").rglob("*") if path.is_file()]
    assert (sent.blobs, sent.size) == (len(blobs), sum(path.stat().st_size for path in blobs))


def test_a_damaged_blob_is_refused_and_nothing_becomes_visible(registry, other):
    published = registry.make()
    path = registry.store.blob_path(published.manifest.artifacts[0].digest)
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(IntegrityError):
        other.pull("acme/pii", registry.place)
    assert other.names() == []
    assert list((other.store.root / "local" / "tmp").iterdir()) == []
    assert not (other.store.root / blob_path(Digest.of(path.read_bytes()))).exists()


def test_the_remote_of_a_push(registry, tmp_path):
    registry.make()
    with pytest.raises(InputError, match="no remote is named"):
        registry.push("acme/pii")
    with pytest.raises(NotFoundError, match="no remote orign"):
        registry.push("acme/pii", "orign")
    registry.remotes.add("backup", str(tmp_path / "backup"))
    assert registry.push("acme/pii").events == 1
    registry.remotes.add("origin", (tmp_path / "o").as_uri())
    assert registry.push("acme/pii").events == 1
    assert sorted(registry.remotes.urls) == ["backup", "origin"]
    with pytest.raises(ConflictError):
        registry.push("acme/pii", registry.place)


@pytest.mark.parametrize("url", ["memory://a/b", "memory:x", "memory:///", "MEMORY://a"])
def test_a_place_that_does_not_last_is_refused(registry, capfd, url):
    registry.make()
    home = ["--registry", registry.place]
    for words in (["push", "acme/pii", url], ["mirror", registry.place, url]):
        assert main([*home, *words]) == 2
        assert "no backend for memory:" in capfd.readouterr().err
    assert not registry.remotes.urls and url not in registry.remotes.pins


def test_a_directory_that_is_something_else_is_refused(registry, tmp_path):
    registry.make()
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"")
    with pytest.raises(InputError, match="not a registry and not empty"):
        registry.push("acme/pii", str(tmp_path / "photos"))
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["cat.jpg"]


@pytest.mark.more
def test_many_versions_travel_one_by_one_past_a_sealing(registry, other):
    for number in range(70):
        registry.make(seed=str(number))
    for number in (0, 3, 69):
        other.pull(f"acme/pii:0.1.{number}", registry.place)
    assert sorted(other.state("acme/pii").versions) == [Version(0, 1, number) for number in (0, 3, 69)]
    assert registry.find("acme/pii:0.1.0").entry.seq == 1
    registry.check()


def test_pushing_again_brings_back_what_the_destination_lost(registry, tmp_path):
    published = registry.make()
    registry.push("acme/pii", str(tmp_path / "shared"))
    shared = Home(tmp_path / "shared")
    shared.store.blob_path(published.manifest.artifacts[0].digest).unlink()
    assert owner.verify(shared).damages
    again = registry.push("acme/pii", str(tmp_path / "shared"))
    assert (again.events, again.blobs) == (0, 1)
    shared.check()


def test_a_yank_is_taken_back_by_whoever_made_it(registry, other):
    """Both yank, one takes its own back: whatever the order of copies, the other's yank holds in both."""
    registry.make("1.0.0")
    other.pull("acme/pii", registry.place)
    for place in (registry, other):
        place.yank("acme/pii:1.0.0", "broken")
    registry.yank("acme/pii:1.0.0", undo=True)
    digest = registry.get(f"acme/pii@{registry.log('acme/pii')[0].event.manifest}").digest  # type: ignore[attr-defined]
    registry.push(f"acme/pii@{digest}", other.place)
    other.push(f"acme/pii@{digest}", registry.place)
    ids = [{line.event.id for line in place.log("acme/pii")} for place in (registry, other)]
    assert ids[0] == ids[1]
    for place in (registry, other):
        with pytest.raises(NotFoundError, match="is yanked"):
            place.find("acme/pii:1.0.0")
    other.yank("acme/pii:1.0.0", undo=True)
    assert other.find("acme/pii").version == Version(1, 0, 0)


def test_a_manifest_of_another_model_is_refused(registry, other):
    evil = registry.make(name="evil/name")
    with registry.store.push() as push:
        ledger = Log(registry.id, "acme/pii", lambda digest: evil.data)
        ledger.summaries = {Version(1, 0, 0): VersionSummary(evil.digest, len(evil.data), (), ())}
        event = {"name": "acme/pii", "time": "2026-01-01T00:00:00Z", "nonce": "0" * 32}
        ledger.append(Publish(**event, version=Version(1, 0, 0), manifest=evil.digest, size=len(evil.data)))
        push.publish("acme/pii", ledger.encode(), None)
    with pytest.raises(IntegrityError, match="is the manifest of evil/name"):
        other.pull("acme/pii", registry.place)
    assert other.names() == []


def test_a_yanked_version_that_is_named_exactly_is_pushed_with_its_yank(registry, other):
    one = registry.make()
    with pytest.raises(InputError, match="does not say which version"):
        registry.yank("acme/pii")
    registry.yank(one.ref)
    registry.push(one.ref, other.place)
    assert other.kinds() == ["publish", "yank"]
