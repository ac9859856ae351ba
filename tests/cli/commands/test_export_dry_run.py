"""`reg export --dry-run`: artifacts are made and judged, and nothing is published."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Reg = Callable[..., Any]


@pytest.fixture
def words(make_checkpoint: Callable[..., Path], tmp_path: Path) -> list[str]:
    """An export whose INT8 file a suite of two texts leaves unknown."""
    suite = tmp_path / "texts.jsonl"
    suite.write_text("".join(f"{json.dumps({'text': text})}\n" for text in ("w20 w21", "w30")))
    source = make_checkpoint("bert", "")
    options = ["--task", "pooling", "--quantize", "--eval-suite", str(suite), "--name", "acme/x"]
    return ["export", str(source), *options]


def test_a_dry_run_judges_and_publishes_nothing(reg: Reg, words: list[str]) -> None:
    tried = reg(*words, "--dry-run", "--json")
    assert tried.status == 0, tried.err
    value = json.loads(tried.out)
    assert value["dry_run"] is True and value["ref"] == "acme/x:0.1.0" and value["output"] is None
    assert value["states"] == {"model.onnx": "unknown", "model_int8.onnx": "unknown"}
    assert reg("ls", "acme/x").status == 3
    told = reg(*words, "--dry-run")
    assert (told.status, "model_int8.onnx" in told.out) == (0, True)
    assert reg("log", "acme/x").status == 3
    published = json.loads(reg(*words, "--json").out)
    assert (published["ref"], published["digest"]) == (value["ref"], value["digest"])
    assert "dry_run" not in published
    again = reg(*words, "--dry-run")
    assert (again.status, "acme/x:0.1.0" in again.out) == (0, True)


@pytest.mark.parametrize("option", [("--push", "there"), ("--output", "out")])
def test_a_dry_run_goes_nowhere(reg: Reg, words: list[str], option: tuple[str, str]) -> None:
    done = reg(*words, "--dry-run", *option)
    assert done.status == 2 and option[0] in done.err


@pytest.mark.parametrize("pair", ["NAME", "=NAME", ""])
def test_a_label_map_that_names_no_label_is_an_error(reg: Reg, words: list[str], pair: str) -> None:
    done = reg(*words, "--label-map", pair)
    assert done.status == 2 and "--label-map" in done.err


def test_a_label_map_is_of_spans(reg: Reg, words: list[str]) -> None:
    assert reg(*words, "--label-map", "A=B").status == 2
