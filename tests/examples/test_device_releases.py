"""Which release a device takes, leaves and goes back to: both clients, with real registries (`device.json` has vectors)."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.registries import owner
from support.registries.for_devices import publish
from support.servers.faults import Proxy

from onnxreg.registry import Registry
from onnxreg.schema.core.ref import Ref

NAME = "acme/pii"
STABLE = {"tag": "stable"}
Calls = Callable[..., Any]
Publish = Callable[..., dict[str, str]]


def offline(site: Proxy) -> None:
    site.plan = lambda method, path: "reset"


def online(site: Proxy) -> None:
    site.plan = lambda method, path: None


def test_no_device_goes_back_to_a_yanked_release(
    registry: Registry, release: Publish, call: Calls, site: Proxy
) -> None:
    release("1.0.0")
    call("update")
    release("1.1.0")
    assert call("update")["version"] == "1.1.0"
    registry.yank(f"{NAME}:1.0.0")
    assert call("resolve")["version"] == "1.1.0"
    offline(site)
    back = call("rollback")
    assert back["error"] == "not-found"
    assert "1.0.0" in back["message"] and "yanked" in back["message"]
    assert call("present") == {**call("present"), "version": "1.1.0", "previous": "1.0.0"}
    online(site)
    assert call("update")["version"] == "1.1.0"
    registry.yank(f"{NAME}:1.0.0", undo=True)
    assert call("update")["version"] == "1.1.0"
    assert call("rollback")["version"] == "1.0.0"


def test_no_device_stays_on_a_yanked_release(registry: Registry, release: Publish, call: Calls) -> None:
    release("1.0.0")
    call("update")
    release("1.1.0")
    call("update")
    assert call("rollback")["version"] == "1.0.0"
    assert call("update")["version"] == "1.0.0"
    registry.yank(f"{NAME}:1.0.0")
    assert call("update")["error"] == "not-found"
    assert call("present") == {"previous": None}
    call("clear")
    assert call("update")["version"] == "1.1.0"


def test_a_yank_of_the_channels_release_brings_the_one_before(
    registry: Registry, release: Publish, call: Calls
) -> None:
    release("1.0.0", channel="stable")
    call("update", STABLE)
    release("1.1.0", channel="stable")
    assert call("update", STABLE)["version"] == "1.1.0"
    registry.yank(f"{NAME}:1.1.0")
    assert call("update", STABLE)["version"] == "1.0.0"
    assert call("update", STABLE)["version"] == "1.0.0"
    assert call("rollback")["error"] == "not-found"
    release("1.2.0", channel="stable")
    assert call("update", STABLE)["version"] == "1.2.0"


def test_no_device_goes_back_to_a_halted_release(
    registry: Registry, release: Publish, call: Calls, site: Proxy
) -> None:
    release("1.0.0", channel="stable")
    release("2.0.0")
    call("update", STABLE)
    rollouts = owner.rollouts(registry)
    rollouts.start(Ref.parse(f"{NAME}:2.0.0"), "stable", 100)
    assert call("update", STABLE)["version"] == "2.0.0"
    rollouts.halt(NAME, "stable")
    assert call("update", STABLE)["version"] == "1.0.0"
    offline(site)
    assert call("rollback")["error"] == "not-found"
    assert call("update", STABLE)["version"] == "1.0.0"
    online(site)
    rollouts.start(Ref.parse(f"{NAME}:2.0.0"), "stable", 100)
    assert call("update", STABLE)["version"] == "2.0.0"
    rollouts.finish(NAME, "stable")
    release("3.0.0", channel="stable")
    assert call("update", STABLE)["version"] == "3.0.0"
    assert call("rollback")["version"] == "2.0.0", "its rollout was finished"


def test_a_file_that_fails_on_a_fresh_install_is_not_taken_again(release: Publish, call: Calls) -> None:
    release("1.0.0", half=True)
    first = call("judged", {}, {"bad": ["model_int8.onnx"]})
    assert (first["artifact"], first["ran"]) == ("model_fp16.onnx", ["model_int8.onnx", "model_fp16.onnx"])
    again = call("judged", {}, {"bad": []})
    assert (again["artifact"], again["ran"]) == ("model_fp16.onnx", [])
    assert {"version": "1.0.0", "artifact": "model_int8.onnx", "code": "failed"} in call("resolve")[
        "rejected"
    ]
    call("clear")
    assert call("update")["artifact"] == "model_int8.onnx"


def test_a_release_that_fails_whole_is_not_taken_at_all(release: Publish, call: Calls) -> None:
    release("1.0.0", half=True)
    first = call("judged", {}, {"bad": ["1.0.0"]})
    assert first["error"] in ("integrity", "self-test")
    assert first["ran"] == ["model_int8.onnx", "model_fp16.onnx"], "model.onnx is not certified"
    again = call("judged", {}, {"bad": []})
    assert (again["error"], again["ran"]) == ("not-found", [])
    assert {row["code"] for row in again["rejected"]} == {"failed", "not-certified"}
    assert call("present") == {"previous": None}


def test_a_new_release_that_fails_whole_leaves_the_current_one(release: Publish, call: Calls) -> None:
    release("1.0.0")
    call("update")
    release("1.1.0", half=True)
    judged = partial(call, "judged", {}, {"bad": ["1.1.0"]})
    failed = judged()
    assert failed["error"] in ("integrity", "self-test")
    assert failed["ran"] == ["model_int8.onnx", "model_fp16.onnx"]
    again = judged()
    assert (again["version"], again["ran"]) == ("1.0.0", [])


def test_a_release_that_was_rolled_back_is_refused_with_all_its_files(release: Publish, call: Calls) -> None:
    release("1.0.0")
    call("update")
    release("1.1.0", half=True)
    assert call("update")["version"] == "1.1.0"
    assert call("rollback")["version"] == "1.0.0"
    assert call("update")["version"] == "1.0.0"


def test_an_edge_that_is_behind_changes_nothing(release: Publish, call: Calls, site: Proxy) -> None:
    release("1.0.0")
    call("update", store="other")
    release("1.1.0")
    call("update")
    site.plan = lambda method, path: "stale" if "/index/" in path else None
    answer = call("resolve")
    assert (answer["version"], answer["stale"], answer["offline"]) == ("1.1.0", True, False)
    assert call("update")["version"] == "1.1.0"
    site.plan = lambda method, path: "stale" if path.endswith("pii.jsonl") else None
    answer = call("resolve")
    assert (answer["version"], answer["stale"]) == ("1.1.0", False), "asked past the caches"
    release("1.2.0")
    assert call("update")["version"] == "1.2.0"


def test_another_history_that_is_shorter_is_an_error(
    registry: Registry, release: Publish, call: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = registry.store.root / "index" / "acme" / "pii.jsonl"
    release("1.0.0")
    first = index.read_bytes()
    release("1.1.0")
    release("1.2.0")
    call("update")
    index.chmod(0o600)
    index.write_bytes(first)
    assert call("resolve")["stale"] is True
    monkeypatch.setenv("REG_STATE", str(tmp_path / "of somebody else"))
    publish(Registry(tmp_path / "home"), tmp_path / "other", "1.1.0")
    assert call("resolve")["error"] == "integrity"
    assert call("present")["version"] == "1.2.0"


def test_a_channel_that_is_not_there_is_answered_with_those_that_are(release: Publish, call: Calls) -> None:
    release("1.0.0", channel="stable")
    answer = call("update", {"tag": "prod"})
    assert answer["error"] == "not-found"
    assert "prod" in answer["message"] and "stable" in answer["message"]
