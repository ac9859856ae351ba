"""Lengths of time: what is read, and what is refused."""

import pytest

from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.units import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0s", 0), ("90s", 90), ("15min", 900), ("12h", 43_200), ("7d", 604_800), ("2w", 1_209_600)],
)
def test_a_length_of_time(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "7", "d", "-1d", "1.5d", "7 d", "7D", "7m", "1d2h", "\u0667d", "9999999999s"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="not a length of time"):
        parse_duration(text)
