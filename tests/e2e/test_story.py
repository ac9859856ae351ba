"""From a checkpoint to a verified copy on another machine, command by command."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

EXPORT = ("export", "--profile", "android", "--name", "acme/tiny", "--json")


def sha256(path: Path) -> str:
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def test_export_push_pull_resolve_diff_verify(
    reg: Callable, export: Any, exported_again: Any, tmp_path: Path
) -> None:
    one, two = export.printed, exported_again.printed
    assert set(one) == {
        "ref",
        "name",
        "version",
        "digest",
        "manifest",
        "states",
        "output",
        "yanked",
        "new",
        "newer",
    }
    assert (one["ref"], one["version"]) == ("acme/tiny:0.1.0", "0.1.0")
    assert sha256(export.output / "openmed-onnx.json") == one["digest"]
    assert two["version"] == "0.1.1"

    for ref in (one["ref"], two["ref"]):
        assert "pushed" in reg("push", ref, "./shared").stdout
    assert "nothing to do" in reg("push", two["ref"], "./shared").stdout

    elsewhere = ("--registry", tmp_path / "elsewhere")
    reg(*elsewhere, "pull", "acme/tiny:0.1.0", "./shared", "--output", "pulled")
    files = {path.name: sha256(path) for path in export.output.iterdir()}
    assert {path.name: sha256(path) for path in (tmp_path / "pulled").iterdir()} == files

    found = json.loads(reg("resolve", "acme/tiny", "--format", "ort-android", "--json").stdout)
    assert found["manifest"] == two["digest"]
    assert found["files"][0]["path"] == "model.ort"

    changes = json.loads(reg("diff", "acme/tiny:0.1.0", "acme/tiny:0.1.1", "--json").stdout)
    assert any("digest" in change["path"] for change in changes["changes"])
    log = json.loads(reg("log", "acme/tiny", "--json").stdout)
    assert [line["event"]["kind"] for line in log["lines"]] == ["publish", "publish"]
    assert json.loads(reg("verify", "--json").stdout)["ok"] is True


def test_exporting_again_publishes_nothing_new(reg: Callable, exported: Any) -> None:
    again = json.loads(reg(*EXPORT, exported.checkpoint).stdout)
    assert {**again, "output": exported.printed["output"], "new": True} == exported.printed


@pytest.mark.more
def test_a_version_that_exists_with_another_digest(reg: Callable, exported_again: Any) -> None:
    failed = reg(*EXPORT, exported_again.checkpoint, "--version", "0.1.0", code=5)
    assert json.loads(failed.stderr)["error"]["family"] == "conflict"


@pytest.mark.more
def test_a_damaged_blob_is_refused_and_named(reg: Callable, exported: Any, tmp_path: Path) -> None:
    reg("push", "acme/tiny", "./shared")
    digest = exported.printed["manifest"]["artifacts"][0]["digest"][7:]
    blob = tmp_path / "shared" / "blobs" / "sha256" / digest[:2] / digest
    data = bytearray(blob.read_bytes())
    data[len(data) // 2] ^= 1
    blob.chmod(0o644)
    blob.write_bytes(data)
    elsewhere = ("--registry", tmp_path / "elsewhere")
    reg(*elsewhere, "pull", "acme/tiny", "./shared", "--output", "pulled", code=4)
    assert not (tmp_path / "pulled").exists()
    report = json.loads(reg("--registry", "./shared", "verify", "--json", code=4).stdout)
    assert [found["digest"] for found in report["damages"]] == [f"sha256:{digest}"]


@pytest.mark.more
def test_bytes_do_not_depend_on_place_process_or_hash_seed(
    reg: Callable, export: Any, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "a-checkpoint").symlink_to(export.checkpoint)
    environment |= {"PYTHONHASHSEED": "1234"}
    again = json.loads(reg(*EXPORT, "a-checkpoint", "--output", "out").stdout)
    assert again["digest"] == export.printed["digest"]
    needles = [str(tmp_path).encode(), str(export.checkpoint).encode(), b"a-checkpoint"]
    published = [path for path in tmp_path.rglob("*") if path.is_file() and "local" not in path.parts]
    assert len(published) > 10
    for path in published:
        data = path.read_bytes()
        assert not [needle for needle in needles if needle in data], path


@pytest.mark.more
def test_a_push_says_that_a_missing_blob_came_back(reg: Callable, exported: Any, tmp_path: Path) -> None:
    reg("push", "acme/tiny", "./shared")
    digest = json.loads(reg("resolve", "acme/tiny", "--json").stdout)["artifact"]["digest"][7:]
    (tmp_path / "shared" / "blobs" / "sha256" / digest[:2] / digest).unlink()
    assert "1 blob" in reg("push", "acme/tiny", "./shared").stdout
    reg("--registry", "./shared", "verify")
