"""From a checkpoint to a verified copy on another machine, command by command."""

import hashlib
import json
from pathlib import Path

import pytest
from e2e.conftest import EXPORT


def digests(directory: Path) -> dict[str, str]:
    return {
        path.name: f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}" for path in directory.iterdir()
    }


def test_export_push_pull_resolve_diff_verify(reg, export, exported_again, tmp_path):
    one, two = export.printed, exported_again.printed
    assert [(each["ref"], each["version"]) for each in (one, two)] == [
        ("acme/tiny:0.1.0", "0.1.0"),
        ("acme/tiny:0.1.1", "0.1.1"),
    ]
    files = digests(export.output)
    assert files["openmed-onnx.json"] == one["digest"]
    for each in (one, two):
        assert "pushed" in reg("push", each["ref"], "./shared").stdout
    assert "nothing to do" in reg("push", two["ref"], "./shared").stdout
    elsewhere = ("--registry", tmp_path / "elsewhere")
    reg(*elsewhere, "pull", one["ref"], "./shared", "--output", "pulled")
    assert digests(tmp_path / "pulled") == files
    found = json.loads(reg("resolve", "acme/tiny", "--format", "ort-android", "--json").stdout)
    assert (found["manifest"], found["files"][0]["path"]) == (two["digest"], "model.ort")
    changes = json.loads(reg("diff", one["ref"], two["ref"], "--json").stdout)
    assert any("digest" in change["path"] for change in changes["changes"])
    log = json.loads(reg("log", "acme/tiny", "--json").stdout)
    assert [line["event"]["kind"] for line in log["lines"]] == ["publish", "publish"]
    assert json.loads(reg("verify", "--json").stdout)["ok"] is True


def test_exporting_again_publishes_nothing_new(reg, exported):
    again = json.loads(reg(*EXPORT, exported.checkpoint).stdout)
    assert {**again, "output": exported.printed["output"], "new": True} == exported.printed


@pytest.mark.more
def test_bytes_do_not_depend_on_place_process_or_hash_seed(reg, export, environment, tmp_path):
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
