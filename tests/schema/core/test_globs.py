"""Patterns of `*` and `?`: what they match, and how many steps that takes."""

import re
from fnmatch import translate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxreg.schema.core.errors import InputError
from onnxreg.schema.query.expression import limited, matcher, parse


@given(st.text("ab*?", max_size=8), st.text("ab?", max_size=12))
def test_a_pattern_matches_as_a_shell_s_does(pattern: str, text: str) -> None:
    assert matcher(pattern)(text) is (re.match(translate(pattern), text) is not None)


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("", "", True),
        ("", "a", False),
        ("*", "", True),
        ("?", "\n", True),
        ("[ab]", "a", False),
        ("[ab]", "[ab]", True),
        ("*.onnx", "a.onnx", True),
        ("*?" * 2000, "a" * 1999, False),
        ("*?" * 2000, "a" * 2000, True),
        ("*a" * 2000 + "b", "a" * 4000, False),
    ],
)
def test_a_pattern_matches_or_does_not(pattern: str, text: str, fits: bool) -> None:
    assert matcher(pattern)(text) is fits


def test_a_question_has_a_budget() -> None:
    expression = parse("path ~ '*x*' or path ~ '*y*'")
    candidates = [{"path": "a"}] * 100

    def count() -> int:
        return sum(map(expression.matches, candidates))

    with limited(200) as budget:
        assert count() == 0
        assert budget.left == 0
        with pytest.raises(InputError, match="more than 200 steps"):
            count()
    assert count() == 0
