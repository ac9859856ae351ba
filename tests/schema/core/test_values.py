"""Digest, Ref and Version, JSON pointers, lengths of time, near names: parse(str(x)) == x, and nothing else parses."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxreg.schema.core import pointer
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import InputError, nearest, suggest
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.core.units import parse_duration
from onnxreg.schema.inputs.recipe_file import JobRow, RecipeFile

PART = st.from_regex(r"[a-z0-9](?:[a-z0-9_-]{0,20}[a-z0-9])?", fullmatch=True)
NAMES = st.one_of(PART, st.tuples(PART, PART).map("/".join))
TAGS = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,60}", fullmatch=True)
DIGESTS = st.binary(max_size=8).map(Digest.of)
NUMBERS = st.integers(0, 10**20)
IDENTIFIERS = st.one_of(
    NUMBERS.map(str), st.from_regex(r"[0-9]{0,3}[A-Za-z-][0-9A-Za-z-]{0,5}", fullmatch=True)
)
BUILDS = st.from_regex(r"[0-9A-Za-z-]{1,5}(?:\.[0-9A-Za-z-]{1,5}){0,2}", fullmatch=True)
VERSIONS = st.builds(
    Version,
    NUMBERS,
    NUMBERS,
    NUMBERS,
    st.lists(IDENTIFIERS, max_size=3).map(tuple),
    st.one_of(st.just(""), BUILDS),
)


def _is_name(text: str) -> bool:
    try:
        Ref(text)
    except InputError:
        return False
    return True


@given(DIGESTS)
def test_digest_round_trip(digest):
    assert Digest.parse(str(digest)) == digest


@given(NAMES.filter(_is_name), st.none() | TAGS, st.none() | DIGESTS)
def test_ref_round_trip(name, tag, digest):
    ref = Ref(name, tag, digest)
    assert Ref.parse(str(ref)) == ref


@given(VERSIONS)
def test_version_round_trip(version):
    assert Version.parse(str(version)) == version
    assert Version.is_version(str(version))
    assert Ref.parse(f"a:{version}").tag == str(version)


@given(st.text(max_size=30))
def test_parsed_values_are_written_the_same(text):
    for parse in (Digest.parse, Ref.parse, Version.parse):
        try:
            value = parse(text)
        except InputError:
            continue
        assert str(value) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "sha256:", "sha256:" + "0" * 63, "sha256:" + "0" * 65, "sha256:" + "A" * 64, "0" * 64),
        *("sha256:" + "0" * 64 + "\n", "SHA256:" + "0" * 64, "sha512:" + "0" * 64, "sha256:" + "\uff10" * 64),
        *(None, 5, ["sha256:" + "0" * 64]),
    ],
)
def test_a_malformed_digest_is_refused(text):
    with pytest.raises(InputError, match="not a"):
        Digest.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "/", "a/", "/a", "a/b/c", "A", "a b", "a..b", ".a", "a."),
        *("-a", "a-", "../a", "a/..", "a\n", "é"),
        *("con", "a/nul", "com1.x", "x.jsonl", "x.jsonl/y", "a" * 201, "a\\b", "a\x00", "~a"),
        *("a:", "a:-x", "a:.x", "a: ", "a:b:c", "a:" + "x" * 129, "a:x/y", "a:x\n"),
        *("a@", "a@b", "a@sha256:" + "0" * 63, "a@@sha256:" + "0" * 64, "a:@sha256:" + "0" * 64),
    ],
)
def test_a_malformed_ref_is_refused(text):
    with pytest.raises(InputError, match="not a"):
        Ref.parse(text)


def test_a_ref_is_checked_however_it_is_made():
    with pytest.raises(InputError):
        Ref("../x")
    with pytest.raises(InputError):
        Ref("a", "")


@pytest.mark.parametrize(
    "text",
    [
        *("", "1", "1.2", "1.2.3.4", "01.2.3", "1.02.3", "1.2.03", "v1.2.3", "1.2.-3", "1.2.3-", "1.2.3+"),
        *("1.2.3-01", "1.2.3-a..b", "1.2.3-a.", "1.2.3-ä", "1.2.3+a+b", "1.2.3+a..b", "1.2.3 ", " 1.2.3"),
        *("1.2.3\n", "1.2.٣", "1.2.3-" + "a" * 128, "stable", "latest"),
    ],
)
def test_a_malformed_version_is_refused(text):
    assert not Version.is_version(text)
    with pytest.raises(InputError, match="not a version"):
        Version.parse(text)


ASCENDING = [
    # A pre-release comes before its release; numbers compare as numbers and before words; words compare by
    # code point; of two lists that begin alike the longer is later.
    *("0.0.0-0", "0.0.0", "0.0.1", "0.1.0", "0.9.0", "0.10.0"),
    *("1.0.0-0", "1.0.0-2", "1.0.0-11", "1.0.0-11.0"),
    *("1.0.0--", "1.0.0-0a", "1.0.0-A", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta"),
    *("1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1", "1.0.0", "1.0.1", "1.9.0", "1.10.0", "2.0.0", "2.1.0"),
    *("2.1.1", "10.0.0"),
]


def test_precedence():
    versions = [Version.parse(text) for text in ASCENDING]
    for (i, one), (j, other) in itertools.product(enumerate(versions), repeat=2):
        assert (one < other) == (i < j)
        assert (one.precedence < other.precedence) == (i < j)
        assert (one >= other) == (i >= j)


def test_build_metadata_takes_no_part_in_precedence():
    plain, built, other = (Version.parse(text) for text in ("1.0.0", "1.0.0+a", "1.0.0+b"))
    assert plain.precedence == built.precedence == other.precedence
    assert plain < built < other
    assert len({plain, built, other}) == 3


@given(VERSIONS, VERSIONS, VERSIONS)
def test_total_order(a, b, c):
    assert (a < b) + (b < a) + (a == b) == 1
    assert not (a < b < c) or a < c


@given(VERSIONS)
def test_next_patch_is_the_next_release(version):
    following = version.next_patch()
    assert following.precedence > version.precedence
    assert not following.is_prerelease
    assert (following.major, following.minor) == (version.major, version.minor)


def test_versions_of_one_release_have_hashes_of_their_own():
    texts = [text.format(number) for number in range(1000) for text in ("1.0.0-dev.{}", "1.0.0+{}")]
    assert len({hash(Version.parse(text)) for text in texts}) > 1990


def test_build_metadata_counts_last():
    first, second = map(Version.parse, ("1.0.0+a", "1.0.0+b"))
    assert first < second and second > first and first.precedence == second.precedence


def test_a_version_is_not_compared_with_text():
    with pytest.raises(TypeError):
        _ = Version(1, 0, 0) < "1.0.0"


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
def test_the_examples_of_the_standard(place, value):
    assert pointer.find(RFC, place) == value


@pytest.mark.parametrize("place", ["/bar", "/foo/2", "/foo/-", "/foo/01", "/foo/x", "/foo/0/0"])
def test_a_place_that_does_not_exist(place):
    assert pointer.find(RFC, place) is pointer.ABSENT


@given(JSON)
def test_every_place_is_below_its_container(value):
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
def test_relative_paths(path, expected):
    assert pointer.relative("/a/1/b", path) == expected


def test_a_pointer_without_a_slash():
    with pytest.raises(InputError):
        pointer.tokens("foo")


LENGTHS = {"0s": 0, "90s": 90, "15min": 900, "12h": 43_200, "7d": 604_800, "2w": 1_209_600}
PASSES = ["OnnxConversion", "OrtFormat", "GoldenVectors"]


def test_a_length_of_time():
    assert {text: parse_duration(text) for text in LENGTHS} == LENGTHS


@pytest.mark.parametrize(
    "text", ["", "7", "d", "-1d", "1.5d", "7 d", "7D", "7m", "1d2h", "\u0667d", "9999999999s"]
)
def test_no_length_of_time(text):
    with pytest.raises(InputError, match="not a length of time"):
        parse_duration(text)


def test_a_near_name_goes_before_the_list_of_all():
    assert nearest("ortformat", PASSES) == ["OrtFormat"]
    assert suggest("GoldenVector", PASSES) == "did you mean GoldenVectors?"
    assert suggest("zzz", PASSES) == "one of: OnnxConversion, OrtFormat, GoldenVectors"
    assert suggest("zzz", PASSES, "look elsewhere") == "look elsewhere"
    assert suggest("aaab", ["aa", "aaaa", "aaac"]) == "did you mean aaac or aaaa?"


STEP = {"name": "fp32", "pass": "OnnxConversion"}


def refused(value: dict[str, Any]) -> InputError:
    with pytest.raises(InputError) as caught:
        RecipeFile.from_json({"task": "pooling", "steps": [STEP], **value}, "r.yaml")
    return caught.value


def test_an_unknown_key_is_named():
    assert refused({"output": []}).message == "r.yaml is not valid at output: there is no such key"
    assert "options" in refused({"quantize": True}).hint, "the keys that there are"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"profile_version": "1"}, "profile_version: it must be a valid integer"),
        ({"options": []}, "options: it must be an object"),
        ({"steps": []}, "steps: Tuple should have at least 1 item"),
        ({"checks": [{"metric": "speed", "max": 1}]}, "checks.0.metric: it must be 'max_abs_diff'"),
        ({"benchmark": {"runs": 0}}, "benchmark.runs: it must be greater than 0"),
        ({"steps": [{**STEP, "optional": 1}]}, "steps.0.optional: it must be a valid boolean"),
        (
            {"steps": [], "task": 1, "profile": 2, "source": 3, "colour": 4},
            "colour: there is no such key (and 4 more)",
        ),
    ],
)
def test_a_fault_is_named_in_plain_words(value, message):
    """Of several faults the unknown key is first."""
    assert refused(value).message.startswith(f"r.yaml is not valid at {message}")


def test_a_number_that_was_meant_as_a_text():
    with pytest.raises(InputError, match="at version: it must be a valid string: write it in quotes"):
        JobRow.from_json({"source": "a", "task": "pooling", "version": 1.5}, "row 1")
