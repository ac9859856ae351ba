"""Lengths of time: what is read, and what is refused."""

from datetime import timedelta

import pytest

from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.units import DURATION_UNITS, parse_duration

SAME = {
    "90s": timedelta(seconds=90),
    "15min": timedelta(minutes=15),
    "12h": timedelta(hours=12),
    "7d": timedelta(days=7),
    "2w": timedelta(weeks=2),
    "0s": timedelta(),
}


@pytest.mark.parametrize("text", SAME)
def test_a_length_of_time(text: str) -> None:
    assert timedelta(seconds=parse_duration(text)) == SAME[text]


def test_every_unit_is_tried() -> None:
    assert {text.lstrip("0123456789") for text in SAME} == DURATION_UNITS.keys()


@pytest.mark.parametrize(
    "text", ["", "7", "d", "-1d", "1.5d", "7 d", "7D", "7m", "1d2h", "\u0667d", "9999999999s"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="not a length of time"):
        parse_duration(text)
