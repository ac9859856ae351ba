"""Digest, Ref and Version: parse(str(x)) == x, and nothing else parses."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Ref, Version

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
def test_digest_round_trip(digest: Digest) -> None:
    assert Digest.parse(str(digest)) == digest


@given(NAMES.filter(_is_name), st.none() | TAGS, st.none() | DIGESTS)
def test_ref_round_trip(name: str, tag: str | None, digest: Digest | None) -> None:
    ref = Ref(name, tag, digest)
    assert Ref.parse(str(ref)) == ref


@given(VERSIONS)
def test_version_round_trip(version: Version) -> None:
    assert Version.parse(str(version)) == version
    assert Version.is_version(str(version))
    assert Ref.parse(f"a:{version}").tag == str(version)


@given(st.text(max_size=30))
def test_parsed_values_are_written_the_same(text: str) -> None:
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
def test_a_malformed_digest_is_refused(text: object) -> None:
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
def test_a_malformed_ref_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="not a"):
        Ref.parse(text)


def test_a_ref_is_checked_however_it_is_made() -> None:
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
def test_a_malformed_version_is_refused(text: str) -> None:
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


def test_precedence() -> None:
    versions = [Version.parse(text) for text in ASCENDING]
    for (i, one), (j, other) in itertools.product(enumerate(versions), repeat=2):
        assert (one < other) == (i < j)
        assert (one.precedence < other.precedence) == (i < j)
        assert (one >= other) == (i >= j)


def test_build_metadata_takes_no_part_in_precedence() -> None:
    plain, built, other = (Version.parse(text) for text in ("1.0.0", "1.0.0+a", "1.0.0+b"))
    assert plain.precedence == built.precedence == other.precedence
    assert plain < built < other
    assert len({plain, built, other}) == 3


@given(VERSIONS, VERSIONS, VERSIONS)
def test_total_order(a: Version, b: Version, c: Version) -> None:
    assert (a < b) + (b < a) + (a == b) == 1
    assert not (a < b < c) or a < c


@given(VERSIONS)
def test_next_patch_is_the_next_release(version: Version) -> None:
    following = version.next_patch()
    assert following.precedence > version.precedence
    assert not following.is_prerelease
    assert (following.major, following.minor) == (version.major, version.minor)


def test_versions_of_one_release_have_hashes_of_their_own() -> None:
    texts = [text.format(number) for number in range(1000) for text in ("1.0.0-dev.{}", "1.0.0+{}")]
    assert len({hash(Version.parse(text)) for text in texts}) > 1990


def test_build_metadata_counts_last() -> None:
    first, second = map(Version.parse, ("1.0.0+a", "1.0.0+b"))
    assert first < second and second > first and first.precedence == second.precedence


def test_a_version_is_not_compared_with_text() -> None:
    with pytest.raises(TypeError):
        _ = Version(1, 0, 0) < "1.0.0"
