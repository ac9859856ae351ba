"""The excerpts of docs/house.md are the source."""

import re

import pytest
from support.docs.pages import REPOSITORY

PAGE = REPOSITORY / "docs" / "house.md"
SOURCE = re.compile(r"^From `([\w/.]+)`:$|^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def excerpts() -> list[tuple[str, str]]:
    """Each excerpt, behind the path of its source."""
    pairs, path = [], ""
    for match in SOURCE.finditer(PAGE.read_text("utf-8")):
        if match[1]:
            path = match[1]
        else:
            pairs.append((path, match[2]))
    return pairs


@pytest.mark.parametrize(("path", "excerpt"), excerpts())
def test_an_excerpt_is_the_source(path: str, excerpt: str) -> None:
    assert excerpt in (REPOSITORY / path).read_text("utf-8")


def test_there_are_three_sources() -> None:
    assert len({path for path, _ in excerpts()}) == 3
