"""JSON pointers: the examples of RFC 6901, patterns, and relative paths."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxreg.schema.core import pointer
from onnxreg.schema.core.errors import InputError

RFC = {"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, 'k"l': 6, " ": 7, "m~n": 8}
JSON = st.recursive(
    st.none() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("place", "value"),
    [("", RFC), ("/foo", ["bar", "baz"]), ("/foo/0", "bar"), ("/", 0), ("/a~1b", 1), ("/ ", 7), ("/m~0n", 8)],
)
def test_the_examples_of_the_standard(place: str, value: object) -> None:
    assert pointer.find(RFC, place) == value


@pytest.mark.parametrize("place", ["/bar", "/foo/2", "/foo/-", "/foo/01", "/foo/x", "/foo/0/0"])
def test_a_place_that_does_not_exist(place: str) -> None:
    assert pointer.find(RFC, place) is pointer.ABSENT


@given(JSON)
def test_every_place_is_below_its_container(value: object) -> None:
    """The pattern of each depth gives each value there once."""
    for depth in range(4):
        places = list(pointer.expand(value, "/*" * depth))
        assert len(set(places)) == len(places)
        for place in places:
            assert pointer.find(value, place) is not pointer.ABSENT
            assert len(pointer.tokens(place)) == depth


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", "/a/1/b"),
        ("c", "/a/1/b/c"),
        ("..", "/a/1"),
        ("../../d", "/a/d"),
        ("../../..", ""),
        ("a~1b", "/a/1/b/a~1b"),
    ],
)
def test_relative_paths(path: str, expected: str) -> None:
    assert pointer.relative("/a/1/b", path) == expected


def test_a_pointer_without_a_slash() -> None:
    with pytest.raises(InputError):
        pointer.tokens("foo")
