"""The Hugging Face Hub backend with the real client, against an emulator; never compared with the live Hub."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from conformance.contract import StoreContract, put
from huggingface_hub.utils import close_session
from support.registries import owner
from support.servers.hub import READER, TOKEN, Hub, running

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.log.collect import collect, condemn
from onnxreg.registry.log.commit import read_condemned
from onnxreg.registry.log.lookup import load, read_blob
from onnxreg.registry.maintain.verification import verify
from onnxreg.registry.remotes import Remotes
from onnxreg.registry.store import hub as presentation
from onnxreg.registry.store import hub_client
from onnxreg.registry.store.hub import HubRegistry, open_hub
from onnxreg.registry.store.hub_client import CommitSnapshot, parse_url
from onnxreg.registry.store.layout import BlobKey
from onnxreg.registry.store.open import open_url
from onnxreg.registry.store.protocol import IndexFile, RegistryReader, RegistryStore
from onnxreg.registry.store.requests import UnansweredError
from onnxreg.registry.transfer.mirror import mirror, open_both
from onnxreg.registry.trust.known_heads import CheckedReader
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import (
    HostError,
    InputError,
    IntegrityError,
    LostRaceError,
    NotFoundError,
    RegError,
    RemoteError,
)
from onnxreg.schema.manifest.draft import Draft

# The client hands its uploads to its HTTP library in a way that this one calls outdated.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")

MakeDraft = Callable[..., Draft]
REPO = "acme/models"
URL = f"hf://{REPO}"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """An empty Hub that this process, and those that it starts, are logged in to."""
    with running(tmp_path / "hub") as found:
        found.enter(monkeypatch, tmp_path / "hf")
        monkeypatch.setattr(hub_client, "MAX_WAIT_SECONDS", 0.02)
        yield found
        close_session()


@pytest.fixture
def remote(hub: Hub) -> HubRegistry:
    """A registry in a repository."""
    return open_hub(URL, create=True)


class TestHub(StoreContract):
    """The contract of every hubhead."""


def calls(hub: Hub, pattern: str = "") -> list[str]:
    return [line for line in hub.requests if re.search(pattern, line)]


def token(remote: HubRegistry, name: str = "m") -> str:
    found = remote.read_index(name)
    assert found is not None
    return found.token


# The place


@pytest.mark.parametrize(
    ("url", "repo", "kind", "revision"),
    [
        ("hf://acme/models", "acme/models", "model", "main"),
        ("hf://models/acme/models", "acme/models", "model", "main"),
        ("hf://datasets/acme/models/", "acme/models", "dataset", "main"),
        ("hf://acme/models@v2", "acme/models", "model", "v2"),
        ("hf://acme/models@refs/pr/1", "acme/models", "model", "refs/pr/1"),
    ],
)
def test_a_url_names_a_repository(url: str, repo: str, kind: str, revision: str) -> None:
    uri = parse_url(url)
    assert (uri.id, uri.type, uri.revision or "main") == (repo, kind, revision)
    assert parse_url(uri.to_uri()) == uri


NO_URLS = (
    "acme||acme/models/sub/folder|acme/..|ac me/models|acme/models.git|acme/models@|acme/a--b|acme/models?x=1"
)
NO_URLS += "|datasets/models|spaces/acme/models"


@pytest.mark.parametrize("url", [f"hf://{rest}" for rest in NO_URLS.split("|")])
def test_urls_without_a_repository_are_refused(url: str) -> None:
    with pytest.raises(InputError):
        parse_url(url)


def test_a_dataset_repository_holds_a_registry_too(hub: Hub) -> None:
    remote = open_hub("hf://datasets/acme/models", create=True)
    put(remote, b"x" * 1000)
    assert read_blob(remote, Digest.of(b"x" * 1000)) == b"x" * 1000
    assert f"datasets/{REPO}" in hub.repositories


# The repository


def test_the_first_commit_holds_identity_and_the_rule_for_lfs(hub: Hub, remote: HubRegistry) -> None:
    assert [commit.title for commit in hub.history(REPO)] == ["initial commit", "Create the registry"]
    attributes = hub.read(REPO, ".gitattributes").decode()
    assert attributes.endswith("blobs/** filter=lfs diff=lfs merge=lfs -text\n")
    assert attributes.startswith("*.onnx"), "what the Hub wrote there stays"
    assert json.loads(hub.read(REPO, "registry.json"))["id"] == remote.registry_id
    assert open_hub(URL, create=True).registry_id == remote.registry_id
    assert len(hub.history(REPO)) == 2


def test_two_that_make_a_registry_at_once_make_one(hub: Hub) -> None:
    with ThreadPoolExecutor(4) as pool:
        remotes = list(pool.map(lambda _: open_hub(URL, create=True), range(4)))
    assert len({open_hub(URL).registry_id for _ in remotes} | {remote.registry_id for remote in remotes}) == 1


def test_a_repository_that_holds_something_else_is_left_alone(hub: Hub) -> None:
    hub_api(hub).create_repo(REPO)
    hub.commit(REPO, {"model.safetensors": b"weights"})
    with pytest.raises(InputError, match=r"model\.safetensors"):
        open_hub(URL, create=True)
    with pytest.raises(NotFoundError, match="no registry"):
        _ = open_hub(URL).registry_id
    assert len(hub.history(REPO)) == 2


def hub_api(hub: Hub) -> "hub_client.HfApi":
    return hub_client.HfApi(endpoint=hub.endpoint)


def test_a_registry_of_a_newer_build_is_not_written(hub: Hub, remote: HubRegistry) -> None:
    identity = json.loads(hub.read(REPO, "registry.json")) | {"min_writer": 99}
    hub.commit(REPO, {"registry.json": json.dumps(identity).encode()})
    newer = open_hub(URL, known_id=remote.registry_id)
    for write in (lambda: put(newer, b"blob"), lambda: newer.swap_file("search/part", b"part", None)):
        with pytest.raises(HostError, match="newer"):
            write()
    assert open_hub(URL).registry_id == remote.registry_id
    hub.commit(REPO, {"registry.json": json.dumps(identity | {"min_reader": 99}).encode()})
    with pytest.raises(HostError, match="has layout 99"):
        _ = open_hub(URL).registry_id


def test_a_branch_is_a_registry_of_its_own(hub: Hub, remote: HubRegistry) -> None:
    repository = hub.repositories[f"models/{REPO}"]
    repository.branches["dev"] = list(repository.branches["main"][:1])
    branch = open_hub(f"{URL}@dev", create=True)
    put(branch, b"only there")
    assert list(remote.names()) == []
    assert list(branch.names()) == ["m"]
    assert branch.registry_id != remote.registry_id


def test_an_old_commit_can_be_read_and_not_written(hub: Hub, remote: HubRegistry) -> None:
    put(remote, b"first", index=b"1\n")
    old = open_hub(f"{URL}@{hub.history(REPO)[-1].id}")
    put(remote, b"second", index=b"2\n", expected=token(remote))
    found = old.read_index("m")
    assert found is not None and found.data == b"1\n"
    with pytest.raises(RemoteError, match="404"):
        put(old, b"third", index=b"3\n", expected=found.token)


# A push


def test_blobs_index_and_card_are_one_commit(hub: Hub, registry: Registry, make_draft: MakeDraft) -> None:
    registry.add(make_draft(), "1.0.0")
    registry.push("acme/pii:1.0.0", URL)
    initial, created, published = hub.history(REPO)
    new = published.files.keys() - created.files.keys()
    assert {path.partition("/")[0] for path in new} == {"blobs", "index", "README.md"}
    assert all(published.files[path].sha256 for path in new if path.startswith("blobs/"))
    assert published.files["index/acme/pii.jsonl"].sha256 is None
    assert initial.files.keys() == {".gitattributes"}


def test_a_version_comes_back_on_another_machine(
    hub: Hub, registry: Registry, other: Registry, make_draft: MakeDraft, tmp_path: Path
) -> None:
    registry.add(make_draft(size=200_000), "1.0.0")
    registry.add(make_draft(seed="b"), "1.1.0")
    for version in ("1.0.0", "1.1.0"):
        registry.push(f"acme/pii:{version}", URL)
    done = other.pull("acme/pii:1.0.0", URL)
    assert done.blobs > 0
    assert other.get("acme/pii:1.0.0").data == registry.get("acme/pii:1.0.0").data
    assert not owner.verify(other).damages
    assert not verify(open_hub(URL)).damages
    assert (other.pull("acme/pii:1.0.0", URL).blobs, registry.push("acme/pii:1.0.0", URL).blobs) == (0, 0)


def test_an_empty_blob_is_a_regular_file(hub: Hub, remote: HubRegistry) -> None:
    put(remote, b"")
    assert hub.files(REPO)[BlobKey(Digest.of(b"")).path].sha256 is None
    assert read_blob(open_hub(URL), Digest.of(b"")) == b""


def test_known_digests_are_not_computed_again(
    hub: Hub, remote: HubRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_second_pass(*_: object) -> None:
        raise AssertionError("the client hashed a file")

    monkeypatch.setattr("huggingface_hub.lfs.sha_fileobj", no_second_pass)
    put(remote, b"weights" * 1000)
    assert remote.has([Digest.of(b"weights" * 1000)])


def test_a_gitignore_of_the_repository_hides_no_blob(hub: Hub, remote: HubRegistry) -> None:
    hub.commit(REPO, {".gitignore": b"blobs\nindex\n"})
    put(remote, b"kept")
    assert read_blob(open_hub(URL), Digest.of(b"kept")) == b"kept"


def test_an_index_that_the_hub_keeps_in_lfs_is_swapped_too(
    hub: Hub, remote: HubRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("support.servers.hub.LFS_FROM", 1)
    put(remote, index=b"1\n")
    assert hub.files(REPO)["index/m.jsonl"].sha256
    first = token(remote)
    put(remote, index=b"2\n", expected=first)
    hub.before("POST .*/commit/", lambda: hub.commit(REPO, {"other": b""}))
    put(remote, index=b"3\n", expected=token(remote))
    with pytest.raises(LostRaceError):
        put(open_hub(URL), index=b"4\n", expected=first)
    assert hub.read(REPO, "index/m.jsonl") == b"3\n"


def test_only_publish_and_flush_commit(hub: Hub, remote: HubRegistry) -> None:
    with pytest.raises(ZeroDivisionError), remote.push() as push:
        push.put(BytesIO(b"never"))
        _ = 1 / 0
    assert len(hub.history(REPO)) == 2
    with remote.push() as push:
        push.put(BytesIO(b"restored"))
        push.flush()
    assert remote.has([Digest.of(b"restored")])
    assert list(remote.names()) == []


def test_an_lfs_file_under_a_wrong_name_is_replaced(hub: Hub, remote: HubRegistry) -> None:
    put(remote, b"good")
    head = hub.history(REPO)[-1]
    path = BlobKey(Digest.of(b"good")).path
    put(remote, b"evil", name="n")
    head = hub.history(REPO)[-1]
    head.files[path] = head.files[BlobKey(Digest.of(b"evil")).path]
    fresh = open_hub(URL)
    assert fresh.has([Digest.of(b"good")]) == set()
    with pytest.raises(IntegrityError):
        read_blob(fresh, Digest.of(b"good"))
    put(fresh, b"good", index=b"2\n", expected=token(fresh))
    assert read_blob(fresh, Digest.of(b"good")) == b"good"


# Races


def test_a_commit_of_others_that_does_not_matter_is_no_lost_race(hub: Hub, remote: HubRegistry) -> None:
    hub.before("POST .*/commit/", lambda: hub.commit(REPO, {"index/other.jsonl": b"1\n"}))
    put(remote, b"mine")
    assert list(remote.names()) == ["m", "other"]
    assert len(calls(hub, f"PUT /{Digest.of(b'mine').hex}")) == 1, "a blob goes up once"


def test_another_index_in_the_meantime_is_a_lost_race(hub: Hub, remote: HubRegistry) -> None:
    put(remote, index=b"1\n")
    known = token(remote)
    hub.before("POST .*/commit/", lambda: hub.commit(REPO, {"index/m.jsonl": b"2\n"}))
    with pytest.raises(LostRaceError):
        put(remote, b"mine", index=b"3\n", expected=known)
    found = remote.read_index("m")
    assert found is not None and found.data == b"2\n"
    assert hub.read(REPO, "index/m.jsonl") == b"2\n"


def test_a_blob_that_a_collector_took_meanwhile_is_a_lost_race(hub: Hub, remote: HubRegistry) -> None:
    put(remote, b"old")
    path = BlobKey(Digest.of(b"old")).path
    hub.before("POST .*/commit/", lambda: hub.commit(REPO, {path: None}))
    with remote.push() as push:
        assert push.has([Digest.of(b"old")])
        with pytest.raises(LostRaceError):
            push.publish("n", b"1\n", None)
        assert not push.has([Digest.of(b"old")])
        push.put(BytesIO(b"old"))
        push.publish("n", b"1\n", None)
    assert read_blob(remote, Digest.of(b"old")) == b"old"


def test_a_condemnation_in_the_meantime_is_a_lost_race(hub: Hub, remote: HubRegistry) -> None:
    """Collector and push, interleaved as an intent would otherwise have to prevent."""
    put(remote, b"old", b"unrelated")
    collector = open_hub(URL)
    with remote.push() as push, collector.push() as other:
        push.avoid(read_condemned(remote))
        assert push.has([Digest.of(b"old")])
        condemn(collector, other, [BlobKey(Digest.of(b"old"))])
        with pytest.raises(LostRaceError):
            push.publish("n", b"1\n", None)
        push.avoid(read_condemned(remote))
        assert push.has([Digest.of(b"old"), Digest.of(b"unrelated")]) == {Digest.of(b"unrelated")}
        push.put(BytesIO(b"old"))
        push.publish("n", b"1\n", None)
        collector.delete([BlobKey(Digest.of(b"old")).path])
        collector.remove_note("condemned", other.id)
    assert read_blob(open_hub(URL), Digest.of(b"old")) == b"old"
    assert f"{BlobKey(Digest.of(b'old')).path}.1" in hub.files(REPO)
    assert not [path for path in hub.files(REPO) if path.startswith("gc/")]


def test_collection_deletes_what_nothing_refers_to(
    hub: Hub, registry: Registry, make_draft: MakeDraft
) -> None:
    registry.add(make_draft(), "1.0.0")
    registry.push("acme/pii:1.0.0", URL)
    remote = open_hub(URL)
    put(remote, b"stray", name="x")
    hub.commit(REPO, {"index/x.jsonl": None})
    done = collect(open_hub(URL), patience=0)
    assert [key.digest for key in done.freed] == [Digest.of(b"stray")]
    assert not verify(open_hub(URL)).damages
    assert not [path for path in hub.files(REPO) if path.startswith("gc/")]
    assert collect(open_hub(URL), patience=0).freed == {}


def test_notes_are_seen_by_others_until_they_are_removed(hub: Hub, remote: HubRegistry) -> None:
    other = open_hub(URL)
    assert other.notes("condemned") == {}
    remote.add_note("condemned", "0" * 16, b"one")
    assert other.notes("condemned") == {"0" * 16: b"one"}
    remote.add_note("condemned", "1" * 16, b"\xff")
    put(remote, b"not condemned")
    remote.remove_note("condemned", "1" * 16)
    remote.remove_note("condemned", "0" * 16)
    remote.remove_note("condemned", "0" * 16)
    assert other.notes("condemned") == {}


def test_a_commit_pinned_before_another_push_is_no_going_back(
    hub: Hub, registry: Registry, make_draft: MakeDraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other writer shares this user's known heads, and pushes after the pin and before these are asked."""
    registry.add(make_draft(), "1.0.0")
    registry.push("acme/pii:1.0.0", URL)
    other = Registry(registry.store.root.parent / "other")
    registry.add(make_draft(), "2.0.0")
    other.add(make_draft(), "3.0.0")
    pinned = open_hub(URL)
    assert pinned.registry_id
    opened = Remotes.open

    def seen(place: RegistryReader) -> set[str]:
        return set(map(str, load(CheckedReader(place, registry.heads), "acme/pii").versions))

    def overtaken(*args: Any, **kwargs: Any) -> RegistryStore:
        found = opened(*args, **kwargs)
        monkeypatch.setattr(Remotes, "open", opened)
        other.push("acme/pii:3.0.0", URL)
        assert seen(open_hub(URL)) == {"1.0.0", "3.0.0"}
        return found

    monkeypatch.setattr(Remotes, "open", overtaken)
    registry.push("acme/pii:2.0.0", URL)
    assert seen(pinned) == {"1.0.0", "2.0.0", "3.0.0"}


# Faults


@pytest.mark.parametrize("status", [0, 200, 500, 503, 504])
def test_a_commit_whose_reply_is_lost_is_found(hub: Hub, remote: HubRegistry, status: int) -> None:
    hub.fail("POST .*/commit/", status=status, after=True, body=b"<html>welcome</html>")
    put(remote, b"blob", index=b"1\n")
    assert len(hub.history(REPO)) == 3
    assert token(remote) == hub_client.token_of(b"1\n")


@pytest.mark.parametrize("status", [0, 500, 503])
def test_a_commit_that_failed_is_made_again(hub: Hub, remote: HubRegistry, status: int) -> None:
    hub.fail("POST .*/commit/", status=status, times=2)
    put(remote, b"blob", index=b"1\n")
    assert len(hub.history(REPO)) == 3
    assert len(calls(hub, f"PUT /{Digest.of(b'blob').hex}")) == 1


def test_a_commit_that_never_answers_is_an_error_of_the_remote(hub: Hub, remote: HubRegistry) -> None:
    hub.fail("POST .*/commit/", status=503, times=1000)
    with pytest.raises(RemoteError, match="did not say whether"):
        put(remote, b"blob")
    assert remote.read_index("m") is None
    hub.faults.clear()
    put(remote, b"blob")
    assert len(calls(hub, f"PUT /{Digest.of(b'blob').hex}")) == 1, "finished uploads are not sent again"


def test_our_index_under_a_lost_reply_and_a_later_one_is_a_lost_race(hub: Hub, remote: HubRegistry) -> None:
    """Then the change is decided again from the log, in which our events are."""

    def later() -> None:
        assert hub.read(REPO, "index/m.jsonl") == b"1\n"
        hub.commit(REPO, {"index/m.jsonl": b"1\n2\n"})

    hub.fail("POST .*/commit/", status=503, after=True)
    hub.before(r"GET .*/resolve/main/registry\.json", later)
    with pytest.raises(LostRaceError):
        put(remote, b"blob", index=b"1\n")


@pytest.mark.parametrize("pattern", ["/resolve/", "/paths-info/", "/preupload/", "/objects/batch", "PUT /"])
def test_passing_failures_are_survived(
    hub: Hub, remote: HubRegistry, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)
    hub.fail(pattern, status=503, times=2)
    put(remote, b"blob")
    fresh = open_hub(URL)
    assert fresh.has([Digest.of(b"blob")])
    assert read_blob(fresh, Digest.of(b"blob")) == b"blob"
    assert all(fault.times == 0 for fault in hub.faults)


def test_a_hub_that_falls_silent_is_asked_again(
    hub: Hub, remote: HubRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_client, "MAX_SILENCE_SECONDS", 0.3)
    close_session()
    over = threading.Event()
    for pattern in ("/paths-info/", "POST .*/commit/"):
        hub.before(pattern, lambda: over.wait(30))
    put(remote, b"blob", index=b"1\n")
    over.set()
    assert token(remote) == hub_client.token_of(b"1\n")


def test_too_many_commits_are_an_error_in_the_end(
    hub: Hub, remote: HubRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.fail("POST .*/commit/", status=429, times=1000)
    assert "429" in failing(lambda: put(remote, b"blob"), RemoteError)
    assert len(calls(hub, "POST .*/commit/")) == 1 + hub_client.MAX_UNANSWERED_COMMITS


def test_a_missing_file_without_a_commit_in_its_answer(hub: Hub, remote: HubRegistry) -> None:
    fresh = open_hub(URL)
    hub.fail("/resolve/", status=404, headers={"X-Error-Code": "EntryNotFound"})
    assert fresh.read_index("m") is None
    assert fresh.commits.now().revision == hub.history(REPO)[-1].id


@pytest.mark.parametrize(
    ("known", "status", "headers"),
    [(None, 404, {"X-Error-Code": "EntryNotFound"}), (IndexFile(b"1\n", ""), 304, {})],
    ids=["missing", "unchanged"],
)
def test_a_commit_that_comes_while_the_newest_one_is_asked_for_is_not_overlooked(
    hub: Hub, remote: HubRegistry, known: IndexFile | None, status: int, headers: dict[str, str]
) -> None:
    """What an answer without a commit says may be older than the commit that is pinned then."""
    if known:
        put(remote, b"first", index=b"1\n")
    fresh = open_hub(URL)
    hub.fail("/resolve/", status=status, headers=headers)
    hub.before(
        "GET /api/models/acme/models/revision/main", lambda: hub.commit(REPO, {"index/m.jsonl": b"2\n"})
    )
    found = fresh.read_index("m", known)
    assert found is not None
    assert found.data == b"2\n"


@pytest.mark.parametrize("says_sizes", [True, False])
def test_a_download_goes_on_where_it_broke_off(hub: Hub, remote: HubRegistry, says_sizes: bool) -> None:
    data = os.urandom(3 * 2**20)
    put(remote, data)
    hub.says_sizes = says_sizes
    for cut in (2**20, 1000, 0):
        hub.fail(f"GET /{Digest.of(data).hex}", cut=cut)
    assert read_blob(remote, Digest.of(data)) == data
    assert len(calls(hub, f"GET /{Digest.of(data).hex}")) == 4


def test_a_flipped_byte_is_noticed(hub: Hub, remote: HubRegistry) -> None:
    put(remote, b"weights")
    (hub.root / Digest.of(b"weights").hex).write_bytes(b"wEights")
    with pytest.raises(IntegrityError):
        read_blob(remote, Digest.of(b"weights"))


# Reading


def test_files_come_from_one_commit(hub: Hub, remote: HubRegistry) -> None:
    put(remote, b"first", index=b"1\n")
    reader = open_hub(URL)
    assert reader.read_index("m") is not None
    put(remote, b"second", index=b"2\n", expected=token(remote))
    put(remote, index=b"n\n", name="n")
    found = reader.read_index("m")
    assert found is not None and found.data == b"1\n"
    assert reader.read_index("n") is None
    assert reader.has([Digest.of(b"first"), Digest.of(b"second")]) == {Digest.of(b"first")}
    with pytest.raises(NotFoundError):
        reader.open_blob(Digest.of(b"second"))
    assert list(reader.names()) == ["m", "n"], "a listing moves on"
    found = reader.read_index("m")
    assert found is not None and found.data == b"2\n"


def test_a_blob_has_an_address(hub: Hub, remote: HubRegistry) -> None:
    import urllib.request

    put(remote, b"weights" * 100)
    assert token(remote)
    url = remote.blob_url(Digest.of(b"weights" * 100))
    assert hub.history(REPO)[-1].id in url
    with urllib.request.urlopen(url) as answer:
        assert answer.read() == b"weights" * 100


def test_the_repository_s_own_files_are_none_of_the_tree(hub: Hub, remote: HubRegistry) -> None:
    put(remote, b"blob")
    assert {".gitattributes"} <= hub.files(REPO).keys()
    paths = {file.path: file.size for file in remote.files()}
    assert paths.keys() == {"registry.json", "index/m.jsonl", BlobKey(Digest.of(b"blob")).path}
    assert paths[BlobKey(Digest.of(b"blob")).path] == 4


# How many requests


def test_requests_of_a_push_and_of_one_that_changes_nothing(
    hub: Hub, registry: Registry, make_draft: MakeDraft
) -> None:
    registry.add(make_draft(), "1.0.0")
    registry.push("acme/pii:1.0.0", URL)
    registry.add(make_draft(seed="b"), "1.1.0")
    hub.requests.clear()
    registry.push("acme/pii:1.1.0", URL)
    api = [line for line in calls(hub) if not re.match("PUT|POST /verify", line)]
    assert len(api) <= 10, api
    assert len(calls(hub, "POST .*/commit/")) == 1
    hub.requests.clear()
    registry.push("acme/pii:1.1.0", URL)
    assert len(hub.requests) <= 3, hub.requests


def test_requests_of_a_pull_that_brings_nothing(
    hub: Hub, registry: Registry, other: Registry, make_draft: MakeDraft
) -> None:
    registry.add(make_draft(), "1.0.0")
    registry.push("acme/pii:1.0.0", URL)
    other.pull("acme/pii:1.0.0", URL)
    hub.requests.clear()
    other.pull("acme/pii:1.0.0", URL)
    assert len(hub.requests) == 1, hub.requests
    assert calls(hub, "GET .*main/index/acme/pii.jsonl"), hub.requests


def test_one_request_gives_index_commit_and_what_follows(hub: Hub, remote: HubRegistry) -> None:
    put(remote, b"blob", index=b"1\n")
    known = open_hub(URL, known_id=remote.registry_id)
    hub.requests.clear()
    assert known.registry_id == remote.registry_id
    assert known.read_index("m") == known.read_index("m") == remote.read_index("m")
    assert len(calls(hub, "/main/")) == 1
    hub.requests.clear()
    blobs = [Digest.of(b"%d" % number) for number in range(400)]
    assert known.has([*blobs[:100], Digest.of(b"blob")]) == {Digest.of(b"blob")}
    assert len(hub.requests) == 2
    assert known.has(blobs) == set()
    assert len(hub.requests) <= 6


# The card


def test_the_card_lists_versions_artifacts_and_certification(
    hub: Hub, registry: Registry, make_draft: MakeDraft
) -> None:
    for version, seed in (("1.0.0", "a"), ("1.1.0", "b")):
        registry.add(make_draft(seed=seed), version)
        registry.push(f"acme/pii:{version}", URL)
    registry.add(make_draft("acme/ner"), "0.1.0")
    registry.push("acme/ner", URL)
    card = hub.read(REPO, "README.md").decode()
    assert card.startswith("---\nlibrary_name: onnxreg\n")
    rows = [line for line in card.splitlines() if line.startswith("| ") and "version" not in line]
    assert [row.split(" | ")[0].strip("| ") for row in rows] == ["1.1.0"] * 2 + ["1.0.0"] * 2 + ["0.1.0"] * 2
    assert "| 1.1.0 | onnx-int8 | int8 | 189 B | unknown |" in rows
    assert f"reg pull acme/pii:1.1.0 {URL}" in card
    assert card.index("## acme/pii") < card.index("## acme/ner")


def test_edits_of_the_card_stay(hub: Hub, registry: Registry, make_draft: MakeDraft) -> None:
    registry.add(make_draft(), "1.0.0")
    registry.push("acme/pii:1.0.0", URL)
    card = hub.read(REPO, "README.md").decode()
    edited = card.replace("# ONNX models", "# Ours") + "\nAsk us.\n"
    hub.commit(REPO, {"README.md": edited.encode()})
    registry.add(make_draft(seed="b"), "1.1.0")
    registry.push("acme/pii:1.1.0", URL)
    new = hub.read(REPO, "README.md").decode()
    assert "# Ours" in new and new.endswith("\nAsk us.\n") and "| 1.1.0 |" in new
    assert new.count("## acme/pii") == 1


def test_a_card_that_is_no_text_is_left_alone(hub: Hub, registry: Registry, make_draft: MakeDraft) -> None:
    open_hub(URL, create=True)
    hub.commit(REPO, {"README.md": b"\xff\xfe"})
    registry.add(make_draft(), "1.0.0")
    registry.push("acme/pii:1.0.0", URL)
    assert hub.read(REPO, "README.md") == b"\xff\xfe"


def test_a_card_whose_metadata_the_hub_refuses_is_named(
    hub: Hub, registry: Registry, make_draft: MakeDraft
) -> None:
    open_hub(URL, create=True)
    hub.commit(REPO, {"README.md": b"---\na: [\n---\n"})
    registry.add(make_draft(), "1.0.0")
    with pytest.raises(RemoteError, match=r"README\.md"):
        registry.push("acme/pii:1.0.0", URL)
    assert list(open_hub(URL).names()) == []


def test_markup_stays_inside_its_cell() -> None:
    assert presentation.cell("a|b\n<img src=x>`[l](u)") == r"a\|b \<img src=x\>\`\[l\](u)"


# What can be wrong


def failing(call: Callable[[], object], family: type[RegError]) -> str:
    with pytest.raises(family) as found:
        call()
    text = f"{found.value.message} {found.value.hint}"
    assert TOKEN not in text and READER not in text and "Bearer" not in text
    assert REPO in text, "the place is named"
    return text


NOBODY = {"HF_TOKEN": "", "huggingface_hub.constants.HF_TOKEN_PATH": "/nowhere"}
WRONG: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no repository": ({}, {}, "does not exist"),
    "gated": ({"gated": True}, {}, "gated"),
    "private": ({"private": True}, NOBODY, "HF_TOKEN"),
    "a token of nobody": ({}, {"HF_TOKEN": "hf_expired"}, "401"),
    "no Hub": ({}, {"HF_ENDPOINT": "http://127.0.0.1:1"}, "Connection refused"),
    "offline": ({}, {"huggingface_hub.constants.HF_HUB_OFFLINE": True}, "HF_HUB_OFFLINE"),
}
"""What the repository and this machine are like, and what the error says."""


@pytest.mark.parametrize("case", WRONG)
def test_a_repository_that_cannot_be_read(
    hub: Hub, remote: HubRegistry, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    facts, settings, words = WRONG[case]
    vars(hub.repositories[f"models/{REPO}"]).update(facts)
    for name, value in settings.items():
        monkeypatch.setattr(name, value) if "." in name else monkeypatch.setenv(name, value)
    if case == "no repository":
        hub.repositories.clear()
    text = failing(lambda: open_hub(URL).read_index("m"), RemoteError)
    assert words in text and "hf_expired" not in text


def test_a_public_repository_is_read_without_a_token(
    hub: Hub, remote: HubRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(remote, b"weights")
    monkeypatch.setenv("HF_TOKEN", "")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", "/nowhere")
    assert read_blob(open_hub(URL), Digest.of(b"weights")) == b"weights"


def test_a_token_that_may_only_read(hub: Hub, remote: HubRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", READER)
    reader = open_hub(URL)
    assert "403" in failing(lambda: put(reader, b"blob"), RemoteError)
    assert "403" in failing(lambda: open_hub(f"{URL}2", create=True), RemoteError)
    assert list(reader.names()) == []


@pytest.mark.parametrize("pattern", ["/resolve/", "/paths-info/", "/tree/", "/preupload/"])
def test_a_proxy_s_page_instead_of_an_answer(hub: Hub, remote: HubRegistry, pattern: str) -> None:
    hub.fail(pattern, status=200, times=1000, body=b"<html>welcome</html>")

    def use() -> None:
        list(remote.names())
        put(remote, b"blob")

    assert "the answer is not the Hub's" in failing(use, RemoteError)


@pytest.mark.parametrize("value", [{"path": 5}, {"size": "many"}, {"oid": None}, {"lfs": {"size": 1}}])
def test_a_listing_of_nonsense(hub: Hub, remote: HubRegistry, value: dict[str, Any]) -> None:
    path = BlobKey(Digest.of(b"blob")).path
    entry = {"type": "file", "path": path, "size": 4, "oid": "0" * 40, **value}
    for pattern in ("/paths-info/", "/tree/"):
        hub.fail(pattern, status=200, times=1000, body=json.dumps([entry]).encode())
    assert "the answer is not the Hub's" in failing(lambda: remote.has([Digest.of(b"blob")]), RemoteError)
    assert "the answer is not the Hub's" in failing(lambda: list(remote.files()), RemoteError)


def test_an_unanswered_question_is_no_commit_in_doubt(remote: HubRegistry) -> None:
    doubts = []

    def decide(at: CommitSnapshot, is_doubtful: bool) -> None:
        doubts.append(is_doubtful)
        raise UnansweredError("silence")

    with pytest.raises(UnansweredError):
        remote.commits.transact("Write", decide)
    assert doubts == [False]


def test_another_registry_under_the_same_name_is_noticed(
    hub: Hub,
    registry: Registry,
    make_draft: MakeDraft,
    other: Registry,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    registry.add(make_draft(), "1.0.0")
    registry.push("acme/pii:1.0.0", URL)
    del hub.repositories[f"models/{REPO}"]
    other.add(make_draft(), "1.0.0")
    with monkeypatch.context() as another_user:
        another_user.setenv("REG_STATE", str(tmp_path / "state of another user"))
        Registry(other.store.root).push("acme/pii:1.0.0", URL)
    with pytest.raises(IntegrityError):
        registry.pull("acme/pii:1.0.0", URL)
    registry.add(make_draft(seed="b"), "1.1.0")
    with pytest.raises(IntegrityError):
        registry.push("acme/pii:1.1.0", URL)


def test_without_its_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("onnxreg.registry.store.hub")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(HostError) as found:
        open_url(URL)
    assert "[hf]" in found.value.hint


def test_a_deleted_repository_is_not_made_again_before_the_user_says_so(
    hub: Hub, registry: Registry, make_draft: MakeDraft
) -> None:
    registry.add(make_draft(), "1.0.0")
    registry.push("acme/pii:1.0.0", URL)
    way_out = f"reg trust reset {open_hub(URL).registry_id}"
    del hub.repositories[f"models/{REPO}"]
    assert way_out in failing(lambda: registry.push("acme/pii:1.0.0", URL), RemoteError)
    hub_api(hub).create_repo(REPO)
    with pytest.raises(IntegrityError, match="went back in time") as caught:
        registry.push("acme/pii:1.0.0", URL)
    assert way_out in caught.value.hint


# Whole stories


def test_with_xet_files_go_through_xet(
    hub: Hub, registry: Registry, make_draft: MakeDraft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the real hf_xet, into a directory that stands for its store; the digests are ours."""
    monkeypatch.delenv("HF_HUB_DISABLE_XET")
    hub.xet = tmp_path / "xet"
    hub.xet.mkdir()
    registry.add(make_draft(), "1.0.0")
    words = ["--registry", str(registry.store.root), "push", "acme/pii:1.0.0", URL]
    command = [sys.executable, "-m", "onnxreg.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(hub.xet.rglob("*.mdb"))
    assert calls(hub, "/xet-write-token/") and not calls(hub, "/objects/batch|PUT")
    lfs = {path: file.sha256 for path, file in hub.files(REPO).items() if file.sha256}
    assert len(lfs) >= 5 and all(path.endswith(sha256) for path, sha256 in lfs.items())
    assert len(hub.history(REPO)) == 3


def test_a_mirror_on_the_hub_and_back(
    hub: Hub, registry: Registry, make_draft: MakeDraft, tmp_path: Path
) -> None:
    for name, version in (("acme/pii", "1.0.0"), ("acme/ner", "0.1.0"), ("acme/pii", "1.1.0")):
        registry.add(make_draft(name, seed=version), version)
    root = str(registry.store.root)
    mirror(*open_both(registry.remotes, root, URL))
    assert open_hub(URL).is_mirror and open_hub(URL).registry_id == registry.id
    mirror(*open_both(registry.remotes, URL, str(tmp_path / "back")))
    assert not verify(open_hub(URL)).damages
    for name in registry.names():
        path = f"index/{name}.jsonl"
        assert hub.read(REPO, path) == (registry.store.root / path).read_bytes()
        assert (tmp_path / "back" / path).read_bytes() == (registry.store.root / path).read_bytes()


def test_the_command_line(
    hub: Hub, registry: Registry, make_draft: MakeDraft, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    registry.add(make_draft(), "1.0.0")

    def reg(home: Path, *words: str, code: int = 0) -> tuple[str, str]:
        capfd.readouterr()
        assert main(["--registry", str(home), *words]) == code
        out, err = capfd.readouterr()
        assert TOKEN not in out + err and "Traceback" not in err
        return out, err

    here, there = registry.store.root, tmp_path / "there"
    reg(here, "remote", "add", "origin", URL)
    reg(here, "push", "acme/pii:1.0.0")
    pushed = json.loads(reg(here, "push", "acme/pii:1.0.0", "--json")[0])
    assert (pushed["remote"], pushed["blobs"]) == (URL, 0)
    pull = ["--registry", str(there), "pull", "acme/pii", URL, "--output", str(tmp_path / "out")]
    done = subprocess.run([sys.executable, "-m", "onnxreg.cli", *pull], capture_output=True, check=True)
    assert done.stderr == b"" and TOKEN.encode() not in done.stdout
    assert (tmp_path / "out" / "model.onnx").read_bytes().startswith(b"fp32 a")
    reg(there, "verify")
    assert "acme/pii" in reg(there, "resolve", "acme/pii", "--remote", URL)[0]
    reg(here, "doctor", URL)
    assert "hf://ORG/NAME" in reg(here, "push", "acme/pii", "hf://acme", code=2)[1]
    assert "does not exist" in reg(there, "pull", "acme/pii", "hf://acme/nothing", code=6)[1]
