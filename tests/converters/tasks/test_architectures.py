"""docs/architectures.md says what exports give, which are the same bytes in every process."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.sampling import sampled
from support.tasks import architectures, table
from support.tasks import vision_architectures as vision
from support.tasks.architectures import TEXT, Architecture

from onnxreg.converters.passes.conversion import traced_builtins

MORE = ("BERT", "GPT-2", "ResNet")
"""The rows of `make test-more`; `make test-all` has all."""


def rows(names: Iterable[str]) -> list[Any]:
    marks = pytest.mark.large, pytest.mark.more
    return [pytest.param(name, marks=marks[name in MORE]) for name in names]


ROWS = {row.name: row for rows in table.ROWS.values() for row in rows}
FULL, SMALL = 54, 54
"""The least numbers of architectures in float32 and in INT8."""
KNOWN: dict[str, Architecture] = {each.name: each for each in TEXT}


@pytest.mark.parametrize("name", rows(KNOWN))
def test_every_head_of_a_text_model_is_exported_in_both_precisions(name: str) -> None:
    both, is_encoder_decoder = "float32, int8", name == "T5"
    cells = architectures.row(KNOWN[name])
    assert cells == ["refused"] * 4 + [both] if is_encoder_decoder else {*cells} <= {both, "-"}


@pytest.mark.parametrize("name", rows(vision.KINDS))
def test_an_image_classifier_of_code_is_exported_in_every_precision(name: str) -> None:
    assert vision.row(name) == ["yes"] * (1 + len(vision.STEPS))


def test_the_page_says_what_the_runs_gave_for_every_architecture() -> None:
    results = json.loads(table.RESULTS.read_text("utf-8"))
    assert table.page(results) == table.PAGE.read_text("utf-8")
    lines = results["rows"]
    assert lines.keys() <= ROWS.keys() and len(lines) >= 60
    assert sum("float32" in line for line in lines.values()) >= FULL
    assert sum("int8" in line for line in lines.values()) >= SMALL
    assert all({"float32", "int8"} <= line.keys() or line["refused"] for line in lines.values())
    assert max(line.get("float32", 0.0) for line in lines.values()) < table.SHARE


@pytest.mark.more
@pytest.mark.parametrize(
    "name", sampled(["SAM", "HuBERT, classes", "Qwen3", "LayoutLM"], 3, pytest.mark.large)
)
def test_a_row_is_what_a_run_gives(name: str) -> None:
    row, line = ROWS[name], table.export(ROWS[name])
    written = json.loads(table.RESULTS.read_text("utf-8"))["rows"][row.name]
    assert {key: line.get(key) for key in ("class", "task", "refused")} == {
        key: written.get(key) for key in ("class", "task", "refused")
    }
    assert {"float32", "int8"} & line.keys() == {"float32", "int8"} & written.keys()


CHILD = Path(__file__).parents[2] / "support" / "tasks" / "export_digests.py"


def digests(name: str, seed: str, checkpoints: Path) -> Any:
    """The digests that a process with this seed wrote; all processes export the same checkpoints."""
    own = {"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(CHILD.parents[2])}
    command = [sys.executable, str(CHILD), str(checkpoints), name]
    run = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)[name]


@pytest.mark.large
@pytest.mark.parametrize("name", [*KNOWN, *vision.KINDS])
def test_bytes_do_not_depend_on_the_hash_seed(name, tmp_path):
    first, *others = (digests(name, seed, tmp_path) for seed in ("0", "1", "2", "0"))
    assert first or name == "T5"
    assert all(other == first for other in others)


class Loop(torch.nn.Module):
    """Gives the order in which its forward meets the texts of a set."""

    def forward(self) -> list[str]:
        return list(set("hfgbadce"))


def test_sets_of_texts_are_sorted_only_inside():
    with traced_builtins(torch.nn.Sequential(Loop())):
        assert Loop()() == list("abcdefgh")
    assert "set" not in globals()
