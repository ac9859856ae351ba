"""From a checkpoint to a verified copy on another machine, command by command."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

MakeCheckpoint = Callable[..., Path]


def sha256(path: Path) -> str:
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def test_export_push_pull_resolve_diff_verify(
    reg: Callable, make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    first, second = make_checkpoint(seed=1), make_checkpoint(seed=2)
    export = ("export", "--profile", "android", "--name", "acme/tiny", "--json")
    one = json.loads(reg(*export, first, "--output", "one").stdout)
    assert set(one) == {"ref", "name", "version", "digest", "manifest", "states", "output"}
    assert (one["ref"], one["version"]) == ("acme/tiny:0.1.0", "0.1.0")
    assert sha256(tmp_path / "one" / "openmed-onnx.json") == one["digest"]
    two = json.loads(reg(*export, second).stdout)
    assert (two["version"], two["output"]) == ("0.1.1", None)

    for ref in (one["ref"], two["ref"]):
        assert "pushed" in reg("push", ref, "./shared").stdout
    assert "nothing to do" in reg("push", two["ref"], "./shared").stdout

    elsewhere = ("--registry", tmp_path / "elsewhere")
    reg(*elsewhere, "pull", "acme/tiny:0.1.0", "./shared", "--output", "pulled")
    exported = {path.name: sha256(path) for path in (tmp_path / "one").iterdir()}
    assert {path.name: sha256(path) for path in (tmp_path / "pulled").iterdir()} == exported

    found = json.loads(reg("resolve", "acme/tiny", "--format", "ort-android", "--json").stdout)
    assert found["manifest"] == two["digest"]
    assert found["files"][0]["path"] == "model.ort"

    changes = json.loads(reg("diff", "acme/tiny:0.1.0", "acme/tiny:0.1.1", "--json").stdout)
    assert any("digest" in change["path"] for change in changes["changes"])
    log = json.loads(reg("log", "acme/tiny", "--json").stdout)
    assert [line["event"]["kind"] for line in log["lines"]] == ["publish", "publish"]
    assert json.loads(reg("verify", "--json").stdout)["ok"] is True


def test_exporting_again_publishes_nothing_new(reg: Callable, make_checkpoint: MakeCheckpoint) -> None:
    checkpoint = make_checkpoint()
    export = ("export", checkpoint, "--profile", "android", "--name", "acme/tiny", "--json")
    one, two = (json.loads(reg(*export).stdout) for _ in range(2))
    assert one == two


def test_a_version_that_exists_with_another_digest(reg: Callable, make_checkpoint: MakeCheckpoint) -> None:
    export = ("export", "--profile", "android", "--name", "acme/tiny", "--version", "1.0.0")
    reg(*export, make_checkpoint(seed=1))
    failed = reg(*export, make_checkpoint(seed=2), "--json", code=5)
    assert json.loads(failed.stderr)["error"]["family"] == "conflict"


def test_a_damaged_blob_is_refused_and_named(
    reg: Callable, make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    export = reg("export", make_checkpoint(), "--profile", "android", "--name", "acme/tiny", "--json")
    reg("push", "acme/tiny", "./shared")
    digest = json.loads(export.stdout)["manifest"]["artifacts"][0]["digest"][7:]
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


def test_bytes_do_not_depend_on_place_process_or_hash_seed(
    reg: Callable, make_checkpoint: MakeCheckpoint, environment: dict[str, str], tmp_path: Path
) -> None:
    checkpoint = make_checkpoint()
    digests = set()
    for seed in ("0", "1234"):
        place = tmp_path / f"place-{seed}"
        place.mkdir()
        (place / "a-checkpoint").symlink_to(checkpoint)
        environment |= {"PYTHONHASHSEED": seed, "REG_HOME": str(place / "home")}
        export = ("export", place / "a-checkpoint", "--profile", "android", "--name", "acme/tiny", "--json")
        digests.add(json.loads(reg(*export, "--output", place / "out").stdout)["digest"])
    assert len(digests) == 1
    needles = [str(tmp_path).encode(), str(checkpoint).encode(), b"a-checkpoint"]
    published = [path for path in tmp_path.rglob("*") if path.is_file() and "local" not in path.parts]
    assert len(published) > 20
    for path in published:
        data = path.read_bytes()
        assert not [needle for needle in needles if needle in data], path


def test_a_blob_that_comes_back_is_told(
    reg: Callable, make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    reg("export", make_checkpoint(), "--profile", "android", "--name", "acme/tiny")
    reg("push", "acme/tiny", "./shared")
    digest = json.loads(reg("resolve", "acme/tiny", "--json").stdout)["artifact"]["digest"][7:]
    (tmp_path / "shared" / "blobs" / "sha256" / digest[:2] / digest).unlink()
    assert "1 blob" in reg("push", "acme/tiny", "./shared").stdout
    reg("--registry", "./shared", "verify")
