"""Which cases of a large table `make test` runs."""

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(values: Iterable[Any], stride: int) -> list[Any]:
    """Run each value of that stride, beginning with the first, in `make test`, and the others in `make test-more`."""
    return [
        pytest.param(value, marks=pytest.mark.more) if number % stride else value
        for number, value in enumerate(values)
    ]
