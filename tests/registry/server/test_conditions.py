"""Conditions and ranges over HTTP: the cases of RFC 9110, of a blob and of an index file."""

import pytest
from support.servers.regserve import Site

from onnxreg.registry import Registry
from onnxreg.registry.store.layout import blob_path


@pytest.fixture(params=["blob", "index"])
def path(request: pytest.FixtureRequest, filled: Registry) -> str:
    return f"/{blob_path(filled.get('tiny').digest)}" if request.param == "blob" else "/index/tiny.jsonl"


RANGES: list[tuple[str, slice | None]] = [
    ("bytes=0-0", slice(0, 1)),
    ("bytes=2-4", slice(2, 5)),
    ("bytes=2-", slice(2, None)),
    ("bytes=9-99999999", slice(9, None)),
    ("bytes=-3", slice(-3, None)),
    ("bytes=-99999999", slice(0, None)),
    ("BYTES=0-0", slice(0, 1)),
    ("bytes=99999999-", None),
    ("bytes=99999998-99999999", None),
    ("bytes=-0", None),
]
NO_RANGES = [
    *("bytes=4-2", "bytes=-", "bytes=", "bytes", "bytes=a-b", "bytes=0x1-2", "bytes=+1-2", "bytes=1-2-3"),
    "bytes=--1",
    *("lines=0-1", "bytes=0-0,2-3", "bytes=" + "0-," * 5_000, "bytes=0-" + "9" * 5000),
]


@pytest.mark.parametrize(("span", "part"), RANGES)
def test_ranges(site: Site, path: str, span: str, part: slice | None) -> None:
    whole, answer = site.get(path).body, site.get(path, Range=span)
    if part is None:
        assert (answer.status, answer.headers["content-range"]) == (416, f"bytes */{len(whole)}")
        return
    start, stop, _ = part.indices(len(whole))
    assert (answer.status, answer.body) == (206, whole[part])
    assert answer.headers["content-range"] == f"bytes {start}-{stop - 1}/{len(whole)}"


@pytest.mark.parametrize("span", NO_RANGES, ids=lambda span: span[:20])
def test_what_is_not_one_range_gets_the_whole(site: Site, path: str, span: str) -> None:
    assert site.get(path, Range=span).body == site.get(path).body


def test_a_range_counts_for_get_alone(site: Site, path: str) -> None:
    assert site.ask("HEAD", path, Range="bytes=0-0").status == 200


CONDITIONS: list[tuple[dict[str, str], int]] = [
    ({"If_None_Match": "TAG"}, 304),
    ({"If_None_Match": "W/TAG"}, 304),
    ({"If_None_Match": '"x", W/"y" , TAG'}, 304),
    ({"If_None_Match": "*"}, 304),
    ({"If_None_Match": '"x"'}, 200),
    ({"If_None_Match": "abc"}, 200),
    ({"If_None_Match": ""}, 200),
    ({"If_None_Match": "TAG", "Range": "bytes=0-0"}, 304),
    ({"If_None_Match": '"x"', "Range": "bytes=0-0"}, 206),
    ({"If_Range": "TAG", "Range": "bytes=0-0"}, 206),
    ({"If_Range": '"x"', "Range": "bytes=0-0"}, 200),
    ({"If_Range": '"x"', "Range": "bytes=99999999-"}, 200),
    ({"If_Range": "W/TAG", "Range": "bytes=0-0"}, 200),
    ({"If_Range": "Sat, 29 Oct 1994 19:43:31 GMT", "Range": "bytes=0-0"}, 200),
    ({"If_Range": "TAG"}, 200),
]


@pytest.mark.parametrize(("headers", "status"), CONDITIONS)
def test_conditions(site: Site, path: str, headers: dict[str, str], status: int) -> None:
    tag = site.get(path).headers["etag"]
    answer = site.get(path, **{name: value.replace("TAG", tag) for name, value in headers.items()})
    assert (answer.status, answer.headers["etag"]) == (status, tag)
