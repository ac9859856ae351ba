"""The tables of docs/architectures.md are what exports give, the same bytes in every process."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.tasks import architectures
from support.tasks import vision_architectures as vision
from support.tasks.architectures import HEADS, TEXT, Architecture

from onnxreg.converters.passes.conversion import sorted_sets

QUICK, MORE = ("BERT", "ResNet"), ("GPT-2", "T5")
"""The rows that every run sees, and those that `make test-more` adds; `make test-all` sees all."""


def rows(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=marks_of(name)) for name in names]


def marks_of(name: str) -> list[pytest.MarkDecorator]:
    return [] if name in QUICK else [pytest.mark.more if name in MORE else pytest.mark.large]


KNOWN: dict[str, Architecture] = {each.name: each for each in TEXT}


@pytest.mark.parametrize("name", rows(KNOWN))
def test_a_row_of_text_is_what_exports_give(name):
    assert architectures.line([name, *architectures.row(KNOWN[name])]) in architectures.written("text")


@pytest.mark.parametrize("name", rows(vision.KINDS))
def test_a_row_of_vision_is_what_exports_give(name):
    assert architectures.line([name, *vision.row(name)]) in architectures.written("vision")


@pytest.mark.parametrize(
    ("table", "columns", "names"),
    [("text", HEADS, KNOWN), ("vision", ["float32", *vision.STEPS], vision.KINDS)],
    ids=["text", "vision"],
)
def test_the_page_has_a_row_for_each_architecture(table, columns, names):
    head, _, *lines = architectures.written(table)
    assert head == architectures.line(["architecture", *columns])
    assert [line.split(" | ")[0].removeprefix("| ") for line in lines] == list(names)


CHILD = Path(__file__).parents[2] / "support" / "tasks" / "export_digests.py"
QUICK = tuple(f"{name}:feature-extraction" for name in ("ModernBERT", "BERT", "DeBERTa-v3"))
ALL = (*(each.name for each in architectures.TEXT), *vision.KINDS)


def export(names: tuple[str, ...], seed: str, checkpoints: Path) -> dict[str, Any]:
    """The digests that a process with this seed wrote, by architecture; all processes export the same checkpoints."""
    environment = {
        **os.environ,
        "PYTHONHASHSEED": seed,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(CHILD.parents[2]),
    }
    command = [sys.executable, str(CHILD), str(checkpoints), *names]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    digests: dict[str, Any] = json.loads(run.stdout)
    return digests


@pytest.mark.more
@pytest.mark.parametrize(
    ("names", "seeds"),
    [
        pytest.param(QUICK, ("0", "1"), id="quick"),
        *(pytest.param((name,), ("0", "1", "2", "0"), id=name, marks=pytest.mark.large) for name in ALL),
    ],
)
def test_bytes_do_not_depend_on_the_hash_seed(names, seeds, tmp_path):
    first, *others = (export(names, seed, tmp_path) for seed in seeds)
    assert all(first[name] for name in names if name != "T5")
    assert all(other == first for other in others)


class Loop(torch.nn.Module):
    """Gives the order in which its forward meets the texts of a set."""

    def forward(self) -> list[str]:
        return list(set("hfgbadce"))


def test_sets_of_texts_are_sorted_only_inside():
    with sorted_sets(torch.nn.Sequential(Loop())):
        assert Loop()() == list("abcdefgh")
    assert "set" not in globals()
