"""Collection: what nothing refers to goes, everything else stays; pins, channels and policies decide what expires."""

import threading
import time
from collections.abc import Callable, Iterator
from io import BytesIO

import pytest
from support.registries import memory, owner
from support.registries.home import Home

from onnxreg.registry.log.commit import blob_keys, collect, commit, read_condemned
from onnxreg.registry.log.decisions import Decisions
from onnxreg.registry.log.log import Log, load
from onnxreg.registry.maintain import verify
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import BlobKey, RegistryStore, TreeFile
from onnxreg.registry.transfer.exchange import ExchangeRequest, exchange
from onnxreg.schema.compare.manifests import diff
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import ConflictError, InputError, IntegrityError, NotFoundError
from onnxreg.schema.core.ref import Ref, Version


@pytest.fixture
def filled(registry) -> Home:
    """acme/pii 0.1.0 to 0.1.4; each has weights of its own and shares the companions."""
    for seed in "abcde":
        registry.make(seed=seed)
    return registry


def send(source: Home, destination: RegistryStore, *names: str) -> None:
    chosen = [Version.parse(name) for name in names] or source.state("acme/pii").versions
    exchange(source.store, destination, ExchangeRequest("acme/pii", chosen))


def stray(remote: RegistryStore, data: bytes = b"nobody wants me") -> Digest:
    """A whole blob that no log refers to, as a failed push leaves it."""
    with remote.push() as push:
        push.put(BytesIO(data))
        push.flush()
    return Digest.of(data)


def test_without_a_registry_document_nothing_is_collected():
    """A bucket that is being restored has its blobs first; its id is taken on trust by whoever saw it before."""
    remote = memory.remote()
    digest = stray(remote)
    known = RegistryStore(remote.store, remote.registry_id)
    remote.store.delete(["registry.json"])
    with pytest.raises(NotFoundError, match="there is no registry"):
        collect(known)
    assert remote.has([digest])


def test_a_push_reads_the_keys_that_collectors_condemned_and_nothing_else():
    remote, key = memory.remote(), BlobKey(Digest.of(b"x"), 1)
    remote.add_note("condemned", "0" * 16, f"{key.path}\nindex/acme/pii.jsonl".encode())
    assert read_condemned(remote) == {key}


def versions(registry: Home, name: str = "acme/pii") -> list[str]:
    """Those whose files are here."""
    entries = registry.state(name).versions
    return [str(version) for version, entry in sorted(entries.items()) if entry.gone is None]


def test_versions_expire_by_number_on_record(filled):
    expired, collected = owner.gc(filled, 2)
    assert [ref.tag for ref in expired] == ["0.1.0", "0.1.1", "0.1.2"]
    assert versions(filled) == ["0.1.3", "0.1.4"]
    assert len(collected.freed) == 6, "two artifacts of each of three versions; manifests and companions stay"
    filled.check()
    kinds = filled.kinds()
    assert kinds.count("expire") == 3
    with pytest.raises(NotFoundError, match="expired"):
        filled.resolve("acme/pii:0.1.0")
    assert diff(*(filled.get(f"acme/pii:0.1.{number}").manifest for number in (0, 4))).changes, (
        "manifests stay, for the auditor"
    )


def test_a_dry_run_says_the_same_and_changes_nothing(filled):
    before = filled.log("acme/pii"), blob_keys(filled.store)
    would, survey = owner.gc(filled, 2, dry_run=True)
    assert (filled.log("acme/pii"), blob_keys(filled.store)) == before
    did, collected = owner.gc(filled, 2)
    assert (would, survey.freed) == (did, collected.freed)


def test_channels_and_pins_hold(filled):
    filled.tag("acme/pii:0.1.0", "stable")
    owner.pin(filled, "acme/pii:0.1.1", reason="in the field")
    owner.gc(filled, 1)
    assert versions(filled) == ["0.1.0", "0.1.1", "0.1.4"]
    with pytest.raises(ConflictError, match="is pinned") as caught:
        owner.drop(filled, "acme/pii:0.1.1")
    assert caught.value.hint.endswith("reg pin acme/pii:0.1.1 --undo")
    with pytest.raises(ConflictError, match="stable"):
        owner.purge(filled, "acme/pii:0.1.0", "leak")
    with pytest.raises(InputError):
        owner.gc(filled, 0)
    assert versions(filled) == ["0.1.0", "0.1.1", "0.1.4"]
    owner.pin(filled, "acme/pii:0.1.1", undo=True)
    owner.untag(filled, "acme/pii", "stable")
    owner.gc(filled, 1)
    assert versions(filled) == ["0.1.4"]


def test_a_yanked_version_takes_no_place_and_is_kept_beside(filled):
    filled.yank("acme/pii:0.1.4")
    filled.yank("acme/pii:0.1.0")
    owner.gc(filled, 1)
    assert versions(filled) == ["0.1.3", "0.1.4"]


@pytest.mark.parametrize("damage", ["the index is a link", "a manifest cannot be read"])
def test_nothing_is_deleted_where_it_is_not_known_what_is_needed(filled, tmp_path, damage):
    gone = stray(filled.store)
    if damage == "the index is a link":
        path = filled.store.root / "index" / "acme" / "pii.jsonl"
        path.rename(tmp_path / "pii.jsonl")
        path.symlink_to(tmp_path / "pii.jsonl")
    else:
        path = filled.store.root / BlobKey(filled.get("acme/pii:0.1.0").digest).path
        path.chmod(0o644)
        path.write_bytes(b"damaged")
    for dry_run in (True, False):
        with pytest.raises(IntegrityError):
            owner.gc(filled, dry_run=dry_run)
    assert filled.store.has([gone])


def test_bytes_that_were_taken_down_are_not_even_sent(filled):
    remote = memory.remote()
    send(filled, remote, "0.1.2")
    weights = filled.get("acme/pii:0.1.2").manifest.artifacts[0].digest
    Decisions(remote).purge([Ref.parse("acme/pii:0.1.2")], "leak")
    collect(remote)
    filled.make("9.0.0", seed="c")
    with pytest.raises(ConflictError, match="taken down"):
        send(filled, remote, "9.0.0")
    assert not remote.has([weights])


def test_an_expired_version_comes_back_only_when_asked(filled, other):
    filled.push("acme/pii:0.1.0", other.place)
    filled.push("acme/pii:0.1.1", other.place)
    owner.gc(other, 1)
    with pytest.raises(ConflictError, match="expired"):  # not by accident either
        other.make("0.1.0", seed="a")
    with pytest.raises(ConflictError, match="expired there"):
        filled.push("acme/pii:0.1.0", other.place)
    filled.push("acme/pii:0.1.0", other.place, restore=True)
    assert versions(other) == ["0.1.0", "0.1.1"]
    other.check()
    assert filled.push("acme/pii:0.1.0", other.place).events == 0


def test_drop_frees_the_number_of_a_version_that_never_left(filled, other):
    owner.drop(filled, "acme/pii:0.1.4")
    again = filled.make("0.1.4", seed="other")
    assert filled.get("acme/pii:0.1.4").digest == again.digest
    filled.check()
    filled.push("acme/pii:0.1.4", other.place)
    with pytest.raises(ConflictError, match="known to other registries"):
        owner.drop(filled, "acme/pii:0.1.4")
    with pytest.raises(ConflictError, match="known to other registries"):
        owner.drop(other, "acme/pii:0.1.4")
    assert other.get("acme/pii:0.1.4").digest == again.digest


@pytest.mark.more
def test_a_dropped_version_stays_dropped_behind_a_sealing(registry):
    registry.make("1.0.0", seed="a")
    for number in range(70):
        registry.make(f"0.0.{number}", seed="a")
    owner.drop(registry, "acme/pii:1.0.0")
    with pytest.raises(NotFoundError):
        registry.find("acme/pii:1.0.0")
    for number in range(70, 140):
        registry.make(f"0.0.{number}", seed="a")
    with pytest.raises(NotFoundError):
        registry.find("acme/pii:1.0.0")
    owner.gc(registry)
    registry.check()


def test_purge_takes_the_bytes_at_once_and_for_good(filled):
    bad = filled.get("acme/pii:0.1.2").manifest.artifacts[0].digest
    done = owner.purge(filled, "acme/pii:0.1.2", "weights were leaked")
    assert bad in done.blobs and BlobKey(bad) in done.collected.freed
    assert bad not in filled.store.has([bad])
    filled.check()
    with pytest.raises(NotFoundError, match="purged"):
        filled.resolve("acme/pii:0.1.2")
    with pytest.raises(ConflictError, match="taken down"):
        filled.make(seed="c")


def test_shared_bytes_stay_until_every_user_is_named(filled):
    every = [f"acme/pii:0.1.{number}" for number in range(5)]
    tokenizer = next(file for file in filled.get(every[2]).manifest.files if file.path == "tokenizer.json")
    first = owner.purge(filled, every[2], "no licence")
    assert tokenizer.digest not in first.blobs
    assert sorted(map(str, first.sharing)) == [ref for ref in every if ref != every[2]]
    done = owner.purge(filled, [ref for ref in every if ref != every[2]], "no licence")
    assert tokenizer.digest in done.blobs and not done.sharing and versions(filled) == []
    assert not filled.store.has([tokenizer.digest])
    filled.check()


def test_a_condemned_blob_goes_up_under_a_generation_key(filled):
    """A collector that never ended had condemned what a push needs."""
    remote, reader = memory.remote(), memory.remote()
    stalled = "0123456789abcdef"
    weights = filled.get("acme/pii:0.1.0").manifest.artifacts[0].digest
    with remote.push() as push, filled.store.open_blob(weights) as stream:
        push.put(stream)
    remote.add_note("condemned", stalled, BlobKey(weights).path.encode())
    send(filled, remote, "0.1.0")
    assert BlobKey(weights, 1) in blob_keys(remote)
    remote.delete([BlobKey(weights).path])
    assert remote.has([weights]) and remote.open_blob(weights).read()
    exchange(remote, reader, ExchangeRequest("acme/pii", [Version.parse("0.1.0")]))
    assert not verify(reader).damages
    assert not collect(remote).freed, "a stalled collector's entry stays, and so does what is referred to"
    assert stalled in remote.notes("condemned")


def test_a_collector_waits_for_a_running_push(filled):
    """A push that announced itself before the condemnation ends first: its blobs stay."""
    store = filled.store
    gone = stray(store, b"wanted after all")
    secured, go_on = threading.Event(), threading.Event()

    def push_slowly() -> None:
        with store.push() as push:
            publish = push.publish

            def wait(*arguments: object) -> None:
                secured.set()
                assert go_on.wait(30)
                publish(*arguments)  # type: ignore[arg-type]

            push.publish = wait  # type: ignore[method-assign, assignment]
            commit(store, push, "acme/pii", lambda log: {gone})

    pusher = threading.Thread(target=push_slowly)
    pusher.start()
    assert secured.wait(30)
    collector = threading.Thread(target=owner.gc, args=(filled,))
    collector.start()
    time.sleep(0.2)
    assert store.has([gone]) and collector.is_alive()
    go_on.set()
    pusher.join(30)
    collector.join(30)
    assert not store.has([gone]), "the push did not refer to it in the end"


def test_a_push_that_outlasts_patience_starts_over(filled):
    """On a place that cannot tell who is alive, a stalled intent is fenced; the stalled push then fails or retries."""
    remote = memory.remote()
    send(filled, remote, "0.1.0")
    remote.add_note("intents", "0123456789abcdef-0123456789abcdef", b'{"name":"acme/pii"}')
    stray(remote)
    assert collect(remote, patience=0).fenced == 1
    assert remote.notes("intents") == {}
    assert [line.event.kind for line in load(remote, "acme/pii").lines()] == ["publish", "fence"]


class Interrupted(DirectoryRegistry):
    """A registry in which another command runs once, between the reading of the logs and of the tree."""

    between: Callable[[], object] = staticmethod(lambda: None)

    def files(self) -> Iterator[TreeFile]:
        self.between()
        self.between = lambda: None
        yield from super().files()


def test_what_expires_during_a_verification_is_no_damage_and_what_is_lost_is(filled):
    store = Interrupted(filled.store.root)
    store.between = lambda: owner.gc(filled, 1)
    report = verify(store)
    assert (report.damages, report.versions) == ([], 5)
    manifest = load(filled.store, "acme/pii").versions[Version.parse("0.1.0")].manifest
    store.between = lambda: store.delete([BlobKey(manifest).path])
    assert {damage.digest for damage in verify(store).damages} == {manifest}


def test_a_change_starts_over_if_a_collector_freed_what_it_reads(filled):
    """Two commands clear one registry: the later one reads the log again, and succeeds."""
    drops = iter([lambda: (owner.drop(filled, "acme/pii:0.1.0"), owner.gc(filled))])
    tries = []

    def change(ledger: Log) -> None:
        next(drops, lambda: None)()
        tries.append([entry.manifest for entry in ledger.versions.values()])
        for manifest in tries[-1]:
            ledger.fetch(manifest)

    with filled.store.push() as push:
        commit(filled.store, push, "acme/pii", change)
    assert list(map(len, tries)) == [5, 4]
