"""Which release a device takes, leaves and goes back to: both clients, with real registries.

The rules are the vectors of `device.json`, which each client runs; here is what leads to them: a real log, a store, a network.
"""

from functools import partial

from support.registries import owner
from support.registries.for_devices import publish
from support.servers.faults import Proxy

from onnxreg.registry import Registry
from onnxreg.schema.core.ref import Ref

NAME = "acme/pii"
STABLE = {"tag": "stable"}
FAILED = ("integrity", "self-test")


def answer(site: Proxy, fault: str | None, part: str = "") -> None:
    site.plan = lambda method, path: fault if part in path else None


def test_no_device_goes_back_to_a_yanked_release_or_stays_on_it(registry, release, call, site):
    for version in ("1.0.0", "1.1.0"):
        release(version)
        assert call("update")["version"] == version
    registry.yank(f"{NAME}:1.0.0")
    for _ in range(2):
        assert call("resolve")["version"] == "1.1.0"
        registry.tag(f"{NAME}:1.1.0", "stable", reason="a later line of the log, which says nothing of 1.0.0")
    answer(site, "reset")
    back = call("rollback")
    assert back["error"] == "not-found" and "1.0.0" in back["message"] and "yanked" in back["message"]
    assert call("present") == {**call("present"), "version": "1.1.0", "previous": "1.0.0"}
    answer(site, None)
    registry.yank(f"{NAME}:1.0.0", undo=True)
    assert call("update")["version"] == "1.1.0"
    assert call("rollback")["version"] == call("update")["version"] == "1.0.0"
    registry.yank(f"{NAME}:1.0.0")
    assert call("update")["error"] == "not-found"
    assert call("present") == {"previous": None}
    call("clear")
    assert call("update")["version"] == "1.1.0"


def test_a_yank_of_the_channels_release_brings_the_one_before(registry, release, call):
    for version in ("1.0.0", "1.1.0"):
        release(version, channel="stable")
        assert call("update", STABLE)["version"] == version
    registry.yank(f"{NAME}:1.1.0")
    assert call("update", STABLE)["version"] == call("update", STABLE)["version"] == "1.0.0"
    assert call("rollback")["error"] == "not-found"


def test_no_device_goes_back_to_a_halted_release(registry, release, call, site):
    release("1.0.0", channel="stable")
    release("2.0.0")
    call("update", STABLE)
    rollouts = owner.rollouts(registry)
    rollouts.start(Ref.parse(f"{NAME}:2.0.0"), "stable", 100)
    assert call("update", STABLE)["version"] == "2.0.0"
    rollouts.halt(NAME, "stable")
    assert call("update", STABLE)["version"] == "1.0.0"
    answer(site, "reset")
    assert call("rollback")["error"] == "not-found"
    assert call("update", STABLE)["version"] == "1.0.0"
    answer(site, None)
    rollouts.start(Ref.parse(f"{NAME}:2.0.0"), "stable", 100)
    assert call("update", STABLE)["version"] == "2.0.0"
    rollouts.finish(NAME, "stable")
    release("3.0.0", channel="stable")
    assert call("update", STABLE)["version"] == "3.0.0"
    assert call("rollback")["version"] == "2.0.0", "its rollout was finished"


def test_a_file_that_fails_is_not_taken_again_and_a_release_that_fails_whole_not_at_all(release, call):
    both = ["model_int8.onnx", "model_fp16.onnx"]
    release("1.0.0", half=True)
    first = call("judged", {}, {"bad": both[:1]})
    assert (first["artifact"], first["ran"]) == (both[1], both)
    again = call("judged", {}, {"bad": []})
    assert (again["artifact"], again["ran"]) == (both[1], [])
    codes = {each["artifact"]: each["code"] for each in call("resolve")["rejected"]}
    assert codes[both[0]] == "failed"
    call("clear")
    assert call("update")["artifact"] == both[0]
    fresh = partial(call, store="fresh")
    whole = fresh("judged", {}, {"bad": ["1.0.0"]})
    assert whole["error"] in FAILED and whole["ran"] == both, "model.onnx is not certified"
    again = fresh("judged", {}, {"bad": []})
    assert (again["error"], again["ran"]) == ("not-found", [])
    assert {row["code"] for row in again["rejected"]} == {"failed", "not-certified"}
    assert fresh("present") == {"previous": None}
    release("1.1.0", half=True)
    thrown = call("judged", {}, {"bad": [], "throws": True})
    assert thrown["error"] in FAILED and "self-test" in thrown["message"]
    assert call("update")["version"] == "1.0.0", "also without a self-test"
    release("1.2.0", half=True)
    assert call("judged", {}, {"bad": ["1.2.0"]})["error"] in FAILED
    again = call("judged", {}, {"bad": ["1.2.0"]})
    assert (again["version"], again["ran"]) == ("1.0.0", [])


def test_an_edge_that_is_behind_changes_nothing(release, call, site):
    release("1.0.0")
    call("update", store="other")
    release("1.1.0")
    call("update")
    answer(site, "stale", "/index/")
    found = call("resolve")
    assert (found["version"], found["stale"], found["offline"]) == ("1.1.0", True, False)
    assert call("update")["version"] == "1.1.0"
    site.plan = lambda method, path: "stale" if path.endswith("pii.jsonl") else None
    found = call("resolve")
    assert (found["version"], found["stale"]) == ("1.1.0", False), "asked past the caches"
    release("1.2.0")
    assert call("update")["version"] == "1.2.0"


def test_another_history_that_is_shorter_is_an_error(registry, release, call, tmp_path, monkeypatch):
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


def test_a_channel_that_is_not_there_is_answered_with_those_that_are(release, call):
    release("1.0.0", channel="stable")
    missing = call("update", {"tag": "prod"})
    assert missing["error"] == "not-found"
    assert "prod" in missing["message"] and "stable" in missing["message"]
