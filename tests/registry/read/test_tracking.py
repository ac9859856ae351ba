"""What is remembered of remotes: fewer requests, and answers without them."""

import json
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from support.registries import owner
from support.registries.home import Home
from support.sampling import sampled
from support.servers import s3servers

from onnxreg.cli.main import main
from onnxreg.registry.remotes import RemoteCopy
from onnxreg.registry.store.protocol import blob_path, index_path
from onnxreg.registry.system import state_directory, trust_file
from onnxreg.schema.core.errors import HostError, IntegrityError, NotFoundError
from onnxreg.schema.gates.policy import Policy
from onnxreg.schema.log.state import SEGMENT_LINES


def busy(registry: Home, events: int) -> None:
    """Move a channel to and fro until the log has so many events."""
    for number in range(events - len(registry.log("acme/pii"))):
        registry.tag(f"acme/pii:0.1.{number % 2}", "stable")


@pytest.mark.parametrize("events", [3, SEGMENT_LINES + 10])
def test_a_pull_that_brings_nothing_is_one_conditional_request(registry, other, site, events):
    for seed in "ab":
        registry.make(seed=seed)
    busy(registry, events)
    for version in ("0.1.0", "0.1.1"):
        other.pull(f"acme/pii:{version}", site.url)
    for ref in ("acme/pii", "acme/pii:0.1.1", "acme/pii:stable"):
        site.seen.clear()
        done = other.pull(ref, site.url)
        assert (done.events, done.blobs) == (0, 0)
        assert site.seen == [("GET", f"/{index_path('acme/pii')}")]
        assert site.answers[-1] == 304


@pytest.mark.parametrize("events", sampled([3, SEGMENT_LINES + 10], 2))
def test_requests_to_s3_where_nothing_is_to_do(registry, other, bucket_url, s3_proxy, events):
    url, behind = bucket_url, s3_proxy
    for seed in "ab":
        registry.make(seed=seed)
    registry.push("acme/pii:0.1.0", url)
    busy(registry, events)
    registry.push("acme/pii:0.1.1", url)
    behind.seen.clear()
    assert registry.push("acme/pii:0.1.1", url).blobs == 0
    assert len(behind.seen) <= 3, behind.seen
    other.pull("acme/pii", url)
    behind.seen.clear()
    behind.answers.clear()
    assert other.pull("acme/pii", url).blobs == 0
    assert ([method for method, _ in behind.seen], behind.answers) == (["GET"], [304])


def test_a_push_heals_where_it_is_asked_to(registry, bucket_url, ministack):
    url = bucket_url
    made = registry.make()
    registry.push("acme/pii", url)
    remote = registry.remotes.open(url)
    weights = made.manifest.artifacts[0].digest
    client, prefix = ministack.client(), url.rpartition("/")[2]
    client.delete_object(Bucket=s3servers.BUCKET, Key=f"{prefix}/{blob_path(weights)}")
    client.close()
    assert registry.push("acme/pii", url).blobs == 0
    assert not remote.has([weights])
    assert registry.push("acme/pii", url, heal=True).blobs == 1
    assert remote.has([weights])


def test_a_token_is_used_for_its_own_bytes_only(registry, other, site):
    """A command that died between the two files must not make an old index count as the present one."""
    registry.make()
    other.pull("acme/pii", site.url)
    copy = RemoteCopy(registry.id, site.url)
    old = (copy.store.root / index_path("acme/pii")).read_bytes()
    registry.make(seed="b")
    other.pull("acme/pii", site.url)
    (copy.store.root / index_path("acme/pii")).write_bytes(old)
    index = copy.read_index("acme/pii")
    assert index is not None and index.token == ""
    site.answers.clear()
    assert str(other.pull("acme/pii", site.url).versions[0]) == "0.1.1"
    assert site.answers == [200]
    for damaged in (b"", b"{", b"[]", b'{"token": 3}', b"\xff"):
        (copy.store.root / "local" / "tokens" / "acme" / "pii.json").write_bytes(damaged)
        site.answers.clear()
        other.pull("acme/pii", site.url)
        assert site.answers == [200]


def test_a_damaged_copy_does_no_harm(sealed, other, site):
    """The registry itself has what is needed."""
    other.fetch_index(["acme/pii"], site.url)
    documents = list((RemoteCopy(sealed.id, site.url).store.root / "blobs").rglob("*/*/*"))
    assert documents
    for path in documents:
        path.chmod(0o600)
        path.write_bytes(b"rot")
    assert other.pull("acme/pii:0.1.0", site.url).events == 1


def test_another_registry_at_the_same_url_is_found_out(registry, other, site, tmp_path):
    """Though nobody asks for its identity any more."""
    registry.make()
    other.pull("acme/pii", site.url)
    stranger = Home(tmp_path / "stranger")
    stranger.make(seed="evil")
    for path in ("registry.json", index_path("acme/pii")):
        (registry.store.root / path).write_bytes((stranger.store.root / path).read_bytes())
    for url in (site.url, f"{site.url}/"):
        for work in (partial(other.pull, "acme/pii", url), partial(other.fetch_index, ["acme/pii"], url)):
            with pytest.raises(IntegrityError, match="holds another registry than before"):
                work()


@pytest.mark.parametrize("damage", ["cut", "swapped", "of another registry"])
def test_an_invalid_index_is_not_remembered(registry, other, site, tmp_path, damage):
    """Whoever works offline then still has what was seen before."""
    registry.make()
    registry.make(name="acme/ner")
    stranger = Home(tmp_path / "stranger")
    stranger.make(seed="evil")
    other.fetch_index(["acme/pii"], site.url)
    path = registry.store.root / index_path("acme/pii")
    path.write_bytes(
        {
            "cut": path.read_bytes()[:300],
            "swapped": (registry.store.root / index_path("acme/ner")).read_bytes(),
            "of another registry": (stranger.store.root / index_path("acme/pii")).read_bytes(),
        }[damage]
    )
    with pytest.raises(IntegrityError):
        other.fetch_index(["acme/pii"], site.url)
    offline = other.remotes.read(site.url, offline=lambda name, age: None)
    assert str(other.find("acme/pii", offline).version) == "0.1.0"


def test_a_registry_that_cannot_be_written_may_ask_a_remote(registry, other, site, tmp_path):
    """Neither its pin nor its tracking copy can be kept: directories stand where their files would."""
    registry.make()
    other.remotes.add("here", str(tmp_path))
    lock = state_directory() / "remotes.lock"
    lock.unlink(missing_ok=True)
    lock.mkdir()
    (state_directory() / "tracking").write_bytes(b"")
    assert str(other.find("acme/pii", other.remotes.read(site.url)).version) == "0.1.0"
    assert main(["--registry", str(tmp_path / "nowhere"), "resolve", "acme/pii", "--remote", site.url]) == 0
    with pytest.raises(HostError, match=r"tracking.* failed"):
        other.fetch_index(["acme/pii"], site.url)


class TestOffline:
    @pytest.fixture
    def reg(self, other, capfd) -> Callable[..., Any]:
        def run(*words: str, status: int = 0) -> Any:
            capfd.readouterr()
            assert other.reg(*words, "--json") == status
            out, err = capfd.readouterr()
            return json.loads(out or err.splitlines()[-1]), err

        return run

    @pytest.fixture
    def gone(self, sealed, other) -> str:
        """A remote that was seen once and cannot be reached any more."""
        sealed.make(name="acme/ner")
        place = sealed.store.root
        other.fetch_index([], str(place))
        place.rename(place.with_name("elsewhere"))
        return str(place)

    def test_answers_what_an_index_file_answers(self, gone, reg):
        there = ("--remote", gone, "--offline")
        listed, _ = reg("ls", *there)
        assert [model["name"] for model in listed["models"]] == ["acme/ner", "acme/pii"]
        versions, notice = reg("ls", "acme/pii", *there)
        assert [version["version"] for version in versions["versions"]] == ["0.1.1", "0.1.0"]
        assert "offline: acme/pii as it was" in notice
        lines, _ = reg("log", "acme/pii", *there)
        assert len(lines["lines"]) == SEGMENT_LINES + 5

    @pytest.mark.parametrize("ago", [3 * 3600 + 5, -3 * 3600 - 60])
    def test_says_how_old_the_answer_is_and_refuses_an_older_one(self, gone, reg, monkeypatch, ago):
        token = next((state_directory() / "tracking").glob("*/local/tokens/acme/pii.json"))
        then = time.time() - ago
        os.utime(token, (then, then))
        for verb in ("resolve", "ls", "log"):
            words = verb, "acme/pii", "--remote", gone, "--offline"
            assert "offline: acme/pii as it was 3 h 0" in reg(*words, "--max-age", "4h")[1]
            error, _ = reg(*words, "--max-age", "3h", status=8)
            assert error["error"]["family"] == "gate"
            assert "acme/pii is 3 h 0" in error["error"]["message"]
            monkeypatch.setenv("REG_MAX_AGE", "1h")
            reg(*words, status=8)
            reg(*words, "--max-age", "1d")
            monkeypatch.delenv("REG_MAX_AGE")
        error, _ = reg("resolve", "acme/pii", "--remote", gone, "--offline", "--max-age", "soon", status=2)
        assert "12h or 7d" in error["error"]["hint"]

    def test_the_policies_have_an_age_too(self, sealed, reg):
        owner.set_policy(sealed, Policy())
        place = sealed.place
        for words in (["index", "fetch"], ["log", ".policy", "--offline", "--max-age", "1h"]):
            notice = reg(*words, "--remote", place)[1]
        assert "offline: .policy as it was" in notice
        token = next((state_directory() / "tracking").glob("*/local/tokens/.policy.json"))
        os.utime(token, (time.time() - 7200,) * 2)
        reg("log", ".policy", "--remote", place, "--offline", "--max-age", "1h", status=8)

    def test_refuses_what_lacks_the_signatures_that_are_required_now(self, gone, reg):
        trust_file().parent.mkdir(parents=True, exist_ok=True)
        trust_file().write_text('[[require]]\nmodels = ["acme/pii"]\nlines = true\n')
        for verb in ("resolve", "ls", "log"):
            reg(verb, "acme/pii", "--remote", gone, "--offline", status=4)
        reg("resolve", "acme/ner", "--remote", gone, "--offline")

    def test_says_that_a_document_is_at_the_remote_only(self, sealed, reg):
        for seed in "cdefg":
            sealed.make(seed=seed)
        there = ("--remote", sealed.place, "--offline")
        reg("index", "fetch", "--remote", sealed.place)
        reg("resolve", "acme/pii:0.1.6", *there)
        error, _ = reg("resolve", "acme/pii:0.1.2", *there, status=6)
        assert error["error"]["family"] == "remote"
        reg("resolve", "acme/pii:0.1.2", *there[:2])

    def test_does_not_know_what_was_never_seen(self, gone, reg, tmp_path):
        never = str(tmp_path / "never")
        error, _ = reg("ls", "acme/pii", "--remote", never, "--offline", status=3)
        assert "nothing was ever remembered" in error["error"]["message"]
        assert f"reg index fetch --remote {never}" in error["error"]["hint"]
        error, _ = reg("ls", "acme/pi", "--remote", gone, "--offline", status=3)
        assert "acme/pii" in error["error"]["hint"]

    def test_fetches_what_patterns_name(self, registry, reg):
        for name in ("acme/pii", "acme/ner", "lab/x"):
            registry.make(name=name)
        place = registry.place
        fetched, _ = reg("index", "fetch", "acme/*", "--remote", place)
        assert [model["name"] for model in fetched["models"]] == ["acme/ner", "acme/pii"]
        assert fetched["models"][0]["newest"] == "0.1.0"
        error, _ = reg("index", "fetch", "nobody/*", "--remote", place, status=3)
        assert "nobody/*" in error["error"]["message"]
        with pytest.raises(NotFoundError):
            registry.fetch_index(["acme/nobody"], place)


@pytest.mark.parametrize(
    "url",
    [
        "sftp://me:hunter2@host/x",
        "file://me:hunter2@host/x",
        "memory://me:hunter2@x",
        "https://host/x?token=hunter2",
        "hf://acme/models?token=hunter2",
        "s3://models/x?endpoint=https://me:hunter2@host",
        "gs://models/x?X-Goog-Signature=hunter2",
    ],
)
def test_no_secret_of_a_url_is_kept_or_shown(registry, capfd, url):
    for words in (
        ["remote", "add", "there", url],
        ["doctor", url],
        ["ls", "--remote", url],
        ["push", "a", url],
    ):
        assert registry.reg(*words) in (2, 3)
        assert "hunter2" not in "".join(capfd.readouterr())
    kept = (path for path in registry.store.root.rglob("*") if path.is_file())
    assert not any(b"hunter2" in path.read_bytes() for path in kept)


def test_a_path_that_is_not_text_is_a_remote_like_others(registry, other, tmp_path):
    registry.make()
    try:
        (tmp_path / os.fsdecode(b"caf\xe9")).mkdir()
    except OSError:
        pytest.skip("this file system has text names only")
    odd, good = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"), str(tmp_path / "good")
    for place in (odd, good):
        registry.remotes.add("name" if place == odd else "origin", place)
        assert registry.push("acme/pii", place).blobs
    assert other.pull("acme/pii", odd).blobs
    assert registry.push("acme/pii", "name").blobs == 0
    assert len(registry.remotes.pins) == 2
    other.fetch_index(["acme/pii"], odd)
    assert other.remotes.read(odd, offline=lambda name, age: None).read_index("acme/pii") is not None
    assert main(["mirror", odd, str(tmp_path / "mirror")]) == 0
