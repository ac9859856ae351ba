"""`verify --repair`, `du`, `doctor`, `mirror`: through the command line."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onnxreg.registry import Registry
from onnxreg.registry.storage import blob_path

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
    assert done.err.startswith("error: 1 damage left in ")


def test_repair_of_one_model_without_any_remote(reg: Reg, home: Path) -> None:
    index = home / "index" / "tiny.jsonl"
    good = index.read_bytes()
    index.write_bytes(good.replace(b'"newest":["0.1.0"]', b'"newest":[]'))
    assert reg("verify", "tiny").status == 4
    assert reg("verify", "tiny", "--repair").out.splitlines()[1].split()[:2] == ["log", "tiny"]
    assert index.read_bytes() == good


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
    assert {"registry.json", "permissions", "space", "locks", "compare-and-swap", "disk"} <= {
        item["check"] for item in found.json["findings"]
    }


def test_the_worst_finding_decides_the_exit_status(reg: Reg, home: Path) -> None:
    (home / "local/tmp/0123456789abcdef.lock").write_bytes(b"")
    done = reg("doctor")
    assert done.status == 9 and "scratch" in done.err
    assert f"reg --registry {home} gc" in done.out
    (home / "stray").write_bytes(b"")
    done = reg("doctor", "--json")
    assert done.status == 4
    assert [item["check"] for item in done.json["findings"] if not item["ok"]] == ["stray files", "scratch"]
    assert reg("gc").status == 0
    (home / "stray").unlink()
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


def test_a_mirror_becomes_a_registry_of_its_own(reg: Reg, home: Path, tmp_path: Path) -> None:
    reg("mirror", home, "./mirror")
    done = reg("mirror", "./mirror", "./own", "--new-id", "--channels", "--json")
    assert (done.status, done.json["versions"], done.json["events"]) == (0, 3, 4)
    assert reg("--registry", "own", "tag", "acme/pii:0.2.0", "stable").status == 0
    assert reg("mirror", home, "./own", "--json").json["events"] == 0
    assert reg("mirror", home, "./mirror", "--new-id").status == 2


def test_mirror_lists_what_stays_behind(reg: Reg, home: Path, draft: Callable[..., Any]) -> None:
    own = Registry("own")
    own.add(draft(Path("work"), seed="z"), "0.1.0")
    done = reg("mirror", home, "./own")
    assert done.status == 5 and "exists there with manifest" in done.err
    assert done.out.splitlines()[1].split()[:2] == ["acme/pii", "0.1.0"]
    assert reg("--registry", "own", "show", "acme/pii:0.2.0").status == 0


def test_mirror_of_a_fork_is_refused(reg: Reg, home: Path, copied: Path) -> None:
    for registry in (home, copied):
        reg("--registry", registry, "tag", "tiny", "stable")
    done = reg("mirror", home, copied)
    assert done.status == 4 and "different histories of tiny" in done.err
