"""`reg history`: a line for each version, with the figure charted if it can be compared."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.registries.judged import judged_draft
from support.terminal import on_a_terminal

from onnxreg.registry import Registry

Reg = Callable[..., Any]
NAME = "acme/tagger"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four versions of a tagger, the second on another suite, the last yanked; one is the channel `stable`."""
    root = tmp_path_factory.mktemp("history")
    registry = Registry(root / "home", actor="ada@lab")
    for number, suite in enumerate(("suite", "other", "suite", "suite")):
        worse = {"LABEL01": 0.9 + number / 100}
        registry.add(
            judged_draft(root / str(number), number, labels=3, suite=suite, worse=worse), f"1.{number}.0"
        )
    registry.tag(f"{NAME}:1.2.0", "stable")
    registry.yank(f"{NAME}:1.3.0", "leak")
    return registry.store.root


@pytest.fixture(autouse=True)
def _home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REG_HOME", str(home))


def test_one_line_for_each_version_newest_first(reg: Reg) -> None:
    shown = reg("history", NAME, "--metric", "LABEL01", "--precision", "int8").out
    title, _, header, *rows = shown.splitlines()
    assert title == "acme/tagger: character_recall/LABEL01"
    assert header.split() == ["VERSION", "DATE", "STATE", "ARTIFACT", "SIZE", "VERDICT", "VALUE"]
    words = [re.sub(r"\d{4}-\d\d-\d\d", "DATE", re.sub(r"\s+", " ", row)).strip() for row in rows]
    assert words == [
        "1.3.0 DATE yanked model_int8.onnx 17.5 kB certified 0.93 o",
        "1.2.0 DATE stable model_int8.onnx 17.5 kB certified 0.92 o",
        "1.1.0 DATE model_int8.onnx 17.5 kB certified 0.91 other suite",
        "1.0.0 DATE model_int8.onnx 17.5 kB certified 0.9 o",
    ]
    columns = [row.index(" o") for row in rows if row.endswith(" o")]
    assert columns == sorted(columns, reverse=True) and len(set(columns)) == 3


def test_the_default_is_the_loss_with_its_interval(home: Path) -> None:
    status, drawn = on_a_terminal(home, "history", NAME, NO_COLOR="1")
    assert status == 0 and "quant_recall_delta" in drawn.splitlines()[0]
    assert re.search(r"-+o-+", drawn)
    assert max(map(len, drawn.splitlines())) <= 80


def test_json_has_every_artifact_and_figure(reg: Reg) -> None:
    document = reg("history", NAME, "--last", "2", "--json").json
    assert [row["version"] for row in document["versions"]] == ["1.3.0", "1.2.0"]
    newest = document["versions"][0]
    assert (newest["status"], newest["actor"]) == ("yanked", "ada@lab")
    assert [item["path"] for item in newest["artifacts"]] == [
        "model.onnx",
        "model_fp16.onnx",
        "model_int8.onnx",
    ]
    assert newest["artifacts"][2]["figures"]["character_recall/LABEL01"] == 0.93
    assert newest["value"] == newest["artifact"]["figures"][document["metric"]]


def test_an_unknown_model_and_figure(reg: Reg) -> None:
    assert reg("history", "acme/none").status == 3
    done = reg("history", NAME, "--metric", "LABEL1")
    assert done.status == 3 and "did you mean LABEL01" in done.err


def test_a_remote(reg: Reg, tmp_path: Path, home: Path) -> None:
    Registry(home).push(f"{NAME}:1.0.0", str(tmp_path / "there"))
    shown = reg("history", NAME, "--remote", str(tmp_path / "there")).out
    assert "1.0.0" in shown and "1.1.0" not in shown
