"""Known heads: longer logs, stale places, forks, rollbacks, restored backups, and homes that cannot be written."""

import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.registries import memory, owner
from support.registries.drafts import write_draft
from support.registries.home import Home
from support.servers import http
from support.trust.tamper import Tree, digest_of
from support.trust.world import LONG

from onnxreg.registry.archive import choose, create_archive, open_archive
from onnxreg.registry.log.commit import collect
from onnxreg.registry.log.decisions import Decisions
from onnxreg.registry.log.log import read_lines
from onnxreg.registry.remotes import open_url
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import (
    MemoryStore,
    ReaderWrapper,
    RegistryReader,
    RegistryStore,
    StoredObject,
)
from onnxreg.registry.transfer.exchange import ExchangeRequest, exchange
from onnxreg.registry.transfer.mirror import mirror as copy_registry
from onnxreg.registry.trust import known_heads as observing
from onnxreg.registry.trust.known_heads import CheckedReader, KnownHeads, StaleNotice
from onnxreg.schema.core.errors import ForkError, IntegrityError
from onnxreg.schema.core.ref import POLICY_LOG, Ref, Version
from onnxreg.schema.gates.policy import read_policy
from onnxreg.schema.manifest.draft import Draft

NAME = "acme/pii"
LOOSE = b'[[rule]]\nchannel = "stable"\nmax_size = {onnx = "1GB"}\n'


def look(registry: Home, tell: Callable[[StaleNotice], None] = lambda found: None) -> None:
    CheckedReader(registry.store, KnownHeads(stale=tell)).read_index(NAME)


def busy(registry: Home, events: int) -> None:
    """Somebody who knows no heads moves a channel."""
    for number in range(events):
        Decisions(registry.store).tag(Ref(NAME, f"0.1.{number % 2}"), "stable")


@pytest.fixture
def published(registry) -> Home:
    for seed in "ab":
        registry.make(seed=seed)
    return registry


EVENTS, MORE = (0, 61, 62, 63, 126, 200), (1, 64, 130)


@pytest.fixture(scope="module")
def history(tmp_path_factory) -> Callable[[int], RegistryStore]:
    """A registry in memory as it was after so many moves of a channel."""
    root, place = tmp_path_factory.mktemp("history"), memory.remote()
    registry = Home(root / "home")
    for seed, version in (("a", "0.1.0"), ("b", "0.1.1")):
        registry.add(write_draft(root / seed, NAME, seed, 100), version)
        exchange(registry.store, place, ExchangeRequest(NAME, [Version.parse(version)]))
    assert isinstance(place.store, MemoryStore)
    objects, seen = place.store.objects, {0: place.store.objects.copy()}
    for number in range(max(EVENTS) + max(MORE)):
        Decisions(place).tag(Ref(NAME, f"0.1.{number % 2}"), "stable")
        seen[number + 1] = objects.copy()

    def after(events: int) -> RegistryStore:
        objects.clear()
        objects.update(seen[events])
        return place

    return after


@pytest.mark.parametrize("events", EVENTS)
@pytest.mark.parametrize("more", MORE)
def test_a_log_that_grew_is_followed_over_any_sealing(history, events, more):
    place = history(events)
    watched = CheckedReader(place, KnownHeads())
    watched.read_index(NAME)
    history(events + more)
    watched.read_index(NAME)
    known, lines = KnownHeads().read(place.registry_id, NAME), read_lines(place, NAME)
    assert known is not None
    assert (known.seq, known.head) == (len(lines), lines[-1].digest) == (events + more + 2, lines[-1].digest)
    assert list(known.lines) == [line.digest for line in lines[-len(known.lines) :]]


def test_a_copy_that_is_behind_is_stale_and_says_for_how_long(published):
    mirror, notices = published.copied("mirror"), list[StaleNotice]()
    look(mirror)
    published.tag(NAME, "stable")
    for _ in range(2):
        look(mirror, notices.append)
    assert [(item.name, item.url, item.lines) for item in notices] == [(NAME, mirror.store.url, 1)] * 2
    assert all(item.seconds >= 0 for item in notices)


@pytest.mark.parametrize("ago", [3 * 3600 + 5, -3 * 3600 - 60])
def test_a_place_that_is_stale_for_longer_than_allowed_is_a_gate(
    published, other, own_user, monkeypatch, capfd, ago
):
    """Whichever verb asks a mirror that lacks lines which were seen elsewhere three hours ago, or in three hours."""
    place = published.copied("mirror").place
    published.tag(NAME, "stable")
    then = time.time() - ago
    os.utime(own_user / "state" / "heads" / published.id / f"{NAME}.json", (then, then))
    at = ("--remote", place)
    for words in (
        ("resolve", NAME, *at),
        ("log", NAME, *at),
        ("ls", *at),
        ("query", *at),
        ("pull", NAME, place),
    ):
        capfd.readouterr()
        assert other.reg(*words, "--max-age", "2h") == 8, words
        assert f"what is known of {NAME} is 3 h 0" in capfd.readouterr().err
        monkeypatch.setenv("REG_MAX_AGE", "2h")
        assert other.reg(*words) == 8, words
        monkeypatch.delenv("REG_MAX_AGE")
        assert other.reg(*words, "--max-age", "4h") == 0, words


def test_a_copy_too_far_behind_to_be_told_apart_is_refused(published, monkeypatch):
    monkeypatch.setattr(observing, "MAX_REMEMBERED_LINES", 4)
    mirror = published.copied("mirror")
    look(mirror)
    for events in (3, 2):
        busy(published, events)
        look(published)
        if events == 3:
            look(mirror)
    with pytest.raises(IntegrityError, match="too far back"):
        look(mirror.copied("other"))


def test_a_restored_backup_is_believed_after_a_reset(published, other, capsys):
    backup, resolve = published.copied("backup"), ("resolve", NAME, "--remote", published.place)
    published.tag(NAME, "stable")
    assert other.reg(*resolve) == 0
    put_back(published, backup)
    assert other.reg(*resolve) == 4
    capsys.readouterr()
    assert other.reg("trust", "reset", published.place, NAME) == 0
    assert "can no longer be noticed" in capsys.readouterr().out
    assert other.reg(*resolve) == 0


def test_a_remote_that_was_removed_is_made_anew_after_a_reset(published, tmp_path, capsys):
    place = str(tmp_path / "share")
    push = ("push", NAME, place)
    assert published.reg(*push) == 0
    for status, words in ((3, "for good: reg "), (4, "is meant: reg ")):
        shutil.rmtree(place)
        if status == 4:
            Home(place)
        assert published.reg(*push) == status
        said = capsys.readouterr().err
        assert status == 4 or "is gone" in said
        assert published.reg(*said.rpartition(words)[2].split()) == 0
        assert status == 4 or place in capsys.readouterr().out
        assert published.reg(*push) == 0
    capsys.readouterr()
    assert published.reg("trust", "reset", "0" * 32) == 0
    assert capsys.readouterr().out == "nothing was known of it\n"


@pytest.mark.parametrize("verb", ["push", "pull"])
def test_nothing_is_sent_to_or_fetched_into_a_log_that_went_back(published, other, verb):
    def send(version: str) -> None:
        ref = f"{NAME}:{version}"
        published.push(ref, other.place) if verb == "push" else other.pull(ref, published.place)

    send("0.1.0")
    backup = other.copied("backup")
    send("0.1.1")
    put_back(other, backup)
    with pytest.raises(IntegrityError, match="went back in time"):
        send("0.1.1")
    assert other.state(NAME).seq == 1


@pytest.mark.parametrize("verb", ["push", "mirror"])
def test_logs_that_went_back_or_forked_get_nothing_and_are_listed(published, other, verb):
    published.make(name="acme/x", seed="x")
    for ref in (f"{NAME}:0.1.0", "acme/x"):
        published.push(ref, other.place)
    backup = other.copied("backup")
    for name in (NAME, "acme/x"):
        published.decisions(name, published.remotes.open(other.place)).tag(Ref(name, "0.1.0"), "beta")
    put_back(other, backup)
    Decisions(other.store).tag(Ref("acme/x", "0.1.0"), "next")
    published.make(name="acme/x", seed="y")
    published.make(name="small")
    if verb == "push":
        skipped = [item for result in published.push_many("*", other.place) for item in result.skipped]
    else:
        skipped = copy_registry(published.store, other.store).skipped
    assert [(item.name, type(item.error)) for item in skipped] == [
        (NAME, IntegrityError),
        ("acme/x", ForkError),
    ]
    assert {name: other.state(name).seq for name in other.names()} == {NAME: 1, "acme/x": 2, "small": 1}


@pytest.mark.parametrize("lost", ["the last lines", "the model"])
def test_nothing_is_added_where_the_log_went_back(published, lost):
    published.tag(f"{NAME}:0.1.0", "stable")
    index = published.tree.index(NAME)
    before = index.read_bytes()
    published.publisher(Version(0, 2, 0)).add_again(published.get(f"{NAME}:0.1.1").digest)
    look(published)
    if lost == "the model":
        index.unlink()
    else:
        index.write_bytes(before)
    with pytest.raises(IntegrityError, match="went back in time"):
        Home(published.store.root).add(Draft(NAME, published.store.root, ()), "0.3.0")
    assert (index.read_bytes() if index.exists() else None) == (None if lost == "the model" else before)


@pytest.mark.skipif(
    os.name != "posix", reason="a file stands where the directory should be, as POSIX reports it"
)
def test_a_home_that_cannot_be_written_warns_once_and_reads_on(published, own_user, capsys):
    shutil.rmtree(own_user / "state")
    (own_user / "state").write_bytes(b"")
    warned: list[str] = []
    known = KnownHeads(warn=warned.append)
    for _ in range(3):
        CheckedReader(published.store, known).read_index(NAME)
    assert len(warned) == 1
    assert published.reg("resolve", NAME) == 0
    assert "cannot be kept" in capsys.readouterr().err


def test_what_this_user_wrote_is_known_before_it_is_read(registry, other, tmp_path):
    """A place that loses a write of this user is noticed, though nobody read in between."""
    share = Home(tmp_path / "share")
    registry.make(seed="a")
    writes: list[tuple[Home, Callable[[], object]]] = [
        (registry, lambda: registry.make(seed="b")),
        (registry, lambda: registry.tag(f"{NAME}:0.1.0", "stable")),
        (registry, lambda: owner.rollouts(registry).start(Ref.parse(f"{NAME}:0.1.1"), "stable", 50)),
        (registry, lambda: owner.rollouts(registry).finish(NAME, "stable")),
        (registry, lambda: owner.set_policy(registry, read_policy(LOOSE, "policy"))),
        (registry, lambda: owner.promote(registry, f"{NAME}:0.1.0", "stable")),
        (share, lambda: registry.push(f"{NAME}:0.1.0", share.place)),
        (share, lambda: copy_registry(registry.store, share.store)),
        (other, lambda: other.pull(NAME, share.place)),
    ]
    for place, write in writes:
        before = {path: path.read_bytes() for path in place.store.root.rglob("*.jsonl")}
        write()
        after = {path: path.read_bytes() for path in place.store.root.rglob("*.jsonl")}
        assert after != before
        for path in after:
            path.write_bytes(before[path]) if path in before else path.unlink()
        with pytest.raises(IntegrityError, match=r"went back in time|put back|is gone"):
            owner.policies(place)
            look(place)
        for path, data in after.items():
            path.write_bytes(data)


def test_a_write_is_known_though_a_collector_freed_its_checkpoint(history):
    place, heads = history(63), KnownHeads()
    written = place.read_index(NAME)
    history(127)
    assert collect(place).freed, "the checkpoint of the index file that was written"
    heads.remember(place, NAME, written)
    known = heads.read(place.registry_id, NAME)
    assert known is not None and known.seq == 129


def test_a_damaged_file_is_named_with_the_way_out(published, own_user):
    look(published)
    (path,) = (own_user / "state").rglob("*.json")
    published.tag(NAME, "stable")
    path.write_bytes(b'{"seq": 1}')
    with pytest.raises(IntegrityError) as error:
        look(published)
    assert error.value.hint == f"reg trust reset {published.id} {NAME}"
    KnownHeads().reset(published.id, NAME)
    look(published)


def test_a_reset_of_all_models_leaves_nothing_of_one_registry(published, other, own_user):
    for place in (published, other):
        place.make(name="acme/x")
    heads = own_user / "state" / "heads"
    assert {path.name for path in heads.iterdir()} == {published.id, other.id}
    assert KnownHeads().reset(published.id) == [NAME, "acme/x"]
    assert {path.name for path in heads.iterdir()} == {other.id}


def test_a_head_that_another_reset_removed_is_no_error(published, monkeypatch):
    """It was there when the heads were listed."""
    monkeypatch.setattr(KnownHeads, "names", lambda heads, registry: ["acme/x"])
    assert KnownHeads().reset(published.id, "acme/x") == ["acme/x"]


def test_readers_beside_a_writer_are_never_alarmed(published):
    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(look, published) for _ in range(60)]
        busy(published, 20)
        for reader in readers:
            reader.result()
    look(published)
    known = KnownHeads().read(published.id, NAME)
    assert known is not None and known.seq == published.state(NAME).seq == 22


def test_a_copy_that_lacks_a_policy_is_to_be_brought_up_to_date(published):
    """It is refused, but nobody is told to forget what was seen; the place itself going back is another thing."""
    owner.set_policy(published, read_policy(LOOSE.replace(b"stable", b"beta"), "policy"))
    mirror, unseen = published.copied("mirror"), published.copied("unseen")
    owner.policies(mirror)
    owner.set_policy(published, read_policy(LOOSE.replace(b"stable", b"next"), "policy"))
    for place in (mirror, unseen):
        with pytest.raises(IntegrityError, match="has policy 1 of the 2") as error:
            owner.policies(place)
        assert "brought up to date" in error.value.hint and "reset" not in error.value.hint
    shutil.copy(mirror.store.root / "policy.jsonl", published.store.root / "policy.jsonl")
    with pytest.raises(IntegrityError, match="put back") as error:
        owner.policies(published)
    assert error.value.hint.endswith(f"reg trust reset {published.id} {POLICY_LOG}")


def test_a_cache_that_is_behind_is_passed_by(published, tmp_path):
    """A web server that gives old files, unless it is asked not to."""
    backup, behind = published.copied("cached"), [False]

    def answer(handler: http.Handler) -> None:
        is_old = behind[0] and handler.headers.get("Cache-Control") != "no-cache"
        path = (backup if is_old else published).store.root / handler.path.lstrip("/")
        handler.reply(200, path.read_bytes()) if path.is_file() else handler.reply(404)

    published.tag(NAME, "stable")
    with http.serving(answer=answer) as url:
        place = CheckedReader(open_url(url), KnownHeads(tmp_path / "reader"))
        newest = place.read_index(NAME)
        behind[0] = True
        again = place.read_index(NAME, newest and newest._replace(token='"of a cache"'))
        assert newest is not None and again is not None and again.data == newest.data
        put_back(published, backup)
        with pytest.raises(IntegrityError, match=r"went back in time"):
            place.read_index(NAME)


def test_an_older_archive_in_the_place_of_a_newer_one_is_stale(published, tmp_path):
    told: list[StaleNotice] = []
    older, newer = tmp_path / "older.onnxreg", tmp_path / "newer.onnxreg"
    for path in (older, newer):
        create_archive(published.store, choose(published.store, (), True), path)
        published.tag(f"{NAME}:0.1.{path == newer:d}", "stable")
    reader = KnownHeads(tmp_path / "reader", stale=told.append)
    CheckedReader(open_archive(newer), reader).read_index(NAME)
    older.replace(newer)
    CheckedReader(open_archive(newer), reader).read_index(NAME)
    assert [found.lines for found in told] == [1]


def put_back(place: Home, backup: Home) -> None:
    shutil.rmtree(place.store.root)
    shutil.copytree(backup.store.root, place.store.root)


class TwoFaced(ReaderWrapper):
    """Serves one index file, and from then on the true one."""

    def __init__(self, source: RegistryReader, first: StoredObject | None) -> None:
        super().__init__(source)
        self._first = first

    def read_index(self, name: str, cached: StoredObject | None = None) -> StoredObject | None:
        first, self._first = self._first, None
        return first or self.source.read_index(name)


def test_the_trust_file_judges_the_index_file_that_answers(world, own_user):
    """The place forges a channel of the sealed part, and keeps back the checkpoint that would show it."""
    own_user.mkdir(parents=True, exist_ok=True)
    (own_user / "trust").write_text(world.trust("[[require]]", f'models = ["{LONG}"]', "lines = true"))
    store, tree = DirectoryRegistry(world.tree), Tree(world.tree)
    true = store.read_index(LONG)
    assert true is not None
    channels = tree.state(LONG)["channels"]
    channels["beta"] = channels["stable"] | {"seq": 3}
    tree.edit_state(LONG, lambda state: state.update(channels=channels, checkpoint=digest_of(b"nowhere")))
    forged = store.read_index(LONG)
    tree.overwrite(tree.index(LONG), true.data)
    assert CheckedReader(TwoFaced(store, forged), KnownHeads()).read_index(LONG) == true
