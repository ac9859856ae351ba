"""Tokens, other web sites, and what the operator sees."""

from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.servers.regserve import Site, read_answer, running

from onnxreg.registry import Registry
from onnxreg.registry.server.settings import Settings

TOKEN = "correct-horse"


@pytest.fixture
def guarded(filled: Registry) -> Iterator[Site]:
    with running(filled.store.root, Settings(TOKEN, ("https://app.example",))) as site:
        yield site


@pytest.mark.parametrize("path", ["/", "/registry.json", "/v1/models", "/metrics", "/openapi.json", "/local"])
def test_nothing_without_the_token(guarded: Site, path: str) -> None:
    for brought in (
        None,
        "",
        TOKEN,
        f"Basic {TOKEN}",
        "Bearer",
        "Bearer x",
        f"Bearer {TOKEN}x",
        "Bearer \xff",
    ):
        answer = guarded.get(path, **({} if brought is None else {"Authorization": brought}))
        assert answer.status == 401
        assert answer.headers["www-authenticate"].startswith("Bearer ")
        assert answer.error["hint"]
    for brought in (f"Bearer {TOKEN}", f"bearer  {TOKEN} "):
        assert guarded.get(path, Authorization=brought).status in (200, 404)


def test_health_needs_no_token(guarded: Site) -> None:
    assert guarded.get("/healthz").status == 200


def test_the_token_is_nowhere(guarded: Site) -> None:
    guarded.get(f"/v1/models?token={TOKEN}", Authorization=f"Bearer {TOKEN}")
    guarded.get("/v1/models", Authorization="Bearer another-secret")
    guarded.log(2)
    seen = "\n".join(guarded.lines) + repr(Settings(TOKEN))
    assert "/v1/models" in seen
    assert TOKEN not in seen
    assert "another-secret" not in seen


def test_scripts_of_other_sites_may_not_read(site: Site) -> None:
    answer = site.get("/v1/models", Origin="https://app.example")
    assert not [name for name in answer.headers if name.startswith("access-control")]
    asked = site.ask("OPTIONS", "/v1/resolve", Origin="https://app.example")
    assert asked.status == 405


def test_those_of_the_sites_that_the_operator_names_may(guarded: Site) -> None:
    preflight = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "authorization"}
    allowed = guarded.ask("OPTIONS", "/v1/resolve", Origin="https://app.example", **preflight)
    assert allowed.status == 200
    assert allowed.headers["access-control-allow-origin"] == "https://app.example"
    assert "POST" in allowed.headers["access-control-allow-methods"]
    refused = guarded.ask("OPTIONS", "/v1/resolve", Origin="https://evil.example", **preflight)
    assert refused.status == 400
    read = guarded.get("/registry.json", Origin="https://app.example", Authorization=f"Bearer {TOKEN}")
    assert read.headers["access-control-allow-origin"] == "https://app.example"
    assert "ETag" in read.headers["access-control-expose-headers"]
    assert read.headers["vary"] == "Origin"
    other = guarded.get("/registry.json", Origin="https://evil.example", Authorization=f"Bearer {TOKEN}")
    assert "access-control-allow-origin" not in other.headers


def test_one_line_for_each_request(site: Site) -> None:
    site.get("/index/tiny.jsonl?secret=x", Range="bytes=0-9")
    site.ask("HEAD", "/registry.json")
    site.get("/%0a%1b[31m/" + "x" * 1000)
    lines = site.log(3)
    keys = {"time", "method", "route", "path", "status", "bytes", "seconds", "client"}
    assert [set(line) for line in lines] == [keys] * 3
    ranged, bare, odd = lines
    assert (ranged["route"], ranged["path"], ranged["status"], ranged["bytes"]) == (
        "/index/{file}",
        "/index/tiny.jsonl",
        206,
        10,
    )
    assert (bare["method"], bare["bytes"], bare["client"]) == ("HEAD", 0, "127.0.0.1")
    assert (odd["route"], odd["status"]) == (None, 404)
    assert len(odd["path"]) <= 300
    assert all("\n" not in line and "\x1b" not in line for line in site.lines)


def test_every_request_is_counted(site: Site) -> None:
    for _ in range(3):
        site.get("/index/tiny.jsonl")
    site.resolve({"ref": "tiny"})
    site.resolve({"ref": "unknown"})
    size = len(site.get("/registry.json").body)
    for number in range(50):
        site.ask("PATCH", f"/nothing/{number}")
    site.log(56)
    text = site.get("/metrics").body.decode()
    count = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert count["reg_requests_total", "GET", "/index/{file}", "200"] == 3
    assert count["reg_requests_total", "POST", "/v1/resolve", "404"] == 1
    assert count["reg_requests_total", "other", "none", "404"] == 50
    assert count["reg_response_bytes_total", "/registry.json"] == size
    assert count["reg_request_seconds_count", "/v1/resolve"] == 2


@pytest.mark.parametrize("brought", [(TOKEN, "wrong"), ("wrong", TOKEN), (TOKEN, TOKEN)])
@pytest.mark.parametrize("path", ["/healthz", "/registry.json"])
def test_two_tokens_are_refused(guarded: Site, brought: tuple[str, str], path: str) -> None:
    fields = "".join(f"Authorization: Bearer {token}\r\n" for token in brought)
    with guarded.connect() as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n{fields}\r\n".encode())
        assert read_answer(connection).status == 400
