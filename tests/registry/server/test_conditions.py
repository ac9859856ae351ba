"""Conditions and ranges: the cases of RFC 9110, and what no answer may ever be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxreg.registry.server.http.messages import RangeDecision, decide_range

TAG = '"abc"'
WHOLE = RangeDecision(200, 0, 10)


@pytest.mark.parametrize(
    ("span", "outcome"),
    [
        ("bytes=0-0", RangeDecision(206, 0, 1)),
        ("bytes=0-9", RangeDecision(206, 0, 10)),
        ("bytes=2-4", RangeDecision(206, 2, 5)),
        ("bytes=2-", RangeDecision(206, 2, 10)),
        ("bytes=9-99999", RangeDecision(206, 9, 10)),
        ("bytes=-3", RangeDecision(206, 7, 10)),
        ("bytes=-99", RangeDecision(206, 0, 10)),
        ("BYTES=0-0", RangeDecision(206, 0, 1)),
        ("bytes=10-", RangeDecision(416)),
        ("bytes=10-12", RangeDecision(416)),
        ("bytes=-0", RangeDecision(416)),
        ("bytes=4-2", WHOLE),
        ("bytes=-", WHOLE),
        ("bytes=", WHOLE),
        ("bytes", WHOLE),
        ("", WHOLE),
        ("bytes=a-b", WHOLE),
        ("bytes=0x1-2", WHOLE),
        ("bytes=+1-2", WHOLE),
        ("bytes=1-2-3", WHOLE),
        ("bytes=--1", WHOLE),
        ("lines=0-1", WHOLE),
        ("bytes=0-0,2-3", WHOLE),
        ("bytes=" + "0-," * 10_000, WHOLE),
        ("bytes=0-" + "9" * 5000, WHOLE),
        ("bytes=\u0660-\u0669", WHOLE),
    ],
)
def test_ranges(span: str, outcome: RangeDecision) -> None:
    assert decide_range("GET", {"range": span}, TAG, 10) == outcome


def test_nothing_has_no_range() -> None:
    assert decide_range("GET", {}, TAG, 0) == RangeDecision(200, 0, 0)
    for span in ("bytes=0-", "bytes=0-0", "bytes=-1"):
        assert decide_range("GET", {"range": span}, TAG, 0) == RangeDecision(416)


def test_a_range_counts_for_get_alone() -> None:
    assert decide_range("HEAD", {"range": "bytes=0-0"}, TAG, 10) == WHOLE


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"if-none-match": TAG}, 304),
        ({"if-none-match": f"W/{TAG}"}, 304),
        ({"if-none-match": '"x", W/"y" , "abc"'}, 304),
        ({"if-none-match": "*"}, 304),
        ({"if-none-match": '"x"'}, 200),
        ({"if-none-match": "abc"}, 200),
        ({"if-none-match": ""}, 200),
        ({"if-match": TAG}, 200),
        ({"if-match": "*"}, 200),
        ({"if-match": '"x", "abc"'}, 200),
        ({"if-match": f"W/{TAG}"}, 412),
        ({"if-match": '"x"'}, 412),
        ({"if-match": ""}, 412),
        ({"if-match": '"x"', "if-none-match": TAG}, 412),
        ({"if-match": TAG, "if-none-match": TAG}, 304),
        ({"if-none-match": TAG, "range": "bytes=0-0"}, 304),
        ({"if-none-match": '"x"', "range": "bytes=0-0"}, 206),
        ({"if-range": TAG, "range": "bytes=0-0"}, 206),
        ({"if-range": '"x"', "range": "bytes=0-0"}, 200),
        ({"if-range": '"x"', "range": "bytes=99-"}, 200),
        ({"if-range": f"W/{TAG}", "range": "bytes=0-0"}, 200),
        ({"if-range": "Sat, 29 Oct 1994 19:43:31 GMT", "range": "bytes=0-0"}, 200),
        ({"if-range": TAG}, 200),
        ({"if-modified-since": "Sat, 29 Oct 2094 19:43:31 GMT"}, 200),
        ({"if-unmodified-since": "Sat, 29 Oct 1994 19:43:31 GMT"}, 200),
    ],
)
def test_conditions(headers: dict[str, str], status: int) -> None:
    assert decide_range("GET", headers, TAG, 10).status == status


@given(st.integers(0, 1000), st.text("bytes=0123456789-, ", max_size=30) | st.text(max_size=10))
def test_no_range_leads_outside(size: int, span: str) -> None:
    outcome = decide_range("GET", {"range": span}, TAG, size)
    if outcome.status == 206:
        assert 0 <= outcome.start < outcome.stop <= size
    else:
        assert outcome in (RangeDecision(200, 0, size), RangeDecision(416))


@given(st.integers(1, 1000).flatmap(lambda size: st.tuples(st.just(size), st.integers(0, size - 1))))
def test_two_ranges_that_meet_are_the_whole(found: tuple[int, int]) -> None:
    size, middle = found
    first = decide_range("GET", {"range": f"bytes=0-{middle}"}, TAG, size)
    assert (first.start, first.stop) == (0, middle + 1)
    second = decide_range("GET", {"range": f"bytes={middle + 1}-"}, TAG, size)
    assert second == (RangeDecision(416) if middle + 1 == size else RangeDecision(206, middle + 1, size))
