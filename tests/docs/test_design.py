"""The table "where to change what" names files that exist, and names that are in them."""

import re
from pathlib import Path

import pytest
from support.docs.pages import REPOSITORY

PAGE = (REPOSITORY / "docs" / "design.md").read_text("utf-8")
TABLE = PAGE.partition("## Where to change what")[2].partition("\n## ")[0]
ROWS = [line for line in TABLE.splitlines() if line.startswith("| ")][1:]
ELSEWHERE = {"Advice", "StoreContract"}
"""Names that a row mentions beside the files that it leads to."""


def paths_and_names(row: str) -> tuple[list[Path], list[str]]:
    """The files of a row, and the names that must be in one of them. A file without a folder is beside one before."""
    paths: list[Path] = []
    names = []
    for code in re.findall(r"`([^`]+)`", row.split("|")[2]):
        path = REPOSITORY / code
        if "/" not in code and re.search(r"\.(py|md)$", code) and paths:
            folders = [other if other.is_dir() else other.parent for other in paths]
            path = next((folder / code for folder in folders if (folder / code).exists()), path)
        if path.exists() or "/" in code or code.endswith(".py"):
            paths.append(path)
        elif code.isidentifier() and code not in ELSEWHERE:
            names.append(code)
    return paths, names


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip())
def test_a_row_leads_to_what_it_names(row: str) -> None:
    paths, names = paths_and_names(row)
    assert [path for path in paths if not path.exists()] == []
    texts = [path.read_text("utf-8") for path in paths if path.is_file()]
    for name in names:
        assert any(re.search(rf"\b{re.escape(name)}\b", text) for text in texts), name
