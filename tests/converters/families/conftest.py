"""Modules beside the tests, and a maker of heads."""

import pytest
from support.families.seeded import MakeHead, maker


@pytest.fixture
def make_head() -> MakeHead:
    """A head of seeded weights: `make(name, classes, hidden...)`."""
    return maker()
