"""The tables of docs/architectures.md are what exports give."""

from collections.abc import Iterable
from typing import Any

import pytest
from support.tasks import architectures
from support.tasks import vision_architectures as vision
from support.tasks.architectures import HEADS, TEXT, Architecture

QUICK, MORE = ("BERT", "ResNet"), ("GPT-2", "T5")
"""The rows that every run sees, and those that `make test-more` adds; `make test-all` sees all."""


def rows(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=marks_of(name)) for name in names]


def marks_of(name: str) -> list[pytest.MarkDecorator]:
    return [] if name in QUICK else [pytest.mark.more if name in MORE else pytest.mark.large]


KNOWN: dict[str, Architecture] = {each.name: each for each in TEXT}


@pytest.mark.parametrize("name", rows(KNOWN))
def test_a_row_of_text_is_what_exports_give(name: str) -> None:
    assert architectures.line([name, *architectures.row(KNOWN[name])]) in architectures.written("text")


@pytest.mark.parametrize("name", rows(vision.KINDS))
def test_a_row_of_vision_is_what_exports_give(name: str) -> None:
    assert architectures.line([name, *vision.row(name)]) in architectures.written("vision")


@pytest.mark.parametrize(
    ("table", "columns", "names"),
    [("text", HEADS, KNOWN), ("vision", ["float32", *vision.STEPS], vision.KINDS)],
    ids=["text", "vision"],
)
def test_the_page_has_a_row_for_each_architecture(
    table: str, columns: Iterable[str], names: Iterable[str]
) -> None:
    head, _, *lines = architectures.written(table)
    assert head == architectures.line(["architecture", *columns])
    assert [line.split(" | ")[0].removeprefix("| ") for line in lines] == list(names)
