"""`verify --repair`, `gc`, `du`, `doctor`, here and of remotes; `mirror`: through the command line."""

import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.command_line import Reg, make_draft
from support.registries import memory
from support.sampling import sampled
from support.servers.static import Manners, serve

from onnxreg.registry import Registry
from onnxreg.registry.remotes import open_url
from onnxreg.registry.store import requests
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import BlobKey, MemoryStore, blob_path
from onnxreg.schema.core.canonical import Digest

PII = "acme/pii:0.1.0"
Bucket = tuple[str, dict[str, bytes]]


@pytest.fixture(autouse=True)
def registry(here: Registry) -> Registry:
    return here


@pytest.fixture
def copied(home: Path, tmp_path: Path) -> Path:
    """A copy of the whole registry."""
    return Path(shutil.copytree(home, tmp_path / "copy"))


@pytest.fixture
def bucket(reg: Reg, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A registry in an object store to which everything here was pushed: its URL, and its objects."""
    url = "s3://models/prod"
    remote = memory.remote(url=url)
    monkeypatch.setattr("onnxreg.registry.remotes.open_registry", lambda *_: remote)
    assert reg("push", "--all", "--remote", url).status == 0
    assert isinstance(remote.store, MemoryStore)
    return url, remote.store.objects


@pytest.fixture
def served(home: Path) -> Iterator[str]:
    """The URL of the registry on a web server."""
    with serve(home) as url:
        yield url


def spoil(path: Path, data: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(data)


def kinds(done: Any) -> list[str]:
    return [damage["kind"] for damage in done.json["damages"]]


def test_repair_fetches_good_copies_and_says_what_stays(reg, registry, copied):
    artifacts = registry.get(PII).manifest.artifacts[:2]
    for artifact in artifacts:
        (registry.store.root / blob_path(artifact.digest)).unlink()
    found = reg("verify", "--json")
    assert (found.status, kinds(found)) == (4, ["missing"] * 2)
    assert "reg verify --repair --from" in found.error["hint"]
    done = reg("verify", "--repair", "--from", copied, "--json")
    assert (done.status, done.json["ok"], done.json["damages"]) == (0, True, [])
    assert {item["digest"] for item in done.json["repaired"]} == {str(item.digest) for item in artifacts}
    assert reg("verify", "--repair", "--from", copied).ended(0, "all intact")
    reg("remote", "add", "origin", copied)
    for root in (registry.store.root, copied):
        (root / blob_path(artifacts[0].digest)).unlink()
    stays = reg("verify", "--repair")
    assert stays.ended(4, f"{copied} has no good copy", "error: 1 damaged part left in ")


def test_a_model_that_was_there_before_is_missed(reg, home):
    assert reg("resolve", "acme/pii").ended(0, "refused (`reg show`")
    (home / "index" / "acme" / "pii.jsonl").unlink()
    done = reg("verify", "--json")
    assert [(item["kind"], item["name"]) for item in done.json["damages"]] == [("history", "acme/pii")]
    assert done.status == reg("verify", "acme/pii").status == 4


def test_doctor_ends_with_the_status_of_the_worst_finding(reg, home, copied, tmp_path, served):
    reg("remote", "add", "copy", copied)
    found = reg("doctor", "copy", "--json")
    assert (found.status, found.json["registry"], found.json["ok"]) == (0, str(copied), True)
    assert [item["check"] for item in found.json["findings"]] == ["registry.json", "files"]
    web = reg("doctor", served, "--json")
    assert (web.status, [item["check"] for item in web.json["findings"]]) == (0, ["registry.json"])
    copied.rename(tmp_path / "moved")
    assert reg("doctor").ended(3, "remote copy")
    (home / "stray").write_bytes(b"")
    done = reg("doctor", "--json")
    bad = [item["check"] for item in done.json["findings"] if not item["ok"]]
    assert (done.status, bad) == (4, ["files", "remote copy"])
    (home / "stray").unlink()
    reg("remote", "remove", "copy")
    assert (reg("doctor").status, reg("--registry", "nowhere", "doctor").status) == (0, 3)


@pytest.mark.parametrize("path", ["gc/condemned/0123456789abcdef", "photo.jpg", "index/Bad Name.jsonl"])
def test_the_fix_of_what_is_left_in_a_remote_is_a_command_that_works(reg, bucket, path):
    url, objects = bucket
    whole = objects.copy()
    objects[path] = b""
    (finding,) = (item for item in reg("doctor", url, "--json").json["findings"] if not item["ok"])
    words = shlex.split(finding["fix"])
    assert words[:3] == ["reg", "doctor", url]
    assert reg(*words[1:]).out == f"deleted {path}\n"
    assert objects == whole and reg("doctor", url).status == 0


def test_only_what_is_no_part_of_the_registry_is_cleared(reg, registry, bucket):
    url, objects = bucket
    objects["photo.jpg"], intent = b"", "gc/intents/0123456789abcdef"
    objects[intent] = b"{}"
    before = objects.copy()
    for path in ("registry.json", "index/tiny.jsonl", intent):
        refused = reg("doctor", url, "--clear", "photo.jpg", "--clear", path)
        assert refused.ended(2, "is a part of the registry")
    assert reg("doctor", url, "--clear", "photo.jpg", "--clear", "photo.png").status == 3
    assert objects == before
    cleared = reg("doctor", url, "--clear", "photo.jpg", "--json").json
    assert cleared == {"registry": url, "cleared": ["photo.jpg"]}
    with registry.store.push() as push:
        registry.store.add_note("condemned", push.id, b"")
        assert reg("doctor", "--clear", f"gc/condemned/{push.id}").ended(5, "runs")
    assert reg("doctor", "--clear", f"gc/condemned/{push.id}").status == reg("doctor").status == 0


# Mirrors


def test_mirror_follows_and_is_read_only(reg, home, tmp_path):
    mirror = tmp_path / "mirror"
    done = reg("mirror", home, mirror)
    assert (done.status, done.err) == (0, "") and done.out.splitlines()[1].startswith("brought 3 versions, ")
    for name in ("acme/pii", "tiny"):
        assert reg("--registry", mirror, "log", name).out == reg("log", name).out
    refused = reg("--registry", mirror, "yank", "tiny:0.1.0")
    assert refused.ended(5, "reg mirror MIRROR NEW --new-id")
    assert reg("--registry", mirror, "verify").status == reg("--registry", mirror, "doctor").status == 0
    own = reg("mirror", mirror, "./own", "--new-id", "--channels", "--json")
    assert (own.status, own.json["versions"], own.json["events"]) == (0, 3, 4)
    assert reg("--registry", "own", "tag", "acme/pii:0.2.0", "stable").status == 0
    assert reg("mirror", home, mirror, "--new-id").status == 2
    reg("untag", "acme/pii:stable")
    reg("mirror", home, mirror)
    before = files(mirror)
    for words in ((), ("--dry-run",)):
        assert reg("gc", "--remote", mirror, "--keep-versions", "1", *words).ended(5, "read-only")
    assert reg("gc", "--remote", mirror).status == 0 and files(mirror) == before
    reg("purge", "acme/pii:0.2.0", "--reason", "leaked")
    found = reg("mirror", home, mirror, "--json").json
    counts = [found[key] for key in ("models", "versions", "events", "blobs", "bytes")]
    assert (counts, found["freed"]["blobs"], found["skipped"]) == ([2, 0, 1, 0, 0], 2, [])


def test_a_mirror_to_which_nothing_came_yet_says_so(reg, registry, tmp_path):
    half = tmp_path / "half"
    DirectoryRegistry.create(half, mirror_of=registry.id)
    for words, status in ((("ls",), 0), (("resolve", "tiny"), 3)):
        done = reg("--registry", half, *words)
        assert done.ended(status, "may be incomplete", "`reg mirror` into it goes on")
    assert reg("mirror", registry.store.root, half).status == 0
    assert reg("--registry", half, "ls").out == reg("ls").out


def test_a_mirror_lists_what_stays_behind_and_refuses_a_fork(reg, home, copied, tmp_path):
    Registry("own").add(make_draft(tmp_path / "work", seed="z"), "0.1.0")
    done = reg("mirror", home, "./own")
    assert done.ended(5, "has manifest") and done.out.splitlines()[1].split()[:2] == ["acme/pii", "0.1.0"]
    for root in (home, copied):
        reg("--registry", root, "tag", "tiny", "stable")
    assert reg("mirror", home, copied).ended(4, "different histories of tiny")


# Registries elsewhere


@pytest.mark.parametrize("status", sampled([401, 503], 2))
@pytest.mark.parametrize("part", sampled(["policy.jsonl", "index", "blob", "manifest"], 2))
def test_what_a_server_does_not_give_is_not_damaged(reg, registry, home, monkeypatch, part, status):
    """A server that is busy, or that wants a token, says nothing about the bytes that it has."""
    monkeypatch.setattr(requests, "MAX_TRIES", 1)
    version = registry.get(PII)
    paths = {"index": "index/acme/pii.jsonl", "manifest": blob_path(version.digest)}
    paths["blob"] = blob_path(version.manifest.artifacts[0].digest)
    path = paths.get(part, part)
    with serve(home, Manners(refused={path: (status, {})})) as url:
        for words in (("--remote", url, "acme/pii"), ("--remote", url, "acme/pii", "--json")):
            done = reg("verify", *words)
            assert done.ended(6, str(status)) and "repair" not in done.err
        if part != "index":
            assert set(kinds(done)) == {"unreadable"}
        if part in ("policy.jsonl", "blob"):
            (home / blob_path(version.manifest.artifacts[1].digest)).unlink()
            assert reg("verify", "--remote", url, "acme/pii").ended(4, "1 damaged part")


def test_what_a_disk_does_not_give_is_not_damaged(reg, registry, home, other_user):
    """A blob of another user, who lets nobody read it."""
    place, user = other_user(home), os.geteuid()
    (place / blob_path(registry.get(PII).manifest.artifacts[0].digest)).chmod(0)
    try:
        os.seteuid(65534) if user == 0 else None
        done = reg("--registry", place, "verify")
    finally:
        os.seteuid(user)
    assert done.ended(9, "unreadable") and "repair" not in done.err


def files(root: Path) -> set[str]:
    found = (path for path in root.rglob("*") if path.is_file() and "local" not in path.parts)
    return {str(path.relative_to(root)) for path in found}


@pytest.mark.parametrize("words", ["verify", "verify --signatures", "du", "gc --dry-run", "policy show"])
def test_work_on_a_remote_makes_no_registry_here(words, reg, home):
    assert reg("--registry", "none", *words.split(), "--remote", home).status == 0
    assert not Path("none/registry.json").exists()


def test_gc_of_a_remote_frees_there_and_not_here(reg, home, bucket):
    url, objects = bucket
    stray = BlobKey(Digest.of(b"unreferenced")).path
    objects[stray] = b"unreferenced"
    (home / stray).parent.mkdir(parents=True, exist_ok=True)
    (home / stray).write_bytes(b"unreferenced")
    would = reg("gc", "--remote", url, "--dry-run", "--json").json
    assert would["freed"] == {"blobs": 1, "bytes": 12} and stray in objects
    assert reg("gc", "--remote", url).ended(0, "freed 1 blob, 12 B")
    assert stray not in objects and (home / stray).exists()
    found = reg("gc", "--remote", url, "--keep-versions", "1", "--json")
    assert (found.status, found.json["expired"]) == (0, [PII])
    assert reg("show", PII).status == 0 and "expire" not in reg("log", "acme/pii").out
    (there,) = reg("du", "acme/pii", "--remote", url, "--json").json["models"]
    assert there["versions"] == 1 and open_url(url).registry_id != Registry(home).id
    assert reg("verify", "--remote", url).status == 0


def test_a_remote_is_repaired_from_here_and_not_from_itself(reg, registry, copied, bucket):
    url, objects = bucket
    weights, other = (artifact.digest for artifact in registry.get(PII).manifest.artifacts[:2])
    del objects[blob_path(weights)]
    objects[blob_path(other)] = b"other bytes"
    found = reg("verify", "--remote", url, "--json")
    assert (found.status, set(kinds(found))) == (4, {"missing", "short"})
    assert found.error["message"] == f"2 damaged parts in {url}"
    assert f"reg verify --remote {url} --repair --from REMOTE" in found.error["hint"]
    assert reg("verify", "--remote", url, "acme/pii:0.2.0").status == 0
    for place in (copied, url):
        assert reg("verify", "--remote", place, "--repair", "--from", place).ended(5, "itself")
    done = reg("verify", "--remote", url, "--repair", "--json")
    assert {item["digest"] for item in done.json["repaired"]} == {str(weights), str(other)}
    assert done.status == 0 and Digest.of(objects[blob_path(other)]) == other


def test_a_damaged_index_of_a_remote_is_kept_aside_here(reg, home, copied):
    reg("mirror", home, "./mirror")
    (copied / "index/tiny.jsonl").write_bytes(b"damaged")
    alone = reg("verify", "--remote", copied, "tiny", "--repair", "--from", "./mirror", "--json")
    assert alone.status == 0
    assert (copied / "index/tiny.jsonl").read_bytes() == (home / "index/tiny.jsonl").read_bytes()
    (kept,) = (home / "local/damaged" / Registry(copied).id).iterdir()
    assert kept.read_bytes() == b"damaged" and kept.name in alone.json["repaired"][0]["detail"]
    assert not (copied / "local/damaged").exists()


def test_a_web_server_is_verified_model_by_model(reg, registry, home, served):
    before = files(home)
    for words in (["gc"], ["gc", "--dry-run"], ["gc", "--keep-versions", "1"], ["du"]):
        assert reg(*words, "--remote", served).ended(6, "the place that it is served from")
    assert files(home) == before
    assert reg("verify", "--remote", served).ended(6, "does not list", "name the model")
    found = reg("verify", "--remote", served, "acme/pii", "--json")
    assert (found.status, found.json["versions"], found.json["ok"]) == (0, 2, True)
    assert found.json["blobs"] == reg("verify", "acme/pii", "--json").json["blobs"]
    first, second = registry.get(PII).manifest.artifacts[:2]
    (home / blob_path(first.digest)).rename(home / BlobKey(first.digest, 2).path)
    assert reg("verify", "--remote", served, PII).status == 0
    (home / BlobKey(first.digest, 2).path).unlink()
    spoil(home / blob_path(second.digest), b"x" * second.size)
    found = reg("verify", "--remote", served, PII, "--json")
    damages = {(item["kind"], item["digest"]) for item in found.json["damages"]}
    assert damages == {("missing", str(first.digest)), ("damaged", str(second.digest))}
    assert (found.status, reg("verify", "--remote", served, "acme/pii:0.2.0").status) == (4, 0)
    assert reg("verify", "--remote", served, "nobody").status == 3


@pytest.mark.parametrize("part", ["weights", "manifest", "index"])
def test_damage_of_a_remote_is_looked_for_there(part, reg, registry, copied):
    published, pull = registry.get(PII), ("--registry", "fresh", "pull", PII, copied, "--json")
    paths = {
        "weights": blob_path(published.manifest.artifacts[0].digest),
        "manifest": blob_path(published.digest),
    }
    path = copied / paths.get(part, "index/acme/pii.jsonl")
    words = [pull]
    if part == "index":
        words = [(verb, "acme/pii", "--remote", copied, "--json") for verb in ("resolve", "ls", "pull")]
        assert reg(*words[0]).status == 0
        spoil(path, path.read_bytes().replace(b'"size":', b'"size":1', 1))
    else:
        spoil(path, path.read_bytes()[:-1] + b"?")
    for line in words:
        done = reg(*line)
        assert (done.status, done.error["family"]) == (4, "integrity") and "with --remote" in done.error[
            "hint"
        ]
