"""The Hugging Face Hub backend with the real client, against an emulator; never compared with the live Hub."""

import json
import os
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Any

import pytest
from conformance.contract import put
from huggingface_hub.utils import close_session
from support.servers.hub import READER, TOKEN, Hub

from onnxreg.registry import Registry
from onnxreg.registry.log.commit import condemn, read_condemned
from onnxreg.registry.log.log import load, read_blob
from onnxreg.registry.maintain import verify
from onnxreg.registry.remotes import Remotes, open_url
from onnxreg.registry.store import hub_client
from onnxreg.registry.store.hub import HubRegistry, cell, open_hub
from onnxreg.registry.store.hub_client import CommitSnapshot, parse_url, token_of
from onnxreg.registry.store.protocol import BlobKey, RegistryReader, StoredObject
from onnxreg.registry.store.requests import UnansweredError
from onnxreg.registry.transfer.mirror import mirror, open_both
from onnxreg.registry.trust.known_heads import CheckedReader
from onnxreg.schema.core import errors
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, LostRaceError, NotFoundError, RemoteError

# The client hands its uploads to its HTTP library in a way that this one calls outdated.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")

REPO = "acme/models"
URL = f"hf://{REPO}"
PII = "acme/pii:1.0.0"
COMMIT = "POST .*/commit/"
Patch = pytest.MonkeyPatch


@pytest.fixture
def remote(hub) -> HubRegistry:
    """A registry in a repository."""
    return open_hub(URL, create=True)


@pytest.fixture
def pushed(hub, registry) -> Registry:
    """What pushed acme/pii:1.0.0 to the repository; 1.1.0 and acme/ner stay here."""
    registry.make("1.0.0")
    registry.push(PII, URL)
    registry.make("1.1.0", seed="b")
    registry.make("0.1.0", name="acme/ner")
    return registry


def calls(hub: Hub, pattern: str = "") -> list[str]:
    return [line for line in hub.requests if re.search(pattern, line)]


def uploads(hub: Hub, data: bytes) -> int:
    return len(calls(hub, f"PUT /{Digest.of(data).hex}"))


def index(remote: RegistryReader, name: str = "m") -> bytes | None:
    found = remote.read_index(name)
    return found and found.data


def token(remote: RegistryReader) -> str:
    found = remote.read_index("m")
    assert found is not None
    return found.token


def path_of(data: bytes) -> str:
    return BlobKey(Digest.of(data)).path


def has(remote: RegistryReader, *blobs: bytes) -> list[bool]:
    there = remote.has([Digest.of(blob) for blob in blobs])
    return [Digest.of(blob) in there for blob in blobs]


# The place


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("acme/models", ("acme/models", "model", "main")),
        ("models/acme/models", ("acme/models", "model", "main")),
        ("datasets/acme/models/", ("acme/models", "dataset", "main")),
        ("acme/models@v2", ("acme/models", "model", "v2")),
        ("acme/models@refs/pr/1", ("acme/models", "model", "refs/pr/1")),
        *(
            (bad, None)
            for bad in ("acme", "", "acme/models/sub/folder", "acme/..", "ac me/models", "acme/a--b")
        ),
        *((bad, None) for bad in ("acme/models.git", "acme/models@", "acme/models?x=1", "datasets/models")),
        ("spaces/acme/models", None),
    ],
)
def test_a_url_names_a_repository(url, found):
    if found is None:
        with pytest.raises(InputError):
            parse_url(f"hf://{url}")
        return
    uri = parse_url(f"hf://{url}")
    assert (uri.id, uri.type, uri.revision or "main") == found
    assert parse_url(uri.to_uri()) == uri


def test_a_dataset_and_a_branch_hold_registries_of_their_own(hub, remote):
    data = open_hub("hf://datasets/acme/models", create=True)
    branches = hub.repositories[f"models/{REPO}"].branches
    branches["dev"] = branches["main"][:1]
    branch = open_hub(f"{URL}@dev", create=True)
    for place in (data, branch):
        put(place, b"x" * 1000)
        assert read_blob(place, Digest.of(b"x" * 1000)) == b"x" * 1000
    assert (list(remote.names()), list(branch.names())) == ([], ["m"])
    assert len({each.registry_id for each in (remote, data, branch)}) == 3


# The repository


def test_the_first_commit_holds_identity_and_the_rule_for_lfs(hub):
    with ThreadPoolExecutor(4) as pool:
        remotes = list(pool.map(lambda _: open_hub(URL, create=True), range(4)))
    assert {remote.registry_id for remote in remotes} == {json.loads(hub.read(REPO, "registry.json"))["id"]}
    assert [commit.title for commit in hub.history(REPO)] == ["initial commit", "Create the registry"]
    attributes = hub.read(REPO, ".gitattributes").decode()
    assert attributes.endswith("blobs/** filter=lfs diff=lfs merge=lfs -text\n")
    assert attributes.startswith("*.onnx"), "what the Hub wrote there stays"


def test_a_repository_that_holds_something_else_is_left_alone(hub):
    hub_client.HfApi(endpoint=hub.endpoint).create_repo(REPO)
    hub.commit(REPO, {"model.safetensors": b"weights"})
    with pytest.raises(InputError, match=r"model\.safetensors"):
        open_hub(URL, create=True)
    with pytest.raises(NotFoundError, match="no registry"):
        _ = open_hub(URL).registry_id
    assert len(hub.history(REPO)) == 2


def test_a_registry_of_a_newer_build_is_not_written(hub, remote):
    identity = json.loads(hub.read(REPO, "registry.json")) | {"min_writer": 99}
    hub.commit(REPO, {"registry.json": json.dumps(identity).encode()})
    newer = open_hub(URL, known_id=remote.registry_id)
    for write in (lambda: put(newer, b"blob"), lambda: newer.swap_file("search/part", b"part", None)):
        with pytest.raises(errors.HostError, match="newer"):
            write()
    assert open_hub(URL).registry_id == remote.registry_id
    hub.commit(REPO, {"registry.json": json.dumps(identity | {"min_reader": 99}).encode()})
    with pytest.raises(errors.HostError, match="has layout 99"):
        _ = open_hub(URL).registry_id


def test_an_old_commit_can_be_read_and_not_written(hub, remote):
    put(remote, b"first", index=b"1\n")
    old = open_hub(f"{URL}@{hub.history(REPO)[-1].id}")
    put(remote, b"second", index=b"2\n", expected=token(remote))
    assert index(old) == b"1\n"
    with pytest.raises(RemoteError, match="404"):
        put(old, b"third", index=b"3\n", expected=token(old))


# A push


def test_blobs_index_and_card_are_one_commit(hub, pushed):
    initial, created, published = hub.history(REPO)
    new = published.files.keys() - created.files.keys()
    assert {path.partition("/")[0] for path in new} == {"blobs", "index", "README.md"}
    assert all(published.files[path].sha256 for path in new if path.startswith("blobs/"))
    assert published.files["index/acme/pii.jsonl"].sha256 is None
    assert initial.files.keys() == {".gitattributes"}


def test_blobs_are_kept_whatever_the_repository_ignores_and_not_hashed_again(hub, remote, monkeypatch):
    """An empty one is a regular file."""
    monkeypatch.setattr("huggingface_hub.lfs.sha_fileobj", None)
    hub.commit(REPO, {".gitignore": b"blobs\nindex\n"})
    put(remote, b"", b"weights" * 1000)
    for blob in (b"", b"weights" * 1000):
        assert read_blob(open_hub(URL), Digest.of(blob)) == blob
    assert hub.files(REPO)[path_of(b"")].sha256 is None


def test_an_index_that_the_hub_keeps_in_lfs_is_swapped_too(hub, remote, monkeypatch):
    monkeypatch.setattr("support.servers.hub.LFS_FROM", 1)
    put(remote, index=b"1\n")
    assert hub.files(REPO)["index/m.jsonl"].sha256
    first = token(remote)
    put(remote, index=b"2\n", expected=first)
    hub.before(COMMIT, lambda: hub.commit(REPO, {"other": b""}))
    put(remote, index=b"3\n", expected=token(remote))
    with pytest.raises(LostRaceError):
        put(open_hub(URL), index=b"4\n", expected=first)
    assert hub.read(REPO, "index/m.jsonl") == b"3\n"


def test_only_publish_and_flush_commit(hub, remote):
    with pytest.raises(ZeroDivisionError), remote.push() as push:
        push.put(BytesIO(b"never"))
        _ = 1 / 0
    assert len(hub.history(REPO)) == 2
    with remote.push() as push:
        push.put(BytesIO(b"restored"))
        push.flush()
    assert has(remote, b"never", b"restored") == [False, True]
    assert list(remote.names()) == []


def test_an_lfs_file_under_a_wrong_name_is_replaced(hub, remote):
    put(remote, b"good")
    put(remote, b"evil", name="n")
    head = hub.history(REPO)[-1]
    head.files[path_of(b"good")] = head.files[path_of(b"evil")]
    fresh = open_hub(URL)
    assert has(fresh, b"good") == [False]
    with pytest.raises(IntegrityError):
        read_blob(fresh, Digest.of(b"good"))
    put(fresh, b"good", index=b"2\n", expected=token(fresh))
    assert read_blob(fresh, Digest.of(b"good")) == b"good"


# Races


def test_another_index_in_the_meantime_is_a_lost_race_and_no_other_commit_is(hub, remote):
    hub.before(COMMIT, lambda: hub.commit(REPO, {"index/other.jsonl": b"1\n"}))
    put(remote, b"mine", index=b"1\n")
    assert list(remote.names()) == ["m", "other"]
    assert uploads(hub, b"mine") == 1
    hub.before(COMMIT, lambda: hub.commit(REPO, {"index/m.jsonl": b"2\n"}))
    with pytest.raises(LostRaceError):
        put(remote, b"more", index=b"3\n", expected=token(remote))
    assert index(remote) == hub.read(REPO, "index/m.jsonl") == b"2\n"


def test_a_blob_that_a_collector_took_meanwhile_is_a_lost_race(hub, remote):
    put(remote, b"old")
    hub.before(COMMIT, lambda: hub.commit(REPO, {path_of(b"old"): None}))
    with remote.push() as push:
        assert push.has([Digest.of(b"old")])
        with pytest.raises(LostRaceError):
            push.publish("n", b"1\n", None)
        assert not push.has([Digest.of(b"old")])
        push.put(BytesIO(b"old"))
        push.publish("n", b"1\n", None)
    assert read_blob(remote, Digest.of(b"old")) == b"old"


def test_a_condemnation_in_the_meantime_is_a_lost_race(hub, remote):
    """Collector and push, interleaved as an intent would otherwise have to prevent."""
    old, unrelated = Digest.of(b"old"), Digest.of(b"unrelated")
    put(remote, b"old", b"unrelated")
    collector = open_hub(URL)
    with remote.push() as push, collector.push() as other:
        push.avoid(read_condemned(remote))
        assert push.has([old])
        condemn(collector, other, [BlobKey(old)])
        with pytest.raises(LostRaceError):
            push.publish("n", b"1\n", None)
        push.avoid(read_condemned(remote))
        assert push.has([old, unrelated]) == {unrelated}
        push.put(BytesIO(b"old"))
        push.publish("n", b"1\n", None)
        collector.delete([BlobKey(old).path])
        collector.remove_note("condemned", other.id)
    assert read_blob(open_hub(URL), old) == b"old"
    assert f"{BlobKey(old).path}.1" in hub.files(REPO)
    assert not [path for path in hub.files(REPO) if path.startswith("gc/")]


def test_notes_are_seen_by_others_until_they_are_removed(hub, remote):
    other, one, two = open_hub(URL), "0" * 16, "1" * 16
    assert other.notes("condemned") == {}
    remote.add_note("condemned", one, b"one")
    assert other.notes("condemned") == {one: b"one"}
    remote.add_note("condemned", two, b"\xff")
    put(remote, b"not condemned")
    for note in (two, one, one):
        remote.remove_note("condemned", note)
    assert other.notes("condemned") == {}


def test_a_commit_pinned_before_another_push_is_no_going_back(pushed, other, monkeypatch):
    """The other writer shares this user's known heads, and pushes after the pin and before these are asked."""
    other.make("3.0.0")
    pinned = open_hub(URL)
    assert pinned.registry_id
    opened = Remotes.open

    def seen(place: RegistryReader) -> set[str]:
        return set(map(str, load(CheckedReader(place, pushed.heads), "acme/pii").versions))

    def overtaken(*args: Any, **kwargs: Any) -> object:
        found = opened(*args, **kwargs)
        monkeypatch.setattr(Remotes, "open", opened)
        other.push("acme/pii:3.0.0", URL)
        assert seen(open_hub(URL)) == {"1.0.0", "3.0.0"}
        return found

    monkeypatch.setattr(Remotes, "open", overtaken)
    pushed.push("acme/pii:1.1.0", URL)
    assert seen(pinned) == {"1.0.0", "1.1.0", "3.0.0"}


# Faults


@pytest.mark.parametrize("status", [0, 200, 500, 503, 504])
@pytest.mark.parametrize("is_done", [True, False])
def test_a_commit_without_an_answer_is_made_once(hub, remote, status, is_done):
    hub.fail(COMMIT, status, 1 if is_done else 2, after=is_done, body=b"<html>welcome</html>")
    put(remote, b"blob", index=b"1\n")
    assert (len(hub.history(REPO)), uploads(hub, b"blob"), token(remote)) == (3, 1, token_of(b"1\n"))


@pytest.mark.parametrize(("status", "words"), [(503, "did not say whether"), (429, "429")])
def test_a_commit_that_never_answers_is_an_error_of_the_remote(hub, remote, status, words):
    hub.fail(COMMIT, status, 1000)
    hub.requests.clear()
    assert words in failing(lambda: put(remote, b"blob"))
    assert len(calls(hub, COMMIT)) == hub_client.MAX_UNANSWERED_COMMITS
    assert remote.read_index("m") is None
    hub.faults.clear()
    put(remote, b"blob")
    assert uploads(hub, b"blob") == 1, "finished uploads are not sent again"


def test_our_index_under_a_lost_reply_and_a_later_one_is_a_lost_race(hub, remote):
    """Then the change is decided again from the log, in which our events are."""

    def later() -> None:
        assert hub.read(REPO, "index/m.jsonl") == b"1\n"
        hub.commit(REPO, {"index/m.jsonl": b"1\n2\n"})

    hub.fail(COMMIT, after=True)
    hub.before(r"GET .*/resolve/main/registry\.json", later)
    with pytest.raises(LostRaceError):
        put(remote, b"blob", index=b"1\n")


@pytest.mark.parametrize("pattern", ["/resolve/", "/paths-info/", "/preupload/", "/objects/batch", "PUT /"])
def test_passing_failures_are_survived(hub, remote, monkeypatch, pattern):
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)
    hub.fail(pattern, times=2)
    put(remote, b"blob")
    fresh = open_hub(URL)
    assert has(fresh, b"blob") == [True]
    assert read_blob(fresh, Digest.of(b"blob")) == b"blob"
    assert all(fault.times == 0 for fault in hub.faults)


def test_a_hub_that_falls_silent_is_asked_again(hub, remote, monkeypatch):
    monkeypatch.setattr(hub_client, "MAX_SILENCE_SECONDS", 0.3)
    close_session()
    over = threading.Event()
    for pattern in ("/paths-info/", COMMIT):
        hub.before(pattern, lambda: over.wait(30))
    put(remote, b"blob", index=b"1\n")
    over.set()
    assert token(remote) == token_of(b"1\n")


MISSING = {"X-Error-Code": "EntryNotFound"}


@pytest.mark.parametrize("is_known", [False, True])
def test_an_answer_without_a_commit_may_be_older_than_the_one_that_is_pinned_then(hub, remote, is_known):
    """A missing file, or an unchanged one; a commit that comes while the newest one is asked for is not overlooked."""
    known = StoredObject(b"1\n", "") if is_known else None
    if is_known:
        put(remote, b"first", index=b"1\n")
    else:
        fresh = open_hub(URL)
        hub.fail("/resolve/", 404, headers=MISSING)
        assert fresh.read_index("m") is None
        assert fresh.store.snapshot().revision == hub.history(REPO)[-1].id
    fresh = open_hub(URL)
    hub.fail("/resolve/", 304 if is_known else 404, headers={} if is_known else MISSING)
    hub.before(f"GET /api/models/{REPO}/revision/main", lambda: hub.commit(REPO, {"index/m.jsonl": b"2\n"}))
    found = fresh.read_index("m", known)
    assert found is not None and found.data == b"2\n"


@pytest.mark.parametrize("says_sizes", [True, False])
def test_a_download_goes_on_where_it_broke_off(hub, remote, says_sizes):
    data = os.urandom(3 * 2**20)
    put(remote, data)
    hub.says_sizes = says_sizes
    for cut in (2**20, 1000, 0):
        hub.fail(f"GET /{Digest.of(data).hex}", cut=cut)
    assert read_blob(remote, Digest.of(data)) == data
    assert len(calls(hub, f"GET /{Digest.of(data).hex}")) == 4
    (hub.root / Digest.of(data).hex).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(IntegrityError):
        read_blob(remote, Digest.of(data))


# Reading


def test_files_come_from_one_commit(hub, remote):
    put(remote, b"first", index=b"1\n")
    reader = open_hub(URL)
    assert index(reader) == b"1\n"
    put(remote, b"second", index=b"2\n", expected=token(remote))
    put(remote, index=b"n\n", name="n")
    assert (index(reader), index(reader, "n")) == (b"1\n", None)
    assert has(reader, b"first", b"second") == [True, False]
    with pytest.raises(NotFoundError):
        reader.open_blob(Digest.of(b"second"))
    assert list(reader.names()) == ["m", "n"], "a listing moves on"
    assert index(reader) == b"2\n"


def test_a_blob_has_an_address_and_the_repository_s_own_files_are_none_of_the_tree(hub, remote):
    put(remote, b"blob")
    assert token(remote)
    url = remote.blob_url(Digest.of(b"blob"))
    assert hub.history(REPO)[-1].id in url
    with urllib.request.urlopen(url) as answer:
        assert answer.read() == b"blob"
    assert ".gitattributes" in hub.files(REPO)
    paths = {file.path: file.size for file in remote.files()}
    assert paths.keys() == {"registry.json", "index/m.jsonl", path_of(b"blob")}
    assert paths[path_of(b"blob")] == 4


# How many requests


def test_requests_of_transfers_and_of_some_that_change_nothing(hub, pushed, other):
    hub.requests.clear()
    pushed.push("acme/pii:1.1.0", URL)
    api = [line for line in hub.requests if not re.match("PUT|POST /verify", line)]
    assert len(api) <= 10, api
    assert len(calls(hub, COMMIT)) == 1
    hub.requests.clear()
    assert pushed.push("acme/pii:1.1.0", URL).blobs == 0
    assert len(hub.requests) <= 3, hub.requests
    assert other.pull(PII, URL).blobs > 0 and other.get(PII).data == pushed.get(PII).data
    other.check()
    assert not verify(open_hub(URL)).damages
    hub.requests.clear()
    assert other.pull(PII, URL).blobs == 0
    assert len(hub.requests) == len(calls(hub, "GET .*main/index/acme/pii.jsonl")) == 1, hub.requests


def test_one_request_gives_index_commit_and_what_follows(hub, remote):
    put(remote, b"blob", index=b"1\n")
    known = open_hub(URL, known_id=remote.registry_id)
    hub.requests.clear()
    assert known.registry_id == remote.registry_id
    assert known.read_index("m") == known.read_index("m") == remote.read_index("m")
    assert len(calls(hub, "/main/")) == 1
    hub.requests.clear()
    blobs = [b"%d" % number for number in range(400)]
    assert has(known, *blobs[:100], b"blob").count(True) == 1
    assert len(hub.requests) == 2
    assert not any(has(known, *blobs))
    assert len(hub.requests) <= 6


# The card


def test_the_card_lists_versions_and_what_people_write_there_stays(hub, pushed):
    pushed.push("acme/ner", URL)
    edited = hub.read(REPO, "README.md").decode().replace("# ONNX models", "# Ours") + "\nAsk us.\n"
    hub.commit(REPO, {"README.md": edited.encode()})
    pushed.push("acme/pii:1.1.0", URL)
    card = hub.read(REPO, "README.md").decode()
    assert card.startswith("---\nlibrary_name: onnxreg\n")
    rows = [line for line in card.splitlines() if line.startswith("| ") and "version" not in line]
    assert [row.split(" | ")[0].strip("| ") for row in rows] == ["1.1.0"] * 2 + ["1.0.0"] * 2 + ["0.1.0"] * 2
    assert "| 1.1.0 | onnx-int8 | int8 | 189 B | unknown |" in rows
    assert f"reg pull acme/pii:1.1.0 {URL}" in card
    assert card.index("## acme/pii") < card.index("## acme/ner")
    assert "# Ours" in card and card.endswith("\nAsk us.\n") and card.count("## acme/pii") == 1
    assert cell("a|b\n<img src=x>`[l](u)") == r"a\|b \<img src=x\>\`\[l\](u)"


def test_a_card_that_cannot_be_read(hub, pushed):
    """A card that is no text is left alone; one whose metadata the Hub refuses is named."""
    hub.commit(REPO, {"README.md": b"\xff\xfe"})
    pushed.push("acme/pii:1.1.0", URL)
    assert hub.read(REPO, "README.md") == b"\xff\xfe"
    hub.commit(REPO, {"README.md": b"---\na: [\n---\n"})
    assert "README.md" in failing(lambda: pushed.push("acme/ner", URL))
    assert list(open_hub(URL).names()) == ["acme/pii"]


# What can be wrong


def failing(call: Callable[[], object]) -> str:
    """The text of an error of the remote; it names the place, and no token."""
    with pytest.raises(RemoteError) as found:
        call()
    text = f"{found.value.message} {found.value.hint}"
    assert TOKEN not in text and READER not in text and "Bearer" not in text and "hf_expired" not in text
    assert REPO in text
    return text


NOBODY = {"HF_TOKEN": "", "huggingface_hub.constants.HF_TOKEN_PATH": "/nowhere"}
WRONG: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "does not exist": ({}, {}),
    "gated": ({"gated": True}, {}),
    "HF_TOKEN": ({"private": True}, NOBODY),
    "401": ({}, {"HF_TOKEN": "hf_expired"}),
    "Connection refused": ({}, {"HF_ENDPOINT": "http://127.0.0.1:1"}),
    "HF_HUB_OFFLINE": ({}, {"huggingface_hub.constants.HF_HUB_OFFLINE": True}),
}
"""What the error says -> what the repository and this machine are like."""


def configure(patch: Patch, settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        patch.setattr(name, value) if "." in name else patch.setenv(name, value)


@pytest.mark.parametrize("words", WRONG)
def test_a_repository_that_cannot_be_read(hub, remote, monkeypatch, words):
    facts, settings = WRONG[words]
    vars(hub.repositories[f"models/{REPO}"]).update(facts)
    configure(monkeypatch, settings)
    if words == "does not exist":
        hub.repositories.clear()
    assert words in failing(lambda: open_hub(URL).read_index("m"))


def test_a_token_that_may_only_read_and_nobody_s(remote, monkeypatch):
    put(remote, b"weights")
    monkeypatch.setenv("HF_TOKEN", READER)
    reader = open_hub(URL)
    assert "403" in failing(lambda: put(reader, b"blob", name="n"))
    assert "403" in failing(lambda: open_hub(f"{URL}2", create=True))
    configure(monkeypatch, NOBODY)
    assert read_blob(open_hub(URL), Digest.of(b"weights")) == b"weights"


def entry(**values: object) -> bytes:
    return json.dumps(
        [{"type": "file", "path": path_of(b"blob"), "size": 4, "oid": "0" * 40, **values}]
    ).encode()


ASKED = "/paths-info/|/tree/"
NONSENSE = {
    **{pattern: (pattern, b"<html>welcome</html>") for pattern in ("/resolve/", ASKED, "/preupload/")},
    "path": (ASKED, entry(path=5)),
    "size": (ASKED, entry(size="many")),
    "oid": (ASKED, entry(oid=None)),
    "lfs": (ASKED, entry(lfs={"size": 1})),
}
"""Requests, and what answers them: a proxy's page, or a listing of nonsense."""


@pytest.mark.parametrize("case", NONSENSE)
def test_an_answer_that_is_not_the_hub_s(hub, remote, case):
    pattern, body = NONSENSE[case]
    hub.fail(pattern, 200, 1000, body=body)
    uses = [lambda: remote.has([Digest.of(b"blob")]), lambda: list(remote.files())]
    if pattern != ASKED:
        uses = [lambda: [*remote.names(), put(remote, b"blob")]]
    for use in uses:
        assert "the answer is not the Hub's" in failing(use)


@pytest.mark.parametrize("sha", [None, "main"])
def test_the_newest_commit_has_an_id(hub, pushed, sha):
    hub.fail("/resolve/", 200, 1000, body=b"{}")
    hub.fail("/revision/", 200, 1000, body=json.dumps({"id": REPO, "sha": sha}).encode())
    assert "the answer is not the Hub's" in failing(lambda: [*open_hub(URL).names()])


def test_an_unanswered_question_an_upload_and_a_redirect_are_no_commits_in_doubt(hub, remote):
    doubts = []

    def decide(at: CommitSnapshot, is_doubtful: bool) -> None:
        doubts.append(is_doubtful)
        raise UnansweredError("silence")

    with pytest.raises(UnansweredError):
        remote.store.transact("Write", decide)
    assert doubts == [False]
    hub.fail("PUT /", 200, 1000, body=b"<html>")
    assert "cannot be reached" in failing(lambda: put(remote, b"blob"))
    assert uploads(hub, b"blob") == 1
    hub.faults.clear()
    hub.fail(COMMIT, 307, 1000, headers={"Location": "ftp://h/"})
    assert "redirects to a ftp: URL" in failing(lambda: put(remote, b"blob"))
    assert len(calls(hub, COMMIT)) == 2


def test_another_registry_under_the_same_name_is_noticed(hub, pushed, other, monkeypatch, tmp_path):
    del hub.repositories[f"models/{REPO}"]
    other.make("1.0.0")
    with monkeypatch.context() as another_user:
        another_user.setenv("REG_STATE", str(tmp_path / "state of another user"))
        Registry(other.store.root).push(PII, URL)
    for act in (lambda: pushed.pull(PII, URL), lambda: pushed.push("acme/pii:1.1.0", URL)):
        with pytest.raises(IntegrityError):
            act()


def test_a_deleted_repository_is_not_made_again_before_the_user_says_so(hub, pushed):
    way_out = f"reg trust reset {open_hub(URL).registry_id}"
    del hub.repositories[f"models/{REPO}"]
    assert way_out in failing(lambda: pushed.push(PII, URL))
    hub_client.HfApi(endpoint=hub.endpoint).create_repo(REPO)
    with pytest.raises(IntegrityError, match="went back in time") as caught:
        pushed.push(PII, URL)
    assert way_out in caught.value.hint


def test_without_its_library_the_extra_is_named(monkeypatch):
    for module in [name for name in sys.modules if name.startswith("onnxreg.registry.store.hub")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(errors.HostError) as found:
        open_url(URL)
    assert "[hf]" in found.value.hint


# Whole stories


def test_with_xet_files_go_through_xet(hub, registry, tmp_path, monkeypatch):
    """With the real hf_xet, into a directory that stands for its store; the digests are ours."""
    monkeypatch.delenv("HF_HUB_DISABLE_XET")
    hub.xet = tmp_path / "xet"
    hub.xet.mkdir()
    registry.make("1.0.0")
    command = [sys.executable, "-m", "onnxreg.cli", "--registry", registry.store.root, "push", PII, URL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(hub.xet.rglob("*.mdb"))
    assert calls(hub, "/xet-write-token/") and not calls(hub, "/objects/batch|PUT")
    lfs = {path: file.sha256 for path, file in hub.files(REPO).items() if file.sha256}
    assert len(lfs) >= 5 and all(path.endswith(sha256) for path, sha256 in lfs.items())
    assert len(hub.history(REPO)) == 3


def test_a_retried_upload_does_not_print_its_signed_address(hub, registry, monkeypatch):
    """The Hub's library warns of each retry with the address, which lets anybody write."""
    monkeypatch.delenv("HF_HUB_VERBOSITY", raising=False)
    registry.make("1.0.0")
    hub.fail("PUT /", 503, 1)
    command = [sys.executable, "-m", "onnxreg.cli", "--registry", registry.store.root, "push", PII, URL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(set(calls(hub, "PUT /"))) < len(calls(hub, "PUT /"))


def test_a_mirror_on_the_hub_and_back(hub, registry, tmp_path):
    for name, version in (("acme/pii", "1.0.0"), ("acme/ner", "0.1.0"), ("acme/pii", "1.1.0")):
        registry.make(version, name=name, seed=version)
    mirror(*open_both(registry.remotes, registry.place, URL))
    assert open_hub(URL).is_mirror and open_hub(URL).registry_id == registry.id
    mirror(*open_both(registry.remotes, URL, str(tmp_path / "back")))
    assert not verify(open_hub(URL)).damages
    for name in registry.names():
        path = f"index/{name}.jsonl"
        assert hub.read(REPO, path) == (registry.store.root / path).read_bytes()
        assert (tmp_path / "back" / path).read_bytes() == (registry.store.root / path).read_bytes()
