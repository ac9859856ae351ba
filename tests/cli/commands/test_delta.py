"""`reg delta`, the deltas that a push makes, and what other verbs say of them."""

from pathlib import Path

import onnx
import pytest
from support.registries import retrained

from onnxreg.registry import Registry
from onnxreg.registry.log.contents import Selection

NAME = "acme/pii"
PATHS = {"model.onnx", "mobile.onnx", "model_int8.onnx"}


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """Two versions without deltas; the registry of every command."""
    registry = Registry(tmp_path / "home")
    for step in range(2):
        registry.add(retrained.draft(tmp_path / f"draft{step}", step))
    monkeypatch.setenv("REG_HOME", str(tmp_path / "home"))
    return registry


def test_made_and_listed(reg, registry):
    none = reg("delta", "ls", NAME)
    assert none.ended(0, f"{NAME}:0.1.1 offers no deltas; `reg delta make {NAME}` makes some")
    assert "deltas" not in reg("resolve", NAME, "--json").json
    before = reg("du", "--json").json
    report = reg("delta", "make", NAME, "--json").json
    assert (report["ref"], report["made"], report["unlike"]) == (f"{NAME}:0.1.1", 3, [])
    assert {(row["path"], row["from"]) for row in report["deltas"]} == {(path, "0.1.0") for path in PATHS}
    assert reg("delta", "ls", NAME, "--json").json["deltas"] == report["deltas"]
    assert reg("delta", "make", NAME, "--json").json["made"] == 0
    assert reg("delta", "make", NAME, "--from", "0.1.0").ended(0, "model_int8.onnx")
    assert reg("log", NAME).ended(0, "deltas   0.1.1 (deltas: 3)")
    answer = reg("resolve", NAME, "--precision", "int8", "--json").json
    (delta,) = answer["deltas"]
    assert (delta["new"], delta["from"]) == (answer["artifact"]["digest"], "0.1.0")
    assert delta["url"].endswith(delta["delta"][7:])
    assert reg("du", "--json").json != before
    assert reg("archive", "create", "all.zip", NAME).status == reg("archive", "verify", "all.zip").status == 0
    assert reg("gc").status == reg("verify").status == 0


def test_only_the_files_that_are_here_are_old_files(reg, registry, tmp_path):
    (tmp_path / "part").mkdir()
    part, home = Registry(tmp_path / "part"), str(registry.store.root)
    part.pull(f"{NAME}:0.1.0", home, selection=Selection(formats=("onnx-int8",)))
    part.pull(f"{NAME}:0.1.1", home)
    rows = reg("--registry", "part", "delta", "make", NAME, "--json").json["deltas"]
    assert [(row["path"], row["from"]) for row in rows] == [("model_int8.onnx", "0.1.0")]


@pytest.mark.usefixtures("reader_in_process")
def test_an_old_file_that_was_small(reg, tmp_path, monkeypatch):
    """It is smaller than any file that is worth a delta; or a small model file says where the tensors are."""
    monkeypatch.setenv("REG_HOME", str(tmp_path / "home"))
    registry = Registry(tmp_path / "home")
    for step, size in enumerate((60_000, 70_000)):
        draft = retrained.draft(tmp_path / f"draft{step}", step)
        (draft.root / "config.json").write_text(f'"{"x" * size}"')
        registry.add(draft)
        path = tmp_path / str(step) / "m.onnx"
        path.parent.mkdir()
        onnx.save(retrained.model(step), path, save_as_external_data=True, location="m.data")
        assert reg("add", path, path.with_name("m.data"), "--name", "acme/data").status == 0
    assert "config.json" in [row["path"] for row in reg("delta", "make", NAME, "--json").json["deltas"]]
    (row,) = reg("delta", "make", "acme/data", "--json").json["deltas"]
    assert (row["path"], row["from"]) == ("m.data", "0.1.0") and row["size"] < 0.5 * row["of"]


def test_a_push_makes_them_at_the_remote(reg, registry, ministack, monkeypatch):
    ministack.enter(monkeypatch)
    bucket = ministack.fresh()
    assert reg("push", NAME, "--all", "--remote", "./there").status == 0
    assert reg("push", NAME, "./there", "--deltas").ended(0, "offers 3 deltas")
    assert reg("push", NAME, "--all", "--remote", bucket, "--deltas").status == 0
    for place in ("./there", bucket):
        assert len(reg("delta", "ls", NAME, "--remote", place, "--json").json["deltas"]) == 3
        assert reg("verify", "--remote", place).status == 0
    assert reg("delta", "ls", NAME, "--json").json["deltas"] == []
