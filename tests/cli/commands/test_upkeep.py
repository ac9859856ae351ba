"""`verify --repair`, `gc`, `du`, `doctor`, here and of remotes; `mirror`: through the command line."""

import os
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from support.servers.static import Manners, serve

from onnxreg.registry import Registry
from onnxreg.registry.store import requests
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.layout import BlobKey, blob_path
from onnxreg.registry.store.open import open_url
from onnxreg.registry.store.protocol import MemoryStore, memory_remote
from onnxreg.schema.core.digest import Digest

Reg = Callable[..., Any]


@pytest.fixture(autouse=True)
def registry(home: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setenv("REG_HOME", str(home))
    return Registry(home)


@pytest.fixture
def copied(home: Path, tmp_path: Path) -> Path:
    """A copy of the whole registry."""
    return Path(shutil.copytree(home, tmp_path / "copy"))


def test_repair_fetches_good_copies(reg: Reg, registry: Registry, copied: Path) -> None:
    weights, config = registry.get("acme/pii:0.1.0").manifest.artifacts[:2]
    for artifact in (weights, config):
        (registry.store.root / blob_path(artifact.digest)).unlink()
    found = reg("verify", "--json")
    assert found.status == 4 and [damage["kind"] for damage in found.json["damages"]] == ["missing"] * 2
    assert "reg verify --repair --from" in found.error["hint"]
    done = reg("verify", "--repair", "--from", copied, "--json")
    assert done.status == 0
    assert done.json.keys() == found.json.keys() | {"repaired"}
    assert done.json["ok"] and done.json["damages"] == []
    assert {item["digest"] for item in done.json["repaired"]} == {str(weights.digest), str(config.digest)}
    again = reg("verify", "--repair", "--from", copied)
    assert again.status == 0 and "all intact" in again.out


def test_repair_uses_the_configured_remote_and_says_what_stays(
    reg: Reg, registry: Registry, copied: Path
) -> None:
    reg("remote", "add", "origin", copied)
    weights = registry.get("acme/pii:0.1.0").manifest.artifacts[0]
    for root in (registry.store.root, copied):
        (root / blob_path(weights.digest)).unlink()
    done = reg("verify", "--repair")
    assert done.status == 4
    assert f"{copied} has no good copy" in done.out
    assert done.err.startswith("error: 1 damaged part left in ")


def test_repair_of_one_model_without_any_remote(reg: Reg, home: Path) -> None:
    index = home / "index" / "tiny.jsonl"
    good = index.read_bytes()
    index.write_bytes(
        good.replace(b'"channels":{', b'"catalog":1,"channels":{').replace(
            b'"seq":1,"size"', b'"seq":2,"size"'
        )
    )
    assert reg("verify", "tiny").status == 4
    assert reg("verify", "tiny", "--repair").out.splitlines()[1].split()[:2] == ["log", "tiny"]
    assert index.read_bytes() == good


def test_a_model_that_was_there_before_is_missed(reg: Reg, home: Path) -> None:
    assert reg("resolve", "acme/pii").status == 0
    (home / "index" / "acme" / "pii.jsonl").unlink()
    done = reg("verify", "--json")
    assert (done.status, [(item["kind"], item["name"]) for item in done.json["damages"]]) == (
        4,
        [("history", "acme/pii")],
    )
    assert reg("verify", "acme/pii").status == 4


def test_from_needs_repair(reg: Reg, copied: Path) -> None:
    assert reg("verify", "--from", copied).status == 2


def test_du_shows_the_space_of_each_model(reg: Reg) -> None:
    found = reg("du", "--json").json
    assert [model["name"] for model in found["models"]] == ["acme/pii", "tiny"]
    assert found["models"][1].keys() == {"name", "versions", "blobs", "bytes", "unique", "shared"}
    assert sum(model["unique"] for model in found["models"]) < found["total"]["bytes"]
    lines = reg("du", "tiny").out.splitlines()
    assert lines[0].split() == ["NAME", "VERSIONS", "UNIQUE", "SHARED", "SIZE"]
    assert lines[1].split()[0] == "tiny" and lines[2] == "unreferenced: 0 blobs, 0 B"
    assert reg("du", "nobody").status == 3


def test_doctor_of_a_healthy_registry_and_of_a_remote(reg: Reg, home: Path, copied: Path) -> None:
    done = reg("doctor")
    assert (done.status, done.err) == (0, "")
    assert all(line.split()[-1] for line in done.out.splitlines())
    reg("remote", "add", "copy", copied)
    found = reg("doctor", "copy", "--json")
    assert found.status == 0
    assert (found.json["registry"], found.json["ok"]) == (str(copied), True)
    assert all(item.keys() == {"check", "ok", "detail", "fix"} for item in found.json["findings"])
    assert [item["check"] for item in found.json["findings"]] == ["registry.json", "files"]


def test_the_worst_finding_decides_the_exit_status(
    reg: Reg, home: Path, copied: Path, tmp_path: Path
) -> None:
    reg("remote", "add", "copy", copied)
    copied.rename(tmp_path / "moved")
    done = reg("doctor")
    assert done.status == 3 and "remote copy" in done.err
    (home / "stray").write_bytes(b"")
    done = reg("doctor", "--json")
    assert done.status == 4
    assert [item["check"] for item in done.json["findings"] if not item["ok"]] == ["files", "remote copy"]
    (home / "stray").unlink()
    reg("remote", "remove", "copy")
    assert reg("doctor").status == 0
    assert reg("--registry", "nowhere", "doctor").status == 3


def test_mirror_follows_and_is_read_only(reg: Reg, home: Path, tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    done = reg("mirror", home, mirror)
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines()[1].startswith("brought 3 versions, ")
    for name in ("acme/pii", "tiny"):
        assert reg("--registry", mirror, "log", name).out == reg("log", name).out
    refused = reg("--registry", mirror, "yank", "tiny:0.1.0")
    assert refused.status == 5 and "reg mirror MIRROR NEW --new-id" in refused.err
    assert reg("--registry", mirror, "verify").status == reg("--registry", mirror, "doctor").status == 0
    reg("untag", "acme/pii:stable")
    reg("purge", "acme/pii:0.2.0", "--reason", "leaked")
    found = reg("mirror", home, mirror, "--json").json
    assert found == {
        "source": str(home),
        "destination": str(mirror),
        "models": 2,
        "versions": 0,
        "events": 2,
        "blobs": 0,
        "bytes": 0,
        "freed": {"blobs": 2, "bytes": found["freed"]["bytes"]},
        "skipped": [],
    }
    assert found["freed"]["bytes"] > 0


def test_a_mirror_to_which_nothing_came_yet_says_so(reg: Reg, registry: Registry, tmp_path: Path) -> None:
    half = tmp_path / "half"
    DirectoryRegistry.create(half, mirror_of=registry.id)
    listed, asked = reg("--registry", half, "ls"), reg("--registry", half, "resolve", "tiny")
    assert (listed.status, asked.status) == (0, 3)
    for said in (listed.out, asked.err):
        assert "may be incomplete" in said and "`reg mirror` into it goes on" in said
    assert reg("mirror", registry.store.root, half).status == 0
    assert reg("--registry", half, "ls").out == reg("ls").out


def test_a_mirror_becomes_a_registry_of_its_own(reg: Reg, home: Path, tmp_path: Path) -> None:
    reg("mirror", home, "./mirror")
    done = reg("mirror", "./mirror", "./own", "--new-id", "--channels", "--json")
    assert (done.status, done.json["versions"], done.json["events"]) == (0, 3, 4)
    kinds = [
        line["event"]["kind"] for line in reg("--registry", "own", "log", "acme/pii", "--json").json["lines"]
    ]
    assert sorted(kinds) == ["publish", "publish", "tag"]
    assert reg("--registry", "own", "tag", "acme/pii:0.2.0", "stable").status == 0
    assert reg("mirror", home, "./own", "--json").json["events"] == 0
    assert reg("mirror", home, "./mirror", "--new-id").status == 2


def test_mirror_lists_what_stays_behind(reg: Reg, home: Path, draft: Callable[..., Any]) -> None:
    own = Registry("own")
    own.add(draft(Path("work"), seed="z"), "0.1.0")
    done = reg("mirror", home, "./own")
    assert done.status == 5 and "has manifest" in done.err
    assert done.out.splitlines()[1].split()[:2] == ["acme/pii", "0.1.0"]
    assert reg("--registry", "own", "show", "acme/pii:0.2.0").status == 0


def test_mirror_of_a_fork_is_refused(reg: Reg, home: Path, copied: Path) -> None:
    for registry in (home, copied):
        reg("--registry", registry, "tag", "tiny", "stable")
    done = reg("mirror", home, copied)
    assert done.status == 4 and "different histories of tiny" in done.err


# Registries elsewhere


@pytest.fixture
def bucket(reg: Reg, monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict[str, bytes]]:
    """A registry in an object store to which everything here was pushed: its URL, and its objects."""
    url = "s3://models/prod"
    remote = memory_remote(url=url)
    monkeypatch.setattr("onnxreg.registry.store.bucket.bucket_remote", lambda *_: remote)
    for ref in ("acme/pii:0.1.0", "acme/pii:0.2.0", "tiny:0.1.0"):
        assert reg("push", ref, url).status == 0
    assert isinstance(remote.store, MemoryStore)
    return url, remote.store.objects


@pytest.fixture
def served(home: Path) -> Iterator[str]:
    """The URL of the registry on a web server."""
    with serve(home) as url:
        yield url


@pytest.mark.parametrize("status", [401, 403, 503])
@pytest.mark.parametrize("part", ["policy.jsonl", "index", "blob", "manifest"])
def test_what_a_server_does_not_give_is_not_damaged(
    reg: Reg, registry: Registry, home: Path, monkeypatch: pytest.MonkeyPatch, part: str, status: int
) -> None:
    """A server that is busy, or that wants a token, says nothing about the bytes that it has."""
    monkeypatch.setattr(requests, "MAX_TRIES", 1)
    version = registry.get("acme/pii:0.1.0")
    path = {
        "index": "index/acme/pii.jsonl",
        "blob": blob_path(version.manifest.artifacts[0].digest),
        "manifest": blob_path(version.digest),
    }.get(part, part)
    with serve(home, Manners(refused={path: (status, {})})) as url:
        for words in (("--remote", url, "acme/pii"), ("--remote", url, "acme/pii", "--json")):
            done = reg("verify", *words)
            assert done.status == 6, done
            assert "repair" not in done.err and str(status) in done.out + done.err
    if part != "index":
        assert {damage["kind"] for damage in done.json["damages"]} == {"unreadable"}
    if part in ("policy.jsonl", "blob"):
        (home / blob_path(version.manifest.artifacts[1].digest)).unlink()
        with serve(home, Manners(refused={path: (status, {})})) as url:
            done = reg("verify", "--remote", url, "acme/pii")
            assert done.status == 4 and "1 damaged part" in done.err, done


def test_what_a_disk_does_not_give_is_not_damaged(
    reg: Reg, registry: Registry, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A blob of another user, who lets nobody read it."""
    assert reg("verify").status == 0
    digest = registry.get("acme/pii:0.1.0").manifest.artifacts[0].digest
    with TemporaryDirectory(dir="/tmp") as above:
        Path(above).chmod(0o755)
        place = Path(shutil.copytree(home, Path(above) / "home"))
        (place / blob_path(digest)).chmod(0)
        for own in ("STATE", "TRUST"):
            monkeypatch.setenv(f"REG_{own}", str(Path(above) / "own" / own.lower()))
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            done = reg("--registry", place, "verify")
        finally:
            os.seteuid(user)
        assert done.status == 9 and "repair" not in done.err, done
        assert "unreadable" in done.out


def files(root: Path) -> set[str]:
    found = (path for path in root.rglob("*") if path.is_file() and "local" not in path.parts)
    return {str(path.relative_to(root)) for path in found}


@pytest.mark.parametrize(
    "words", [("verify",), ("verify", "--signatures"), ("du",), ("gc", "--dry-run"), ("policy", "show")]
)
def test_work_on_a_remote_makes_no_registry_here(
    words: tuple[str, ...], reg: Reg, home: Path, tmp_path: Path
) -> None:
    done = reg("--registry", tmp_path / "none", *words, "--remote", home)
    assert done.status == 0
    assert not (tmp_path / "none" / "registry.json").exists()


def test_gc_of_a_remote_frees_there_and_not_here(reg: Reg, home: Path, bucket: Any) -> None:
    url, objects = bucket
    stray = BlobKey(Digest.of(b"unreferenced")).path
    objects[stray] = b"unreferenced"
    (home / stray).parent.mkdir(parents=True, exist_ok=True)
    (home / stray).write_bytes(b"unreferenced")
    would = reg("gc", "--remote", url, "--dry-run", "--json")
    assert would.json["freed"] == {"blobs": 1, "bytes": 12} and stray in objects
    done = reg("gc", "--remote", url)
    assert (done.status, done.out.partition(";")[0]) == (0, "freed 1 blob, 12 B")
    assert stray not in objects and (home / stray).exists()
    assert reg("verify", "--remote", url).status == 0


def test_gc_of_a_remote_expires_on_its_record(reg: Reg, home: Path, bucket: Any) -> None:
    url, _ = bucket
    found = reg("gc", "--remote", url, "--keep-versions", "1", "--json")
    assert (found.status, found.json["expired"]) == (0, ["acme/pii:0.1.0"])
    assert reg("show", "acme/pii:0.1.0").status == 0
    assert "expire" not in reg("log", "acme/pii").out
    (there,) = reg("du", "acme/pii", "--remote", url, "--json").json["models"]
    assert there["versions"] == 1
    assert open_url(url).registry_id != Registry(home).id


def test_gc_of_a_remote_needs_no_registry_here(reg: Reg, copied: Path) -> None:
    remote = ("--remote", copied, "--dry-run", "--json")
    assert reg("--registry", "none", "gc", *remote).json["freed"]["blobs"] == 0


def test_gc_of_a_mirror_expires_nothing(reg: Reg, home: Path, tmp_path: Path) -> None:
    reg("untag", "acme/pii:stable")
    reg("mirror", home, tmp_path / "mirror")
    before = files(tmp_path / "mirror")
    refused = reg("gc", "--remote", tmp_path / "mirror", "--keep-versions", "1")
    assert refused.status == 5 and "read-only" in refused.err
    assert reg("gc", "--remote", tmp_path / "mirror").status == 0
    assert files(tmp_path / "mirror") == before


def test_a_remote_is_repaired_from_here(reg: Reg, registry: Registry, bucket: Any) -> None:
    url, objects = bucket
    weights, other = (artifact.digest for artifact in registry.get("acme/pii:0.1.0").manifest.artifacts[:2])
    del objects[blob_path(weights)]
    objects[blob_path(other)] = b"other bytes"
    found = reg("verify", "--remote", url, "--json")
    assert found.status == 4
    assert {damage["kind"] for damage in found.json["damages"]} == {"missing", "short"}
    assert found.error["message"] == f"2 damaged parts in {url}"
    assert f"reg verify --remote {url} --repair --from REMOTE" in found.error["hint"]
    assert reg("verify", "--remote", url, "acme/pii:0.2.0").status == 0
    done = reg("verify", "--remote", url, "--repair", "--json")
    assert done.status == 0
    assert {item["digest"] for item in done.json["repaired"]} == {str(weights), str(other)}
    assert Digest.of(objects[blob_path(other)]) == other


def test_a_damaged_index_of_a_remote_is_kept_aside_here(
    reg: Reg, home: Path, copied: Path, tmp_path: Path
) -> None:
    reg("mirror", home, tmp_path / "mirror")
    (copied / "index/tiny.jsonl").write_bytes(b"damaged")
    alone = reg("verify", "--remote", copied, "tiny", "--repair", "--from", tmp_path / "mirror", "--json")
    assert alone.status == 0
    assert (copied / "index/tiny.jsonl").read_bytes() == (home / "index/tiny.jsonl").read_bytes()
    (kept,) = (home / "local/damaged" / Registry(copied).id).iterdir()
    assert kept.read_bytes() == b"damaged" and kept.name in alone.json["repaired"][0]["detail"]
    assert not (copied / "local/damaged").exists()


def test_a_remote_is_not_repaired_from_itself(reg: Reg, copied: Path, bucket: Any) -> None:
    for place in (copied, bucket[0]):
        refused = reg("verify", "--remote", place, "--repair", "--from", place)
        assert refused.status == 5 and "itself" in refused.err


def test_a_web_server_is_verified_model_by_model(reg: Reg, registry: Registry, served: str) -> None:
    refused = reg("verify", "--remote", served)
    assert refused.status == 6
    assert "does not list" in refused.err and "name the model" in refused.err
    found = reg("verify", "--remote", served, "acme/pii", "--json")
    assert (found.status, found.json["versions"], found.json["ok"]) == (0, 2, True)
    assert found.json["blobs"] == reg("verify", "acme/pii", "--json").json["blobs"]
    first, second = registry.get("acme/pii:0.1.0").manifest.artifacts[:2]
    root = registry.store.root
    (root / blob_path(first.digest)).rename(root / BlobKey(first.digest, 2).path)
    assert reg("verify", "--remote", served, "acme/pii:0.1.0").status == 0
    (root / BlobKey(first.digest, 2).path).unlink()
    (root / blob_path(second.digest)).chmod(0o644)
    (root / blob_path(second.digest)).write_bytes(b"x" * second.size)
    found = reg("verify", "--remote", served, "acme/pii:0.1.0", "--json")
    assert found.status == 4
    assert {(item["kind"], item["digest"]) for item in found.json["damages"]} == {
        ("missing", str(first.digest)),
        ("damaged", str(second.digest)),
    }
    assert reg("verify", "--remote", served, "acme/pii:0.2.0").status == 0
    assert reg("verify", "--remote", served, "nobody").status == 3


def test_nothing_is_collected_at_a_web_server(reg: Reg, home: Path, served: str) -> None:
    before = files(home)
    for words in (["gc"], ["gc", "--dry-run"], ["gc", "--keep-versions", "1"], ["du"]):
        refused = reg(*words, "--remote", served)
        assert refused.status == 6 and "the place that it is served from" in refused.err
    assert files(home) == before


def test_a_web_server_is_looked_at_as_far_as_it_can_be(reg: Reg, served: str) -> None:
    found = reg("doctor", served, "--json")
    assert (found.status, [item["check"] for item in found.json["findings"]]) == (0, ["registry.json"])


@pytest.mark.parametrize("path", ["gc/condemned/0123456789abcdef", "photo.jpg", "index/Bad Name.jsonl"])
def test_the_fix_of_what_is_left_in_a_remote_is_a_command_that_works(
    reg: Reg, bucket: Any, path: str
) -> None:
    url, objects = bucket
    whole = objects.copy()
    objects[path] = b""
    (finding,) = (item for item in reg("doctor", url, "--json").json["findings"] if not item["ok"])
    words = shlex.split(finding["fix"])
    assert words[:3] == ["reg", "doctor", url]
    assert reg(*words[1:]).out == f"deleted {path}\n"
    assert objects == whole
    assert reg("doctor", url).status == 0


def test_only_what_is_no_part_of_the_registry_is_cleared(reg: Reg, bucket: Any) -> None:
    url, objects = bucket
    objects["photo.jpg"] = b""
    before = objects.copy()
    for path in ("registry.json", "index/tiny.jsonl", "gc/intents/0123456789abcdef"):
        objects["gc/intents/0123456789abcdef"] = b"{}"
        refused = reg("doctor", url, "--clear", "photo.jpg", "--clear", path)
        assert refused.status == 2 and "is a part of the registry" in refused.err
    del objects["gc/intents/0123456789abcdef"]
    assert reg("doctor", url, "--clear", "photo.jpg", "--clear", "photo.png").status == 3
    assert objects == before
    assert reg("doctor", url, "--clear", "photo.jpg", "--json").json == {
        "registry": url,
        "cleared": ["photo.jpg"],
    }


def test_the_note_of_a_collection_that_runs_is_not_cleared(reg: Reg, registry: Registry) -> None:
    with registry.store.push() as push:
        registry.store.add_note("condemned", push.id, b"")
        refused = reg("doctor", "--clear", f"gc/condemned/{push.id}")
        assert refused.status == 5 and "runs" in refused.err
    assert reg("doctor", "--clear", f"gc/condemned/{push.id}").status == 0
    assert reg("doctor").status == 0


@pytest.mark.parametrize("blob", ["weights", "manifest"])
def test_a_damaged_blob_of_a_remote_is_looked_for_there(
    blob: str, reg: Reg, registry: Registry, copied: Path
) -> None:
    published = registry.get("acme/pii:0.1.0")
    digests = {"weights": published.manifest.artifacts[0].digest, "manifest": published.digest}
    path = copied / blob_path(digests[blob])
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    done = reg("--registry", "fresh", "pull", "acme/pii:0.1.0", copied, "--json")
    assert (done.status, done.error["family"]) == (4, "integrity")
    assert "with --remote" in done.error["hint"]


def test_a_damaged_index_of_a_remote_is_looked_for_there(reg: Reg, home: Path, copied: Path) -> None:
    words = ("resolve", "tiny", "--remote", copied, "--json")
    assert reg(*words).status == 0
    index = copied / "index" / "tiny.jsonl"
    index.chmod(0o644)
    state, rest = index.read_text().split("\n", 1)
    index.write_text("\n".join((state.replace('"size":', '"size":1', 1), rest)))
    for verb in (words, ("ls", "tiny", "--remote", copied, "--json"), ("pull", "tiny", copied, "--json")):
        done = reg(*verb)
        assert done.status == 4
        assert "reg verify`, for a registry elsewhere with --remote" in done.error["hint"], done.error
