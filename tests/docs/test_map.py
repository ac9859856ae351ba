"""The map lists every page, and every link leads to a page and a heading of it."""

import re
from pathlib import Path

import pytest
from support.docs.pages import FENCE, REPOSITORY

MAP = REPOSITORY / "docs" / "README.md"
ALL = [
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    REPOSITORY / "CHANGELOG.md",
    *sorted((REPOSITORY / "docs").rglob("*.md")),
]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def links(page: Path) -> list[str]:
    """The targets of a page's links to pages of ours."""
    prose = re.sub(r"`[^`]*`", "", FENCE.sub("", page.read_text("utf-8")))
    return [target for target in LINK.findall(prose) if not re.match(r"[a-z]+:", target)]


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as they are made for links to them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in links(page):
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(found), f"{page.name}: {target}: no such heading"


def test_the_map_lists_every_page_once() -> None:
    listed = [(MAP.parent / target.partition("#")[0]).resolve() for target in links(MAP)]
    pages = [page for page in (REPOSITORY / "docs").rglob("*.md") if page != MAP]
    assert sorted(page for page in listed if page in pages) == sorted(pages)


def test_the_readme_leads_to_the_map() -> None:
    assert "docs/README.md" in links(REPOSITORY / "README.md")
