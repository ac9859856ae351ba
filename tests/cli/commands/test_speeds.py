"""Speeds where people and programs look: show, ls, diff, history, log, query, resolve, pages; and `reg measure`."""

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from support.command_line import Reg
from support.prove.children import dynamic, parent
from support.registries.for_devices import publish
from support.registries.timed import MACHINE, check, document, record
from support.servers import regserve

from onnxreg.converters.runtime.sessions import quiet
from onnxreg.registry import Registry
from onnxreg.schema.manifest.draft import Draft, DraftArtifact

NAME, INT8, FP16 = "acme/pii", "model_int8.onnx", "model_fp16.onnx"
ONE, TWO = f"{NAME}:1.0.0", f"{NAME}:1.1.0"
CELL = "12.5 ms, 1.80 x, x86_64+avx2"
SPEED = {**MACHINE, "ratio": 1.8, "low": 1.6, "median_ms": 12.5}


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """Two versions with two certified files. In the first INT8 is slow and FP16 is not."""
    home = Registry(tmp_path / "home")
    monkeypatch.setenv("REG_HOME", str(tmp_path / "home"))
    for version in ("1.0.0", "1.1.0"):
        publish(home, tmp_path / version, version, half=True)
    record(home, ONE, check(1.8, [1.6, 2]), check(12.5, None, metric="median_ms"), index=1)
    record(home, ONE, check(0.9, [0.8, 1]), index=2)
    return home


def without_line(speed: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in speed.items() if key != "seq"}


def test_every_screen_has_the_latency_in_one_cell(reg: Reg, registry: Registry) -> None:
    for words in (("show", ONE), ("history", NAME, "--format", "onnx-int8"), ("diff", ONE, TWO)):
        assert reg(*words).ended(0, CELL)
    assert reg("log", NAME).ended(0, f"{INT8} 1.80 x on x86_64+avx2, onnxruntime 1.31.1, 1 thread")
    speeds = reg("show", ONE, "--benchmark", "--json").json["speeds"]
    assert [without_line(speed) for speed in speeds[INT8]] == [SPEED]
    versions = {row["version"]: row for row in reg("ls", NAME, "--json").json["versions"]}
    assert versions["1.0.0"]["speeds"] == speeds and "speeds" not in versions["1.1.0"]
    rows = reg("history", NAME, "--json").json["versions"]
    assert [item.get("speeds") for item in rows[1]["artifacts"]] == [None, speeds[INT8], speeds[FP16]]
    found = reg("query", f"name = {NAME} and latency <= 1", "--json").json["matches"]
    assert [(item["artifact"]["path"], item["latency"]) for item in found] == [(FP16, 0.9)]


def test_a_page_has_it_too(registry: Registry) -> None:
    with regserve.running(registry.store.root) as site:
        for path in (f"/models/{ONE}", f"/diff?old={ONE}&new={TWO}", f"/history?model={NAME}"):
            assert CELL in site.get(path).body.decode()


@pytest.mark.parametrize(
    ("ratio", "severity"), [(1.9, "cosmetic"), (2.1, "degrading"), (1.7, "cosmetic"), (1.2, "notable")]
)
def test_diff_says_that_a_file_got_slower(reg: Reg, registry: Registry, ratio: float, severity: str) -> None:
    record(registry, TWO, check(ratio), index=1)
    record(registry, TWO, check(9), index=2, isa="arm64")
    done = reg("diff", ONE, TWO, "--json", "--fail-on", "degrading")
    changes = [change for change in done.json["changes"] if change["kind"].startswith("latency-changed")]
    assert [(change["severity"], change["old"], change["new"]) for change in changes] == [
        (severity, 1.8, ratio)
    ]
    assert (done.status == 8) == (severity == "degrading")


def test_a_device_gets_what_is_fast_on_its_class_of_machine(
    reg: Reg, registry: Registry, tmp_path: Path
) -> None:
    def answer(**device: Any) -> Any:
        Path("device.json").write_text(json.dumps({"ort": "1.31", **device}))
        return reg("resolve", ONE, "--device", "device.json", "--json").json

    assert answer(abi="arm64-v8a")["artifact"]["path"] == INT8
    timed = answer(abi="x86_64")
    assert (timed["artifact"]["path"], timed["artifact"]["speeds"][0]["ratio"]) == (FP16, 0.9)
    slow = answer(abi="x86_64", max_latency_ratio=0.5)
    assert slow["artifact"] is None and {item["code"] for item in slow["rejected"]} == {"latency"}
    with regserve.running(registry.store.root) as site:
        question = {"ref": ONE, "device": {"ort": "1.31", "abi": "amd64", "max_latency_ratio": 1}}
        assert site.resolve(question).json["artifact"]["path"] == FP16


@pytest.mark.parametrize("verb", [("attest", "--report"), ("measure", "--on-device")])
def test_a_document_of_a_device_is_logged(reg: Reg, registry: Registry, verb: tuple[str, str]) -> None:
    phone = {"isa": "arm64", "runtime": "onnxruntime-android 1.23.2", "threads": 4}
    Path("phone.json").write_bytes(document(registry, TWO, check(0.5), index=1, **phone))
    done = reg(verb[0], TWO, verb[1], "phone.json", "--json")
    assert (done.json["logged"], done.json["speeds"]) == (True, {INT8: {**phone, "ratio": 0.5, "low": 0.5}})
    assert reg("show", TWO).ended(0, "0.50 x, arm64")
    assert reg("measure", TWO, "--on-device", "phone.json", "--artifact", INT8).status == 2
    wrong = [*(document(registry, ref, check(0.5), index=1) for ref in (ONE,)), b"{}", b"["]
    for data in wrong:
        Path("phone.json").write_bytes(data)
        assert reg("measure", TWO, "--on-device", "phone.json").status == 2


def test_the_reason_of_a_benchmark_is_in_the_log(reg: Reg, registry: Registry) -> None:
    Path("phone.json").write_bytes(document(registry, TWO, check(0.5), index=1))
    assert reg("attest", TWO, "--report", "phone.json", "--reason", "the lab's phone").status == 0
    assert reg("log", NAME, "--json").json["lines"][-1]["event"].get("reason") == "the lab's phone"


def test_measure_times_files_beside_full_precision(
    reg: Reg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REG_HOME", str(tmp_path / "home"))
    root = tmp_path / "draft"
    root.mkdir()
    onnx.save(parent(), root / "model.onnx")
    with quiet():
        dynamic("QInt8", True, False)(root / "model.onnx", root / INT8)
    int8 = DraftArtifact("onnx-int8", "int8", INT8, parent="model.onnx")
    draft = Draft(NAME, root, (DraftArtifact("onnx", "float32", "model.onnx"), int8), (), {})
    Registry(tmp_path / "home").add(draft, "1.0.0")
    assert [reg("measure", ONE, "--artifact", name).status for name in ("model.onnx", "m.onnx")] == [2, 3]
    assert reg("measure", ONE, "--output", "machine.json", "--json").json["logged"] is False
    assert "speeds" not in reg("ls", NAME, "--json").json["versions"][0]
    (timed,) = json.loads(Path("machine.json").read_bytes())["artifacts"]
    assert (timed["path"], {item["metric"] for item in timed["checks"]}) == (
        INT8,
        {"median_ms", "p95_ms", "ratio"},
    )
    assert reg("measure", ONE, "--json").json["speeds"].keys() == {INT8}
    assert [*reg("ls", NAME, "--json").json["versions"][0]["speeds"]] == [INT8]
