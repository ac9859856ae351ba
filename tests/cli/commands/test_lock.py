"""`reg lock` and `reg pull --locked` on the command line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onnxreg.registry import Registry

Reg = Callable[..., Any]
MODEL = "acme/fleet"
LOCK = Path("onnxreg.lock")
pytestmark = pytest.mark.usefixtures("fleet")


def locked() -> Any:
    return json.loads(LOCK.read_bytes())["models"]


def test_a_lock_and_the_same_again(reg: Reg) -> None:
    done = reg("lock", MODEL, "--device", "ort-android-1.16", "--precision", "float32")
    assert done.status == 0
    assert "acme/fleet: added 1.0.0 model.ort" in done.out and "written to onnxreg.lock" in done.out
    before = LOCK.read_bytes()
    (entry,) = locked()
    assert entry["asked"]["precision"] == "float32" and entry["asked"]["device"]["ort"] == "1.16"
    for words in (["lock"], ["lock", "--update", MODEL], ["lock", "--check"]):
        again = reg(*words)
        assert again.status == 0 and "nothing changed" in again.out
        assert LOCK.read_bytes() == before


def test_lock_as_json(reg: Reg) -> None:
    value = reg("lock", MODEL, "--json").json
    assert list(value) == ["output", "changed", "models", "changes"]
    assert (value["output"], value["changed"], value["models"]) == ("onnxreg.lock", True, locked())
    assert value["changes"] == [{"name": MODEL, "before": None, "after": locked()[0]}]
    assert reg("lock", "--json").json["changes"] == []


def test_changes_are_printed_and_checked(reg: Reg, fleet: Registry) -> None:
    reg("lock", MODEL)
    before = LOCK.read_bytes()
    fleet.yank(f"{MODEL}:1.1.0")
    checked = reg("lock", "--check")
    assert checked.status == 8
    assert f"{MODEL}: 1.1.0 model.ort -> 1.0.0 int8.onnx" in checked.out
    assert checked.err.splitlines()[-1] == "hint: reg lock"
    assert LOCK.read_bytes() == before
    assert reg("lock").status == 0
    assert locked()[0]["version"] == "1.0.0"
    assert reg("lock", "--check").status == 0


def test_a_version_that_was_pushed_since_is_the_same(reg: Reg, fleet: Registry, tmp_path: Path) -> None:
    """The registry that answers is another one, the digests are not."""
    assert reg("lock", MODEL).status == 0
    before = LOCK.read_bytes()
    there = tmp_path / "there"
    fleet.push(f"{MODEL}:1.1.0", str(there))
    for words in (["--check"], []):
        done = reg("lock", *words, "--remote", there)
        assert done.status == 0 and "nothing changed" in done.out
        assert f"{MODEL}: registry {Registry(there).id[:12]}... has the locked manifest too" in done.out
        assert LOCK.read_bytes() == before
    assert reg("lock", "--check", "--remote", there, "--json").json["changes"] == []
    LOCK.write_bytes(before.replace(locked()[0]["manifest"].encode(), b"sha256:" + b"0" * 64))
    assert reg("lock", "--check", "--remote", there).status == 8


def test_the_other_models_stay(reg: Reg, fleet: Registry, draft: Callable[..., Any], tmp_path: Path) -> None:
    fleet.add(draft(tmp_path / "w", name="tiny"))
    reg("lock", f"{MODEL}:stable")
    reg("lock", "tiny", "--format", "onnx-int8")
    assert [(each["name"], each["asked"]["ref"]) for each in locked()] == [
        (MODEL, f"{MODEL}:stable"),
        ("tiny", "tiny"),
    ]


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ([], 3, "onnxreg.lock"),
        (["--check"], 3, "onnxreg.lock"),
        (["--format", "onnx"], 2, "none is named"),
        ([MODEL, "--update", MODEL], 2, "contradict"),
        ([MODEL, f"{MODEL}:stable"], 2, "acme/fleet is named twice"),
        ([MODEL, "--format", "webgpu"], 3, "no artifact of acme/fleet answers"),
        (["nobody"], 3, "there is no model nobody"),
    ],
)
def test_refused_requests(reg: Reg, words: list[str], status: int, message: str) -> None:
    done = reg("lock", *words)
    assert done.status == status and message in done.err
    assert not LOCK.exists()


def test_a_lock_that_is_none(reg: Reg) -> None:
    LOCK.write_text("{}")
    for words in (["lock"], ["lock", MODEL], ["pull", "--locked"]):
        done = reg(*words)
        assert done.status == 2 and "onnxreg.lock is not a lock" in done.err
    assert LOCK.read_text() == "{}"


def test_a_build_gets_the_locked_files(reg: Reg, fleet: Registry, tmp_path: Path) -> None:
    reg("lock", MODEL, "--format", "ort")
    here = tmp_path / "build"
    pull = ("--registry", here, "pull", "--locked", "onnxreg.lock", fleet.store.root, "--output", "app")
    done = reg(*pull)
    assert (done.status, done.err) == (0, "")
    assert "pulled what is locked from" in done.out and "written to app" in done.out
    assert sorted(path.name for path in Path("app/acme/fleet").iterdir()) == [
        "labels.json",
        "model.ort",
        "openmed-onnx.json",
        "report.json",
    ]
    fleet.yank(f"{MODEL}:1.1.0", "wrong labels")
    again = reg(*pull)
    assert again.status == 0 and "nothing to do" in again.out
    assert f"{MODEL}:1.1.0 is yanked since" in again.out
    value = reg(*pull, "--json").json
    assert list(value) == ["remote", "output", "models"]
    (model,) = value["models"]
    assert model == {
        "name": MODEL,
        "version": "1.1.0",
        "path": "model.ort",
        "yanked": True,
        "blobs": 0,
        "bytes": 0,
    }


def test_a_registry_with_another_manifest_is_refused(
    reg: Reg, draft: Callable[..., Any], tmp_path: Path
) -> None:
    reg("lock", MODEL)
    imposter = Registry(tmp_path / "imposter")
    imposter.add(draft(tmp_path / "w", name=MODEL), "1.1.0")
    done = reg(
        "--registry", tmp_path / "build", "pull", "--locked", LOCK, imposter.store.root, "--output", "app"
    )
    assert done.status == 4
    assert not Path("app").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--locked", LOCK, "r", "--format", "onnx"], "a lock says which artifacts"),
        ([], "a REF is missing"),
    ],
)
def test_requests_that_mean_nothing(reg: Reg, words: list[Any], message: str) -> None:
    done = reg("pull", *words)
    assert done.status == 2 and message in done.err


def test_there_is_no_lock(reg: Reg) -> None:
    assert reg("pull", "--locked").status == 3
