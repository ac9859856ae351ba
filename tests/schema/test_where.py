"""The expression language: what parses, where an error is drawn, and what an expression is true of."""

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from onnxreg.schema import where
from onnxreg.schema.errors import InputError
from onnxreg.schema.where_fields import FIELDS, Kind
from onnxreg.schema.where_tokens import LENGTH, WIDTH, ExpressionError

sys.path.insert(0, str(Path(__file__).parent))
from expressions import CANDIDATES, EXPRESSIONS, Case

FULL: dict[str, Any] = {
    "name": "acme/pii-small",
    "version": "1.4.0",
    "manifest": "sha256:" + "a" * 64,
    "channels": ["beta", "stable"],
    "newest": True,
    "prerelease": False,
    "yanked": False,
    "pinned": False,
    "task": "token-classification",
    "family": None,
    "license": "apache-2.0",
    "format": "onnx-int8",
    "precision": "int8",
    "path": "onnx/model_int8.onnx",
    "digest": "sha256:" + "b" * 64,
    "size": 30_000_000,
    "download_size": 30_000_100,
    "state": "certified",
    "certified": True,
    "opset": 18,
    "ort_format": None,
    "providers": ["NNAPI"],
    "recall": {"PHONE": 0.97, "FIRST NAME": 0.95, "B.x": 0.5},
    "min_recall": 0.5,
}
TRUE = (
    "format = onnx-int8",
    "format == 'onnx-int8'",
    'format != "onnx-int4"',
    "format in (ort-android, onnx-int8)",
    "format not in (ort-android, onnx)",
    "size <= 30MB and size < 30MiB and size > 28MiB and size = 30000kB and size >= 0.03GB",
    "size = 30000000 and size = 30000000B and size < 1TB and size < 1TiB and size < 1GiB and size > 1.5KiB",
    "size in (1, 30MB)",
    "version >= 1.4.0 and version < 1.10.0 and version > 1.4.0-rc.1 and version = 1.4.0+build.7",
    "version = '1.4.0' and version != 1.4.1 and version in (1.4.0, 2.0.0) and version ~ '1.4.*'",
    "recall.PHONE >= 0.95 and recall['FIRST NAME'] = 0.95 and recall[\"PHONE\"] < 1 and recall.B.x = 0.5",
    "min_recall = 0.5 and min_recall in (0.4, 0.50)",
    "'stable' in channels and stable in channels and alpha not in channels and 'NNAPI' in providers",
    "certified and newest and not yanked and not prerelease and not pinned",
    "name ~ 'acme/*' and name ~ '*pii*' and name ~ 'acme?pii-small' and not name ~ 'acme'",
    "name = acme/pii-small and path ~ 'onnx/*.onnx' and license = apache-2.0",
    "opset >= 17 and opset <= 18.0 and opset > 17.5",
    "yanked or certified and newest",
    "not (yanked or not certified)",
    "not not certified",
    "certified\n\tand\r\n(newest)",
    "manifest ~ 'sha256:aa*' and digest != manifest-of-another",
)
UNKNOWN = (
    *("family = bert", "family != bert", "family in (bert)", "family not in (bert)", "family ~ '*'"),
    *("ort_format = 6", "ort_format != 6", "ort_format < 6", "ort_format >= 0", "ort_format not in (6)"),
    *("recall.IBAN < 1", "recall.IBAN >= 0", "recall['IBAN'] != 1", "recall.IBAN not in (0.5)"),
)


@pytest.mark.parametrize("text", TRUE)
def test_what_is_true_and_its_negation(text: str) -> None:
    assert where.parse(text).matches(FULL)
    assert not where.parse(f"not ({text})").matches(FULL)


@pytest.mark.parametrize("text", UNKNOWN)
def test_a_test_of_what_nobody_knows_is_false_and_its_negation_true(text: str) -> None:
    for candidate in (FULL, {}):
        assert not where.parse(text).matches(candidate)
        assert where.parse(f"not {text}").matches(candidate)


@pytest.mark.parametrize("name", [name for name, kind in FIELDS.items() if kind is Kind.FLAG])
def test_a_flag_that_nobody_knows_is_false(name: str) -> None:
    assert not where.parse(name).matches({})
    assert not where.parse(name).matches({name: None})


def test_every_field_is_that_of_a_candidate() -> None:
    assert FULL.keys() == FIELDS.keys()


WRONG = (
    ("", "", "expected a field, such as size, on the left; it ends here"),
    ("sise <= 30MB", "sise", "there is no field sise"),
    ("metadata.opset > 3", "metadata.opset", "there is no field metadata.opset"),
    (
        "size <= 'small'",
        "'small'",
        "expected a size, such as 30MB, 28MiB or a number of bytes; found 'small'",
    ),
    ("size <= 30KB", "30KB", "expected a size, such as 30MB, 28MiB or a number of bytes: KB is no unit"),
    ("size <= 30 MB", "MB", "expected and, or, or the end; found MB"),
    ("size = 0.3KiB", "0.3KiB", "0.3KiB is no whole number of bytes"),
    ("size = 9.MB", "9.MB", "9. is no number"),
    ("size < 9999TiB", "9999TiB", "9999TiB is more than 9007199254740991 bytes"),
    ("size < 1234567890123456", "1234567890123456", "1234567890123456 has more than 15 digits"),
    ("opset >= 17MB", "17MB", "expected a number, such as 18: 17MB is no number"),
    ("opset = 1e3", "1e3", "1e3 is no number"),
    ("version >= 1.4", "1.4", "expected a version, such as 1.4.0: not a version: '1.4'"),
    ("version = one", "one", "expected a version, such as 1.4.0; found one"),
    ("recall.PHONE >= 95", "95", "expected a share from 0 to 1, such as 0.95: 95 is more than 1"),
    ("recall >= 0.9", "recall", "expected the label whose recall is meant"),
    ("recall[PHONE] > 0", "PHONE", "expected a label in quotes; found PHONE"),
    ("recall['PHONE' > 0", ">", "expected ]; found >"),
    ("size", "", "expected a comparison: size is by itself neither true nor false; it ends here"),
    ("certified = true", "certified", "certified is true or false by itself and is not compared"),
    ("certified in (true)", "certified", "certified is true or false by itself and is not compared"),
    ("channels = stable", "channels", "channels is a list and is not compared"),
    ("channels", "", "expected a comparison: channels is by itself neither true nor false; it ends here"),
    ("int8 in precision", "precision", "expected channels or providers, or values in brackets"),
    ("format < onnx", "<", "format is a text, which has no order"),
    ("size ~ '3*'", "~", "which has no patterns"),
    ("3 < size", "3", "expected a field, such as size, on the left; found 3"),
    ("'a' = name", "'a'", "expected a field, such as size, on the left; found 'a'"),
    ("task = 5", "5", "expected a text, such as onnx-int8 or 'two words'; found 5"),
    ("name = and", "and", "expected a text, such as onnx-int8 or 'two words'; found and"),
    ("name = 'acme", "'acme", "the text that begins with ' has no end"),
    ("name ~ acme/*", "*", "'*' is not part of the language"),
    ("yanked && certified", "&", "'&' is not part of the language"),
    ("!yanked", "!", "'!' is not part of the language"),
    ("yanked AND certified", "AND", "expected and, or, or the end; found AND"),
    ("yanked certified", "certified", "expected and, or, or the end; found certified"),
    ("(yanked", "", "expected and, or, or ); it ends here"),
    ("yanked)", ")", "expected and, or, or the end; found )"),
    ("not", "", "expected a field, such as size, on the left; it ends here"),
    ("yanked or", "", "expected a field, such as size, on the left; it ends here"),
    ("format in ()", ")", "expected a text, such as onnx-int8 or 'two words'; found )"),
    ("format in (onnx,)", ")", "expected a text, such as onnx-int8 or 'two words'; found )"),
    ("format in (onnx ort)", "ort", "expected , or ); found ort"),
    ("format not onnx", "onnx", "expected in; found onnx"),
    ("name = 'caf\ud800'", "\ud800", "a character is cut in two"),
    ("größe < 3", "ö", "'ö' is not part of the language"),
    ("(" * 65 + "yanked" + ")" * 65, "(", "it is nested deeper than 64 levels"),
    ("not " * 65 + "yanked", "not", "it is nested deeper than 64 levels"),
)


@pytest.mark.parametrize("text, part, what", WRONG)
def test_an_error_says_what_was_expected_and_where(text: str, part: str, what: str) -> None:
    with pytest.raises(ExpressionError) as raised:
        where.parse(text)
    start, end = raised.value.span
    assert text[start:end] == part
    assert what in raised.value.message
    assert raised.value.hint


DRAWN = {
    "size <= 'small'": "        ~~~~~~^",
    "(yanked": "       ^",
    "certified and\nsise < 3": "              ~~~^",
    "": "^",
}


@pytest.mark.parametrize("text", DRAWN)
def test_the_place_is_drawn_below_the_expression(text: str) -> None:
    with pytest.raises(ExpressionError) as raised:
        where.parse(text)
    assert raised.value.drawing == (text.replace("\n", " "), DRAWN[text])


@pytest.mark.parametrize("before", [0, 20, 200])
@pytest.mark.parametrize("after", [0, 20, 200])
def test_of_a_long_expression_the_part_around_the_place_is_drawn(before: int, after: int) -> None:
    text = "yanked or " * before + "sise < 3" + " or yanked" * after
    with pytest.raises(ExpressionError) as raised:
        where.parse(text)
    line, marks = raised.value.drawing
    start = len(marks) - len(marks.lstrip())
    assert len(line) <= WIDTH
    assert line[start : len(marks)] == text[slice(*raised.value.span)]


def test_too_long_is_refused() -> None:
    text = "yanked or " * (LENGTH // 10) + "yanked"
    assert where.parse(text[:LENGTH].rpartition(" or ")[0])
    with pytest.raises(ExpressionError, match="longer than 4096 characters"):
        where.parse(text + " " * LENGTH)


@pytest.mark.parametrize(
    "text, near",
    [
        ("sise < 3", "did you mean size?"),
        ("Certified", "did you mean certified?"),
        ("download-size < 3", "did you mean download_size?"),
        ("artifact.opset = 3", "did you mean opset?"),
        ("channel = stable", "did you mean channels?"),
        ("recal.PHONE > 0.5", "did you mean recall or min_recall?"),
        ("certification = x", "certified"),
        ("zzz = 3", "the fields are name, version, "),
    ],
)
def test_near_misses_are_named(text: str, near: str) -> None:
    with pytest.raises(ExpressionError) as raised:
        where.parse(text)
    assert near in raised.value.hint


def test_the_fields_that_decide_are_named() -> None:
    expression = where.parse(
        "certified and (recall.PHONE > 0.5 or not 'stable' in channels) and size in (1, 2)"
    )
    assert expression.fields() == {"certified", "recall", "channels", "size"}


def test_equal_expressions_are_equal_however_they_are_written() -> None:
    assert where.parse("format=onnx-int8 and  recall.A>0.5") == where.parse(
        "format == 'onnx-int8' and recall['A'] > 0.5"
    )
    assert where.parse("yanked or certified and newest") == where.parse("yanked or (certified and newest)")
    assert where.parse("(yanked or certified) and newest") != where.parse("yanked or certified and newest")


@given(EXPRESSIONS, CANDIDATES)
def test_it_is_true_of_what_a_naive_judge_says(case: Case, found: dict[str, Any]) -> None:
    text, judge = case
    assert where.parse(text).matches(found) == judge(found)
    assert where.parse(text).matches({}) == judge({})


@given(EXPRESSIONS)
def test_what_is_printed_parses_to_the_same(case: Case) -> None:
    expression = where.parse(case[0])
    assert where.parse(str(expression)) == expression
    assert str(where.parse(str(expression))) == str(expression)


PIECES = some.sampled_from(
    [
        *FIELDS,
        "and",
        "or",
        "not",
        "in",
        "(",
        ")",
        "[",
        "]",
        ",",
        "=",
        "<",
        "~",
        "'a'",
        "1",
        "1.4.0",
        "3MB",
        "x",
        "",
    ]
)


@given(some.text() | some.lists(PIECES).map(" ".join) | some.text("acdeinrst '\"()[]=<>~!.,0159MB"))
def test_any_text_parses_or_is_an_input_error(text: str) -> None:
    try:
        expression = where.parse(text)
    except InputError as error:
        assert isinstance(error, ExpressionError)
        assert 0 <= error.span[0] <= error.span[1] <= len(text)
    else:
        expression.matches({})
        expression.matches(FULL)
        assert where.parse(str(expression)) == expression
