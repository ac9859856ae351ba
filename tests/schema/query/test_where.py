"""The expression language: what parses, where an error is drawn, and what an expression is true of."""

import json
import re
from fnmatch import translate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from support.schema.expressions import CANDIDATES, EXPRESSIONS

from onnxreg.schema.core.bounds import MAX_EXPRESSION_CHARS
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.query.expression import MAX_COLUMNS, ExpressionError, limit_steps, matcher, parse
from onnxreg.schema.query.fields import FIELDS, FieldKind

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "where.json").read_text())
"""What any language's client answers the same."""
FULL: dict[str, Any] = VECTORS["candidate"]


@pytest.mark.parametrize("text", VECTORS["true"])
def test_expressions_that_hold_and_their_negations(text):
    assert parse(text).matches(FULL)
    assert not parse(f"not ({text})").matches(FULL)


@pytest.mark.parametrize("text", VECTORS["unknown"])
def test_a_test_of_what_nobody_knows_is_false_and_its_negation_true(text):
    for candidate in (FULL, {}):
        assert not parse(text).matches(candidate)
        assert parse(f"not {text}").matches(candidate)


@pytest.mark.parametrize("name", [name for name, kind in FIELDS.items() if kind is FieldKind.FLAG])
def test_a_flag_that_nobody_knows_is_false(name):
    assert not parse(name).matches({})
    assert not parse(name).matches({name: None})


def test_every_field_is_that_of_a_candidate():
    assert FULL.keys() == FIELDS.keys()


@pytest.mark.parametrize("case", VECTORS["errors"], ids=lambda case: case["expression"][:40])
def test_an_error_says_what_was_expected_and_where(case):
    with pytest.raises(ExpressionError) as raised:
        parse(case["expression"])
    assert list(raised.value.span) == case["span"]
    assert case["says"] in raised.value.message
    assert raised.value.hint


def test_half_a_character_is_refused():
    with pytest.raises(ExpressionError, match="cut in two") as raised:
        parse("name = 'caf\ud800'")
    assert raised.value.span == (11, 12)


DRAWN = {
    "size <= 'small'": "        ~~~~~~^",
    "(yanked": "       ^",
    "certified and\nsise < 3": "              ~~~^",
    "": "^",
}


@pytest.mark.parametrize("text", DRAWN)
def test_the_place_is_drawn_below_the_expression(text):
    with pytest.raises(ExpressionError) as raised:
        parse(text)
    assert raised.value.drawing == (text.replace("\n", " "), DRAWN[text])


@pytest.mark.parametrize("before", [0, 20, 200])
@pytest.mark.parametrize("after", [0, 20, 200])
def test_of_a_long_expression_the_part_around_the_place_is_drawn(before, after):
    text = "yanked or " * before + "sise < 3" + " or yanked" * after
    with pytest.raises(ExpressionError) as raised:
        parse(text)
    line, marks = raised.value.drawing
    start = len(marks) - len(marks.lstrip())
    assert len(line) <= MAX_COLUMNS
    assert line[start : len(marks)] == text[slice(*raised.value.span)]


def test_too_long_is_refused():
    text = "yanked or " * (MAX_EXPRESSION_CHARS // 10) + "yanked"
    assert parse(text[:MAX_EXPRESSION_CHARS].rpartition(" or ")[0])
    with pytest.raises(ExpressionError, match="longer than 4096 characters"):
        parse(text + " " * MAX_EXPRESSION_CHARS)


NEAR = """
sise < 3 | did you mean size?
Certified | did you mean certified?
download-size < 3 | did you mean download_size?
artifact.opset = 3 | did you mean opset?
channel = stable | did you mean channels?
recal.PHONE > 0.5 | did you mean recall or min_recall?
metrics.f1 > 0.5 | did you mean metric?
metric > 0.5 | write metric['sts/spearman'], with the name of a check of the version
certification = x | certified
zzz = 3 | the fields are name, version, 
"""


@pytest.mark.parametrize("row", NEAR.strip().splitlines())
def test_near_misses_are_named(row):
    text, near = row.split(" | ")
    with pytest.raises(ExpressionError) as raised:
        parse(text)
    assert near in raised.value.hint


def test_the_fields_that_decide_are_named():
    expression = parse(
        "certified and (recall.PHONE > 0.5 or not 'stable' in channels) and size in (1, 2) and metric.f1 > 0"
    )
    assert expression.fields == {"certified", "recall", "channels", "size", "metric"}
    assert parse("metric['character_recall/PHONE'] > 0").fields == {"recall"}


def test_equal_expressions_are_equal_however_they_are_written():
    assert parse("format=onnx-int8 and  recall.A>0.5") == parse("format == 'onnx-int8' and recall['A'] > 0.5")
    assert parse("yanked or certified and newest") == parse("yanked or (certified and newest)")
    assert parse("(yanked or certified) and newest") != parse("yanked or certified and newest")


@given(EXPRESSIONS, CANDIDATES)
def test_it_is_true_of_what_a_naive_judge_says(case, found):
    text, judge = case
    assert parse(text).matches(found) == judge(found)
    assert parse(text).matches({}) == judge({})


@given(EXPRESSIONS)
def test_printed_expressions_parse_to_the_same(case):
    expression = parse(case[0])
    assert parse(str(expression)) == expression
    assert str(parse(str(expression))) == str(expression)


PIECES = some.sampled_from(
    [
        *(*FIELDS, "metric['f1']", "and", "or", "not", "in", "(", ")", "[", "]", ",", "=", "<", "~"),
        *("'a'", "1", "1.4.0", "3MB", "x", ""),
    ]
)


@given(some.text() | some.lists(PIECES).map(" ".join) | some.text("acdeinrst '\"()[]=<>~!.,0159MB"))
def test_any_text_parses_or_is_an_input_error(text):
    try:
        expression = parse(text)
    except InputError as error:
        assert isinstance(error, ExpressionError)
        assert 0 <= error.span[0] <= error.span[1] <= len(text)
    else:
        expression.matches({})
        expression.matches(FULL)
        assert parse(str(expression)) == expression


@given(some.text("ab*?", max_size=8), some.text("ab?", max_size=12))
def test_a_pattern_matches_as_a_shell_s_does(pattern, text):
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
def test_a_pattern_matches_or_does_not(pattern, text, fits):
    assert matcher(pattern)(text) is fits


def test_a_question_has_a_budget():
    expression = parse("path ~ '*x*' or path ~ '*y*'")
    candidates = [{"path": "a"}] * 100

    def count() -> int:
        return sum(map(expression.matches, candidates))

    with limit_steps(200) as budget:
        assert count() == 0
        assert budget.left == 0
        with pytest.raises(InputError, match="more than 200 steps"):
            count()
    assert count() == 0
