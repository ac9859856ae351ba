"""Strict JSON: encode and decode refuse the same things, and quickly."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.processor import no_quadratic_time

from onnxreg.schema.core import canonical
from onnxreg.schema.core.bounds import MAX_DEPTH, MAX_RECORD_BYTES
from onnxreg.schema.core.errors import InputError

LIMIT = canonical.MAX_INTEGER
NUMBERS = st.integers(-LIMIT, LIMIT) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


def _encodes(value: Any) -> bytes | None:
    try:
        return canonical.encode(value)
    except InputError:
        return None


@given(VALUES)
def test_what_is_encoded_is_read_and_nothing_else(value):
    data, text = _encodes(value), json.dumps(value).encode()
    if data is None:
        with pytest.raises(InputError):
            canonical.decode(text)
    else:
        assert canonical.encode(canonical.decode(text)) == data == canonical.encode(canonical.decode(data))


@given(st.binary(max_size=40) | st.text(max_size=40).map(lambda text: text.encode("utf-8", "replace")))
def test_any_bytes_are_read_or_refused(data):
    try:
        value = canonical.decode(data)
    except InputError as error:
        assert error.message.startswith("document ")
    else:
        assert canonical.decode(canonical.encode(value)) == value


DEEP = MAX_DEPTH
HOSTILE: dict[str, tuple[bytes | Callable[[], bytes], str]] = {
    "empty": (b"", "not valid JSON"),
    "blank": (b"  ", "not valid JSON"),
    "truncated": (b'{"a": [1, 2', "not valid JSON"),
    "two values": (b"{} {}", "not valid JSON"),
    "comment": (b"{} // x", "not valid JSON"),
    "trailing comma": (b"[1,]", "not valid JSON"),
    "single quotes": (b"{'a': 1}", "not valid JSON"),
    "control character": (b'["\x01"]', "not valid JSON"),
    "NUL": (b'{"a": 1}\x00', "not valid JSON"),
    "byte order mark": (b'\xef\xbb\xbf{"a": 1}', "not valid JSON"),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), "not UTF-8 at byte 0"),
    "UTF-16 without mark": ('{"a": 1}'.encode("utf-16-le"), "not valid JSON"),
    "Latin-1": (b'{"a": "\xe9"}', "not UTF-8 at byte 7"),
    "overlong": (b'["\xc0\xaf"]', "not UTF-8"),
    "raw surrogate": (b'["\xed\xa0\x80"]', "not UTF-8"),
    "lone surrogate": (rb'{"a": ["\ud800"]}', "surrogates not allowed"),
    "lone low surrogate": (rb'["\uDC00x"]', "surrogates not allowed"),
    "lone surrogate in a key": (rb'{"a": {"\uDfFf": 1}}', "surrogates not allowed"),
    "NaN": (b'{"a": NaN}', "out of range: nan"),
    "Infinity": (b'{"a": Infinity}', "out of range: inf"),
    "minus Infinity": (b"[-Infinity]", "out of range: -inf"),
    "1e999": (b'{"a": [1e999]}', "out of range"),
    "-1e999": (b"[-1e999]", "out of range"),
    "2**53": (b"[9007199254740992]", "out of range"),
    "-2**53": (b"[-9007199254740992]", "out of range"),
    "2**53 as a float": (b"[9007199254740992.0]", "out of range"),
    "1e20": (b"[1e20]", "out of range"),
    "million digits": (lambda: b"[" + b"9" * 1_000_000 + b"]", "not valid JSON"),
    "4000 digits": (b"[" + b"9" * 4_000 + b"]", "out of range"),
    "leading zero": (b"[01]", "not valid JSON"),
    "hexadecimal": (b"[0x10]", "not valid JSON"),
    "duplicate key": (b'{"a": 1, "a": 1}', "duplicate key 'a'"),
    "duplicate key, escaped": (rb'{"a": 1, "\u0061": 2}', "duplicate key 'a'"),
    "duplicate key before a space": (b'{"a" :1,"a":2}', "duplicate key 'a'"),
    "duplicate key before a tab": (b'{"a"\t:1,"a":2}', "duplicate key 'a'"),
    "duplicate key before a line end": (b'{"a"\r\n:1,"a":2}', "duplicate key 'a'"),
    "duplicate key beside a colon in a string": (rb'{"a": "\":", "a" : 2}', "duplicate key 'a'"),
    "duplicate key at depth": (b"[" * 50 + b'{"a": 1, "b": 2, "a": 3}' + b"]" * 50, "duplicate key 'a'"),
    "one level too deep": (b"[" * DEEP + b"0" + b"]" * DEEP, f"deeper than {DEEP}"),
    "one object too deep": (b'{"a":' * DEEP + b"0" + b"}" * DEEP, f"deeper than {DEEP}"),
    "100,000 brackets": (b"[" * 100_000, f"deeper than {DEEP}"),
    "16 MiB of brackets": (lambda: b"[" * MAX_RECORD_BYTES, f"deeper than {DEEP}"),
    "16 MiB of objects": (lambda: b'{"a":' * (MAX_RECORD_BYTES // 5), f"deeper than {DEEP}"),
    "16 MiB of zeros": (lambda: b"[" + b"0," * (MAX_RECORD_BYTES // 2 - 2) + b"0]", "too many values"),
    "16 MiB of lists": (lambda: b"[" + b"[]," * (MAX_RECORD_BYTES // 3 - 2) + b"0]", "too many values"),
    "16 MiB of digits": (lambda: b"[" + b"9" * (MAX_RECORD_BYTES - 2) + b"]", "not valid JSON"),
    "16 MiB exponent": (lambda: b"[1e" + b"9" * (MAX_RECORD_BYTES - 4) + b"]", "out of range"),
    "a long key above many values": (
        lambda: b'{"' + b"k" * 4_000_000 + b'": [' + b"0," * 900_000 + b"1e999]}",
        "out of range",
    ),
    "17 MiB": (lambda: b" " * (MAX_RECORD_BYTES + 1), "too large"),
}


@pytest.mark.parametrize(("text", "reason"), HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_is_refused_at_once(text, reason):
    data = text() if callable(text) else text
    with no_quadratic_time(), pytest.raises(InputError) as caught:
        canonical.decode(data, "openmed-onnx.json")
    assert caught.value.message.startswith("openmed-onnx.json ")
    assert reason in caught.value.message
    assert len(caught.value.message) < 300


def test_a_huge_string_is_refused_before_it_is_parsed():
    class Counted(bytes):
        decoded = 0

        def decode(self, *args: Any, **kwargs: Any) -> str:
            Counted.decoded += 1
            return super().decode(*args, **kwargs)

    with pytest.raises(InputError, match="too large: 100000004 bytes"):
        canonical.decode(Counted(b'["' + b"a" * 100_000_000 + b'"]'))
    assert Counted.decoded == 0
    assert canonical.decode(Counted(b"[]")) == []
    assert Counted.decoded == 1


def test_whole_floats_are_written_without_a_point_and_keys_are_texts():
    assert canonical.encode({"a": [1.0, 100.0, -0.5]}) == b'{"a":[1,100,-0.5]}'
    with pytest.raises(InputError):
        canonical.encode({1: "a"})


def test_the_deepest_value_that_is_read():
    data = b"[" * (DEEP - 1) + b"0" + b"]" * (DEEP - 1)
    assert canonical.encode(canonical.decode(data)) == data


def test_surrogate_pairs_are_text():
    assert canonical.decode(rb'["\ud83d\ude00", "\\ud800"]') == ["😀", "\\ud800"]


NUMBERS_BEYOND = [float("inf"), -float("inf"), float("nan"), 2**53, -(2**53), 1e20]


@pytest.mark.parametrize(
    "value", [*NUMBERS_BEYOND, "\ud800", {"\ud800": 1}, {1: 2}, {"a": {1, 2}}, {"a": b"x"}, object()]
)
def test_encode_refuses_what_json_cannot_say(value):
    number = r"^thing holds a number out of range: "
    for inside in (value, {"limits": {"parity": {"int8": value}}}, [1, {"b": (value,)}]):
        with pytest.raises(InputError, match=number if value in NUMBERS_BEYOND else "thing"):
            canonical.encode(inside, "thing")


def test_encode_refuses_a_value_that_holds_itself():
    value: list[Any] = []
    value.append(value)
    with pytest.raises(InputError, match="deeper"):
        canonical.encode(value)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        # The numbers of RFC 8785, appendix B.
        (0.0, b"0"),
        (-0.0, b"0"),
        (5e-324, b"5e-324"),
        (1.7976931348623157e308, b"1.7976931348623157e+308"),
        (1e21, b"1e+21"),
        (9.999999999999997e22, b"9.999999999999997e+22"),
        (1e-6, b"0.000001"),
        (1e-7, b"1e-7"),
        (333333333.3333332, b"333333333.3333332"),
        (4.5, b"4.5"),
        (2e-3, b"0.002"),
        # Keys are sorted by UTF-16 code units, not by code points.
        ({"\ufb33": 1, "😀": 2, "é": 3, "": 4}, '{"":4,"é":3,"😀":2,"\ufb33":1}'.encode()),
        ({"b": [True, None, '\n\x0f"'], "a": {}}, b'{"a":{},"b":[true,null,"\\n\\u000f\\""]}'),
    ],
)
def test_canonical_form(value, data):
    assert canonical.encode(value) == data
