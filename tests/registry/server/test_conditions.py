"""Conditions and ranges over HTTP: the cases of RFC 9110, of a blob and of an index file."""

import pytest

from onnxreg.registry.store.layout import blob_path


@pytest.fixture(params=["blob", "index"])
def path(request, filled) -> str:
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


def test_ranges(site, path):
    whole = site.get(path).body
    for span, part in RANGES:
        answer = site.get(path, Range=span)
        if part is None:
            assert (answer.status, answer.headers["content-range"]) == (416, f"bytes */{len(whole)}"), span
            continue
        start, stop, _ = part.indices(len(whole))
        assert (answer.status, answer.body) == (206, whole[part]), span
        assert answer.headers["content-range"] == f"bytes {start}-{stop - 1}/{len(whole)}"
    for span in NO_RANGES:
        assert site.get(path, Range=span).body == whole, span[:20]
    assert site.ask("HEAD", path, Range="bytes=0-0").status == 200, "a range counts for GET alone"


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


def test_conditions(site, path):
    tag = site.get(path).headers["etag"]
    for headers, status in CONDITIONS:
        answer = site.get(path, **{name: value.replace("TAG", tag) for name, value in headers.items()})
        assert (answer.status, answer.headers["etag"]) == (status, tag), headers
