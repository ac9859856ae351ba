"""Modules beside the tests, and a maker of heads."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from seeded import MakeHead, maker


@pytest.fixture
def make_head() -> MakeHead:
    """A head of seeded weights: `make(name, classes, hidden...)`."""
    return maker()
