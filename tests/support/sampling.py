"""Which cases of a large table `make test` runs."""

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(values: Iterable[Any], stride: int, others: pytest.MarkDecorator = pytest.mark.more) -> list[Any]:
    """Leave each value of that stride, beginning with the first, as it is, and give the mark to the others."""
    return [
        pytest.param(value, marks=others) if number % stride else value for number, value in enumerate(values)
    ]
