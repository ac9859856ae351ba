"""The static tree: caching, the conditions and ranges of RFC 9110 over real connections, and nothing beside it."""

import json
import os
import random
from io import BytesIO

import pytest
from support.servers.regserve import Answer, running, wait

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.server.answers import PIECE_BYTES
from onnxreg.registry.server.served_registry import ServedRegistry
from onnxreg.registry.server.settings import Settings
from onnxreg.registry.store.protocol import BlobKey, blob_path, index_path
from onnxreg.schema.core import files
from onnxreg.schema.core.canonical import Digest


def store(registry: Registry, data: bytes) -> Digest:
    with registry.store.push() as push:
        digest, _ = push.put(BytesIO(data))
        push.flush()
    return digest


def headers(answer: Answer) -> dict[str, str]:
    return {**answer.headers, "date": ""}


def test_every_file_is_as_it_lies_there(site):
    paths = [path.relative_to(site.root).as_posix() for path in site.root.rglob("*") if path.is_file()]
    public = [path for path in paths if not path.startswith("local/")]
    assert len(public) > 10
    for path in public:
        answer = site.get(f"/{path}")
        assert (answer.status, answer.body) == (200, (site.root / path).read_bytes())
        bare = site.ask("HEAD", f"/{path}")
        assert (bare.status, bare.body, headers(bare)) == (200, b"", headers(answer))
        assert bare.headers["content-length"] == str(len(answer.body))
        assert bare.headers["x-content-type-options"] == "nosniff"
        tag = answer.headers["etag"]
        same = site.get(f"/{path}", If_None_Match=tag)
        assert (same.status, same.body, same.headers["etag"]) == (304, b"", tag)


def test_blobs_stay_and_index_files_are_asked_for_again(site, filled):
    digest = filled.get("tiny").digest
    blob = site.get(f"/{blob_path(digest)}")
    assert blob.headers["cache-control"] == "public, max-age=31536000, immutable"
    about = [blob.headers[name] for name in ("etag", "content-type", "accept-ranges")]
    assert about == [f'"{digest.hex}"', "application/octet-stream", "bytes"]
    for path in ("/registry.json", "/index/tiny.jsonl"):
        assert site.get(path).headers["cache-control"] == "no-cache"
    with running(site.root, Settings("t0ken")) as guarded:
        answer = guarded.get(f"/{blob_path(digest)}", Authorization="Bearer t0ken")
        assert answer.headers["cache-control"] == "private, max-age=31536000, immutable"


@pytest.mark.parametrize("name", ["tiny", "acme/pii"])
def test_an_index_file_from_the_cache_is_answered_as_from_the_disk(name, site, filled, monkeypatch):
    monkeypatch.setattr(files, "SETTLED_NANOSECONDS", 0)
    path = f"/{index_path(name)}"
    first, *others = (site.get(path) for _ in range(4))
    for answer in others:
        assert (answer.status, answer.body, headers(answer)) == (first.status, first.body, headers(first))
    with monkeypatch.context() as moment:
        moment.setattr(ServedRegistry, "read_index", None)  # from the cache without a thread
        assert site.get(path, Range="bytes=0-9").body == first.body[:10]
    assert site.get(path, If_None_Match=first.headers["etag"]).status == 304
    filled.tag(name, "beta")
    changed = site.get(path)
    assert changed.body == (site.root / path[1:]).read_bytes() != first.body
    assert changed.headers["etag"] != first.headers["etag"]
    template = "/index/{org}/{file}" if "/" in name else "/index/{file}"
    count = f'reg_requests_total{{method="GET",route="{template}",status="200"}} 5.0'
    assert count in site.get("/metrics").body.decode()
    with running(site.root, Settings("t0ken")) as guarded:
        asked = [guarded.get(path, **words).status for words in [{"Authorization": "Bearer t0ken"}, {}] * 2]
        assert asked == [200, 401] * 2, "also from the cache"
    (site.root / path[1:]).unlink()
    assert site.get(path).status == 404


def test_an_index_file_that_vanishes_while_it_is_read_may_come_back(filled, monkeypatch):
    monkeypatch.setattr(files, "SETTLED_NANOSECONDS", 0)
    served = ServedRegistry(filled.store.root)
    with monkeypatch.context() as moment:
        moment.setattr(served.store, "get", lambda key, cached=None: None)
        assert served.read_index("tiny") is None
    assert served.read_index("tiny") is not None
    path, read = filled.store.root / index_path("tiny"), served.store.get
    away = path.rename(path.with_suffix(".away"))
    with monkeypatch.context() as moment:
        moment.setattr(served.store, "get", lambda *words: away.rename(path) and read(*words))
        assert served.read_index("tiny") is not None
    path.unlink()
    assert served.read_index("tiny") is None


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 5 * PIECE_BYTES + 7])
def test_ranges_of_a_blob(site, filled, size):
    data = random.Random(size).randbytes(size)
    path = f"/{blob_path(store(filled, data))}"
    assert site.get(path).body == data
    spans = {(0, 1), (0, size), (size // 2, size), (size - 1, size), (PIECE_BYTES - 1, PIECE_BYTES + 1)}
    for start, stop in {(start, min(stop, size)) for start, stop in spans if 0 <= start < min(stop, size)}:
        part = site.get(path, Range=f"bytes={start}-{stop - 1}")
        assert (part.status, part.body) == (206, data[start:stop])
        assert part.headers["content-range"] == f"bytes {start}-{stop - 1}/{size}"
        assert part.headers["content-length"] == str(stop - start)
    beyond = site.get(path, Range=f"bytes={size}-")
    assert (beyond.status, beyond.headers["content-range"]) == (416, f"bytes */{size}")
    assert beyond.error["family"] == "input"
    assert site.get(path, Range="bytes=0-,0-,0-").body == data


def test_a_blob_under_a_generation_key(site, filled):
    digest = store(filled, b"blob")
    plain, later = (site.root / BlobKey(digest, generation).path for generation in (0, 3))
    plain.rename(later)
    for path in (BlobKey(digest).path, BlobKey(digest, 3).path):
        assert site.get(f"/{path}").body == b"blob"
    assert site.get(f"/{BlobKey(digest, 2).path}").error["family"] == "not-found"


A = "a" * 64
OUTSIDE = [
    *("/local", "/local/secret", "/local/secret.jsonl", "//local/secret", "/./local/secret", "/../outside"),
    *("/%2e%2e/outside", "/..%2foutside", "/..\\outside", "http://elsewhere/local/secret"),
    *("/index", "/index/", "/index/../local/secret.jsonl", "/index/%2e%2e/local/secret.jsonl"),
    *("/index/..%2flocal%2fsecret.jsonl", "/index/%2e%2e%2flocal%2fsecret.jsonl"),
    *("/index/..;/local/secret.jsonl", "/index//etc/passwd", "/index/%2fetc%2fpasswd"),
    *("/index/%252e%252e/local/secret.jsonl", "/index/tiny.jsonl/", "/index/tiny.jsonl%00"),
    *("/index/tiny%00.jsonl", "/index/TINY.jsonl", "/index/a/b/c.jsonl", "/index/%ff%fe.jsonl"),
    *("/index/con.jsonl", f"/index/{A * 80}.jsonl", "/blobs/sha256/ab/../../../local/secret"),
    "/blobs/sha256/%2e%2e/%2e%2e%2f%2e%2e%2flocal%2fsecret",
    *(f"/blobs/sha256/{rest}" for rest in (f"ab/{A}", f"aa/{A[1:]}", f"aa/{A.upper()}")),
    *(f"/blobs/sha256/aa/{A}{end}" for end in (".0", ".8", ".01", "%0a")),
    *(f"/blobs/sha512/aa/{A}", "/gc/intents/0123456789abcdef", "/registry.json/", "/registry.json%2f"),
]


@pytest.mark.parametrize("path", OUTSIDE)
def test_nothing_else_is_reachable(site, path):
    for name in ("secret", "secret.jsonl"):
        (site.root / "local" / name).write_bytes(b"secret")
    (site.root.parent / "outside").write_bytes(b"secret")
    answer = site.get(path)
    assert (answer.status, answer.error["family"]) == (404, "not-found")
    assert str(site.root) not in answer.body.decode()


def test_links_lead_nowhere(site, filled, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "tiny.jsonl").write_bytes((site.root / "index/tiny.jsonl").read_bytes())
    (site.root / "index/other.jsonl").symlink_to(outside / "tiny.jsonl")
    (site.root / "index/org").symlink_to(outside)
    digest = Digest.of(b"secret")
    (outside / digest.hex).write_bytes(b"secret")
    (site.root / "blobs/sha256" / digest.hex[:2]).symlink_to(outside)
    linked = store(filled, b"linked")
    path = site.root / BlobKey(linked).path
    path.unlink()
    path.symlink_to(outside / digest.hex)
    for file in ("index/other.jsonl", "index/org/tiny.jsonl", blob_path(digest), blob_path(linked)):
        assert site.get(f"/{file}").status == 404, file
    for name in ("other", "org/tiny"):
        assert site.resolve({"ref": name}).status == 404
    listed = {model["name"] for model in site.get("/v1/models").json["models"]}
    assert listed & {"tiny", "other", "org/tiny"} == {"tiny"}
    os.mkfifo(site.root / "index/pipe.jsonl")
    assert site.get("/index/pipe.jsonl").status == 404


def test_only_reading(site):
    for method in ("PUT", "POST", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        answer = site.ask(method, "/index/tiny.jsonl", b"")
        assert answer.status == 405 and {*answer.headers["allow"].split(", ")} == {"GET", "HEAD"}


def test_a_server_is_a_remote(site, filled, other, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    other.pull("acme/pii", site.url)
    assert other.get("acme/pii").digest == filled.get("acme/pii").digest
    other.check()
    manifest = filled.get("acme/pii").manifest
    paths = [f"/{blob_path(file.digest)}" for file in (*manifest.artifacts, *manifest.files)]
    wait(lambda: all(any(path in line for line in site.lines) for path in paths))
    requests = [(line["path"], line["status"]) for line in site.log(0) if line["path"] in paths]
    assert sorted(requests) == sorted((path, 200) for path in paths)


def test_a_server_is_a_remote_of_the_command_line(site, tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    home = ["--registry", str(tmp_path / "home")]
    assert main([*home, "pull", "tiny", site.url, "--output", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "model.onnx").read_bytes().startswith(b"fp32 c ")
    capfd.readouterr()
    assert main([*home, "resolve", "acme/pii", "--remote", site.url, "--json"]) == 0
    resolved = json.loads(capfd.readouterr().out)
    assert resolved == site.resolve({"ref": "acme/pii"}).json
    assert resolved["files"][0]["url"].startswith(site.url)


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
    *("lines=0-1", "bytes=--1", "bytes=0-0,2-3", "bytes=" + "0-," * 5_000, "bytes=0-" + "9" * 5000),
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
