"""A yank holds for a manifest, wherever it goes and under whatever number."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper, save

from onnxreg.registry import Registry

pytestmark = pytest.mark.usefixtures("reader_in_process")
Reg = Callable[..., Any]
NAME = "me/m"


def model(path: str, value: float) -> str:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 2]) for name in "xy")
    weight = helper.make_tensor("w", TensorProto.FLOAT, [2, 2], [value] * 4)
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weight])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8), path)
    return path


@pytest.fixture
def add(reg: Reg, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """Add a model of two files, of which `value` decides the bytes."""
    monkeypatch.setenv("REG_HOME", str(tmp_path / "home"))

    def run(value: float, *words: object) -> Any:
        return reg("add", model("a.onnx", value), "--name", NAME, "--json", *words)

    return run


def yanked(root: object = None) -> dict[str, bool]:
    registry = Registry(None if root is None else str(root))
    return {str(version): entry.yanked for version, entry in registry.state(NAME).versions.items()}


def test_the_same_manifest_is_not_published_again_and_stays_yanked(reg: Reg, add: Callable[..., Any]) -> None:
    add(1, "--version", "1.0.0")
    assert reg("yank", f"{NAME}:1.0.0", "--reason", "leaks names").status == 0
    again = add(1)
    assert (again.status, again.json["version"]) == (0, "1.0.0")
    assert again.json["yanked"] == {"version": "1.0.0", "reason": "leaks names"}
    assert "leaks names" in reg("add", "a.onnx", "--name", NAME).out
    assert add(1, "--version", "1.0.1").json["yanked"]["version"] == "1.0.0"
    assert yanked() == {"1.0.0": True, "1.0.1": True}
    assert reg("resolve", NAME).status == reg("resolve", f"{NAME}:1.0.1").status == 3
    assert reg("drop", f"{NAME}:1.0.0").status == 5, "a dropped version would take the yank with it"
    assert reg("yank", f"{NAME}:1.0.1", "--undo").status == 0
    assert yanked() == {"1.0.0": False, "1.0.1": False}
    assert reg("verify").status == 0


def test_a_yank_holds_for_earlier_versions_of_the_manifest(reg: Reg, add: Callable[..., Any]) -> None:
    add(1, "--version", "1.0.0")
    add(1, "--version", "1.0.1")
    add(2, "--version", "1.1.0")
    done = reg("yank", f"{NAME}:1.0.1")
    assert f"{NAME}:1.0.0" in done.out
    assert yanked() == {"1.0.0": True, "1.0.1": True, "1.1.0": False}


def test_a_repeated_export_of_earlier_bytes_publishes_nothing(reg: Reg, add: Callable[..., Any]) -> None:
    add(1, "--version", "0.2.1")
    add(2, "--version", "0.3.0")
    again = add(1)
    assert (again.status, again.json["version"]) == (0, "0.2.1")
    said = reg("add", "a.onnx", "--name", NAME).out
    assert f"{NAME}:0.2.1" in said and "--version" in said
    assert set(yanked()) == {"0.2.1", "0.3.0"}
    assert add(1, "--version", "0.4.0").json["version"] == "0.4.0"


def test_a_push_meets_the_yanks_of_the_remote(reg: Reg, add: Callable[..., Any], tmp_path: Path) -> None:
    """Nothing here knows of the yank: it was made there."""
    share = tmp_path / "share"
    add(1, "--version", "0.2.1")
    reg("push", f"{NAME}:0.2.1", share)
    reg("yank", f"{NAME}:0.2.1", "--remote", share, "--reason", "leaks names")
    add(2, "--version", "0.3.0")
    reg("push", f"{NAME}:0.3.0", share)
    add(1, "--version", "0.3.1")
    done = reg("push", f"{NAME}:0.3.1", share)
    assert done.status == 0 and "leaks names" in done.err
    assert yanked(share) == {"0.2.1": True, "0.3.0": False, "0.3.1": True}
    assert "0.3.0" in reg("resolve", NAME, "--remote", share).out


def test_a_yank_travels_with_its_manifest(reg: Reg, add: Callable[..., Any], tmp_path: Path) -> None:
    add(1, "--version", "1.0.0")
    reg("yank", f"{NAME}:1.0.0", "--reason", "leaks names")
    add(1, "--version", "1.0.1")
    pushed = reg("push", f"{NAME}:1.0.1", tmp_path / "share", "--json")
    assert pushed.json["yanked"] == [{"version": "1.0.1", "of": "1.0.0", "reason": "leaks names"}]
    assert yanked(tmp_path / "share") == {"1.0.1": True}
    assert reg("verify", "--remote", tmp_path / "share").status == 0


def test_the_times_of_a_log_are_those_of_arrival(
    reg: Reg, add: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version that was written first, and pushed last."""
    monkeypatch.setattr("onnxreg.registry.support.actor.TIME_FORMAT", "2026-01-02T03:04:05Z")
    add(1, "--version", "0.1.0")
    monkeypatch.setattr("onnxreg.registry.support.actor.TIME_FORMAT", "2026-01-03T03:04:05Z")
    add(2, "--version", "0.2.0")
    for version in ("0.2.0", "0.1.0"):
        reg("push", f"{NAME}:{version}", tmp_path / "share")
    lines = reg("log", NAME, "--remote", tmp_path / "share").out.splitlines()[1:]
    times = [line.split()[1] for line in lines]
    assert times == sorted(times) and min(times) > "2026-01-04"
    assert "written 2026-01-03T03:04:05Z in " in lines[0] and "written 2026-01-02T03:04:05Z in " in lines[1]
    assert reg("verify", "--remote", tmp_path / "share").status == 0


def test_a_channel_takes_no_yanked_version_and_a_yank_names_the_channels_that_hold_it(
    reg: Reg, home: Path
) -> None:
    manifest = Registry(home).get("acme/pii:0.1.0").digest
    done = reg("--registry", home, "yank", "acme/pii:0.1.0", "--reason", "leak")
    assert (done.status, "reg tag acme/pii:VERSION stable" in done.err) == (0, True)
    refused = reg("--registry", home, "tag", f"acme/pii@{manifest}", "canary")
    assert (refused.status, refused.out) == (5, "")
    assert "canary" not in reg("--registry", home, "ls", "acme/pii").out


def test_the_reason_of_a_yank_does_not_control_the_terminal(reg: Reg, add: Callable[..., Any]) -> None:
    add(1)
    Registry().yank(f"{NAME}:0.1.0", "leaks\n\x1b[2J")
    for words in ([], ["--version", "0.2.0"]):
        done = reg("add", "a.onnx", "--name", NAME, *words)
        assert "leaks\\x0a\\x1b[2J" in done.out + done.err and "\x1b" not in done.out + done.err
