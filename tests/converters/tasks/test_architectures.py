"""The table of docs/architectures.md is what exports give."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import architectures
from architectures import TABLES, Architecture

QUICK = ("BERT", "GPT-2", "T5")
"""The rows that every run sees; `make test-all` sees all."""

ROWS = [
    pytest.param(name, each, marks=() if each.name in QUICK else pytest.mark.large, id=each.name)
    for name, (found, _) in TABLES.items()
    for each in found
]


@pytest.mark.parametrize(("name", "architecture"), ROWS)
def test_a_row_is_what_exports_give(name: str, architecture: Architecture) -> None:
    heads: Sequence[str] = list(TABLES[name][1])
    given = architectures.line([architecture.name, *architectures.row(architecture, TABLES[name][1])])
    assert architectures.written(name)[0] == architectures.line(["architecture", *heads])
    assert given in architectures.written(name)


@pytest.mark.parametrize("name", TABLES)
def test_the_page_has_a_row_for_each_architecture(name: str) -> None:
    told = [line.split(" | ")[0].removeprefix("| ") for line in architectures.written(name)[2:]]
    assert told == [each.name for each in TABLES[name][0]]
