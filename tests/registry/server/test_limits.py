"""Strangers: requests that are too large, too many or none at all; tokens, and everywhere that they must not go."""

import asyncio
import json
import shutil
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from email.message import Message
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO
from urllib.parse import quote

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.registries import owner
from support.servers import http, web_client
from support.servers.regserve import Site, read_answer, running, wait

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.remotes import open_url
from onnxreg.registry.server import served_registry
from onnxreg.registry.server.answers import HttpError
from onnxreg.registry.server.served_registry import Queue, ServedRegistry, open_beneath
from onnxreg.registry.server.server import application, listen
from onnxreg.registry.server.settings import Settings
from onnxreg.registry.store.protocol import CATALOG, blob_path
from onnxreg.registry.store.requests import SameOrigin, variable
from onnxreg.schema.core.errors import InputError, NotFoundError
from onnxreg.schema.query.device import ResolveRequest

GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


def ended(connection: socket.socket) -> bytes:
    """What arrives until the server closes the connection."""
    found = bytearray()
    try:
        while data := connection.recv(65536):
            found += data
    except ConnectionError:
        pass
    return bytes(found)


@pytest.fixture(params=[False, True], ids=["alone", "behind a proxy"])
def strict(filled, request) -> Iterator[Site]:
    """A server with little room."""
    with running(filled.store.root, Settings(head=1000, body=1000, behind_proxy=request.param)) as site:
        yield site


def test_a_body_that_is_too_large(strict):
    answer = strict.resolve(b"x" * 1001)
    assert (answer.status, answer.error["family"]) == (413, "input")
    assert strict.resolve(b'{"ref": "tiny"}' + b" " * 900).status == 200
    with strict.connect() as connection:
        connection.sendall(b"POST /v1/resolve HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.sendall(b"200\r\n" + b"x" * 512 + b"\r\n")
        connection.sendall(b"200\r\n" + b"x" * 512 + b"\r\n")
        assert read_answer(connection).status == 413
    assert strict.ask("POST", "/v1/resolve", b"", Content_Length="1" + "0" * 17).status in (400, 413)


def test_nobody_is_told_to_go_on_with_a_body_that_is_too_large(strict):
    with strict.connect() as connection:
        head = b"POST /v1/resolve HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n"
        connection.sendall(head)
        assert ended(connection).startswith(b"HTTP/1.1 413 ")
    with strict.connect() as connection:
        connection.sendall(head.replace(b"1001", b"15"))
        assert connection.recv(100).startswith(b"HTTP/1.1 100 Continue")
        connection.sendall(b'{"ref": "tiny"}')
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")


WHOLE = ["GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n"]
UNFINISHED = [  # behind a proxy it limits them: tests/e2e/test_nginx.py
    b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 100_000,
    b"GET /healthz HTTP/1.1\r\n" + b"X: x\r\n" * 20_000,
    b"GET /" + b"x" * 100_000,
    b"\r\n" * 1000,
]
HEADS = [
    *(head.format("x" * 100_000).encode() for head in WHOLE),
    b"GET /none\r\n\r\n",
    b"FROB / HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    b"POST /v1/resolve HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: frob\r\n\r\n0\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
]


def said(site: Site, data: bytes) -> bytes:
    with site.connect() as connection:
        connection.sendall(data)
        return ended(connection)


def test_heads_without_an_end(filled):
    with running(filled.store.root) as site:
        for head in UNFINISHED:
            assert said(site, head).split()[1] in (b"400", b"431"), head[:40]


def test_heads_that_are_too_long_or_none(strict):
    for head in HEADS:
        assert said(strict, head).split()[1] in (b"400", b"431", b"404", b"405"), head[:40]
        assert strict.get("/healthz").status == 200
    for head in WHOLE:
        assert said(strict, head.format("x" * 1000).encode()).startswith(b"HTTP/1.1 431 ")


def test_a_request_for_another_protocol_does_not_silence_the_connection(strict):
    head = b"GET /healthz HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: "
    answers = said(strict, head + b"upgrade\r\n\r\n" + head + b"close\r\n\r\n")
    assert answers.startswith(b"HTTP/1.1 400 ") or answers.count(b"HTTP/1.1 200 ") == 2


def test_a_question_with_too_many_conditions(site):
    names = [f"format{number}" for number in range(10_000)]
    for key, value in {"formats": names, "min_recall": dict.fromkeys(names, 0.5)}.items():
        answer = site.resolve({"ref": "tiny", key: value})
        message = answer.error["message"]
        assert answer.status == 400 and f" {key}: " in message and "<= 100" in message


def test_a_question_that_takes_too_many_steps(filled):
    tests = " or ".join(["path ~ '*zq*'"] * 50)
    with running(filled.store.root, Settings(steps=40)) as site:
        answer = site.resolve({"ref": "acme/pii", "where": tests})
        assert (answer.status, answer.error["message"]) == (400, "the question takes more than 40 steps")
        page = site.get(f"/?q={quote(tests)}", Accept="text/html")
        assert page.status == 400 and b"more than 40 steps" in page.body
        assert site.resolve({"ref": "acme/pii", "where": "path ~ '*'"}).status == 200
        assert site.get(f"/?q={quote('certified or not certified')}").status == 200


def test_a_queue_has_an_end(site):
    """Who comes too late is told when to come again; the others are answered."""
    started, release = threading.Event(), threading.Event()

    def wait_for_release() -> None:
        started.set()
        release.wait(60)

    async def ask() -> list[object]:
        crew = Queue(1, Settings(waiting=2))
        running = [asyncio.ensure_future(crew.run(wait_for_release)) for _ in range(3)]
        await asyncio.to_thread(started.wait, 60)
        with pytest.raises(HttpError, match="too many questions") as refused:
            await crew.run(wait_for_release)
        release.set()
        await asyncio.gather(*running)
        crowd = await asyncio.gather(*(crew.run(lambda: 7) for _ in range(50)), return_exceptions=True)
        assert crowd.count(7) == 3, "those that come in one moment are counted too"
        return [refused.value.status_code, refused.value.headers, await crew.run(lambda: 7)]

    assert asyncio.run(ask()) == [503, {"Retry-After": "2"}, 7]


def test_questions_with_expressions_do_not_delay_the_others(filled, monkeypatch):
    """Five of them hang; questions without one are answered meanwhile."""
    release, answer = threading.Event(), ServedRegistry.resolve

    def resolve(registry: ServedRegistry, request: ResolveRequest) -> object:
        if request.query.where is not None:
            release.wait(60)
        return answer(registry, request)

    monkeypatch.setattr(ServedRegistry, "resolve", resolve)
    with running(filled.store.root) as site, ThreadPoolExecutor(5) as clients:
        costly = [
            clients.submit(site.resolve, {"ref": "acme/pii", "where": f"path ~ '*{number}'"})
            for number in range(5)
        ]
        try:
            for precision in ("float32", "int8"):
                assert site.resolve({"ref": "acme/pii", "precision": precision}).status in (200, 404)
            assert not any(question.done() for question in costly)
        finally:
            release.set()
        assert {question.result().status for question in costly} <= {200, 404}


def test_requests_in_a_row_are_answered_in_order(site):
    paths = ["/registry.json", "/nope", "/index/tiny.jsonl", "/healthz", "/v1/models/tiny"] * 5
    with site.connect() as connection:
        for path in paths:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        said = ended(connection)
    position = 0
    for body in [site.get(path).body for path in paths]:
        position = said.index(b"\r\n\r\n" + body, position) + 1
    assert said.count(b"HTTP/1.1 ") == len(paths) + 1


def opened_files() -> list[str]:
    """The names of the files that this process has open."""
    names = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            names.append(str(link.readlink()))
    return names


def test_a_client_that_goes_away_leaves_nothing_open(site, filled):
    with filled.store.push() as push:
        digest, _ = push.put(BytesIO(bytes(32 * 2**20)))
        push.flush()
    for _ in range(5):
        with site.connect() as connection:
            connection.sendall(f"GET /{blob_path(digest)} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            connection.recv(1000)
    site.log(5)
    assert not [name for name in opened_files() if digest.hex in name]


@pytest.mark.parametrize("kind", ["blob", "hub", "catalog"])
def test_a_request_that_is_cancelled_leaves_nothing_open(filled, kind, monkeypatch):
    artifact = filled.get("tiny").manifest.artifacts[0]
    filled.store.write_file(CATALOG, b"catalog")
    hub = f"tiny/resolve/main/{artifact.path}"
    path = {"blob": blob_path(artifact.digest), "hub": hub, "catalog": CATALOG}[kind]
    scope = {"type": "http", "method": "GET", "query_string": b"", "headers": []}
    scope |= {"path": f"/{path}", "raw_path": path.encode()}
    app, opened = application(ServedRegistry.open(filled.store.root), Settings()), list[BinaryIO]()

    def slowly(root: Path, path: str) -> BinaryIO:
        file = open_beneath(root, path)
        opened.append(file)
        time.sleep(0.01)
        return file

    async def slowly_sent(message: object = None) -> Any:
        await asyncio.sleep(60 if message is None else 0.01)

    async def ask(seconds: float) -> None:
        request = asyncio.ensure_future(app(scope, slowly_sent, slowly_sent))
        await asyncio.sleep(seconds)
        request.cancel()

    monkeypatch.setattr(served_registry, "open_beneath", slowly)
    for step in range(20):
        asyncio.run(ask(0.005 * step))
    wait(lambda: all(file.closed for file in opened))
    assert opened


TOKEN = "correct-horse_battery.staple=="
BEARER = {"Authorization": f"Bearer {TOKEN}"}
APP, EVIL = "https://app.example", "https://evil.example"
NODE = shutil.which("node")


@pytest.fixture
def guarded(filled) -> Iterator[Site]:
    with running(filled.store.root, Settings(TOKEN, (APP,))) as site:
        yield site


# The server


@pytest.mark.parametrize("path", ["/", "/registry.json", "/v1/models", "/metrics", "/openapi.json", "/local"])
def test_nothing_without_the_token(guarded, path):
    wrong = ("", TOKEN, f"Basic {TOKEN}", "Bearer", "Bearer x", f"Bearer {TOKEN}x", "Bearer \xff")
    for headers in ({}, *({"Authorization": brought} for brought in wrong)):
        answer = guarded.get(path, **headers)
        assert answer.status == 401 and answer.headers["www-authenticate"].startswith("Bearer ")
        assert answer.error["hint"]
    for brought in (f"Bearer {TOKEN}", f"bearer  {TOKEN} "):
        assert guarded.get(path, Authorization=brought).status in (200, 404)
    assert guarded.get("/healthz").status == 200


@pytest.mark.parametrize("brought", [(TOKEN, "wrong"), ("wrong", TOKEN), (TOKEN, TOKEN)])
@pytest.mark.parametrize("path", ["/healthz", "/registry.json"])
def test_two_tokens_are_refused(guarded, brought, path):
    fields = "".join(f"Authorization: Bearer {token}\r\n" for token in brought)
    with guarded.connect() as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n{fields}\r\n".encode())
        assert read_answer(connection).status == 400


def test_the_token_is_nowhere(guarded):
    guarded.get(f"/v1/models?token={TOKEN}", **BEARER)
    guarded.get("/v1/models", Authorization="Bearer another-secret")
    guarded.log(2)
    seen = "\n".join(guarded.lines) + repr(Settings(TOKEN))
    assert "/v1/models" in seen and TOKEN not in seen and "another-secret" not in seen


def test_scripts_of_the_sites_that_the_operator_names_may_read(site, guarded):
    answer = site.get("/v1/models", Origin=APP)
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert site.ask("OPTIONS", "/v1/resolve", Origin=APP).status == 405
    preflight = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "authorization"}
    allowed = guarded.ask("OPTIONS", "/v1/resolve", Origin=APP, **preflight)
    assert (allowed.status, allowed.headers["access-control-allow-origin"]) == (200, APP)
    assert "POST" in allowed.headers["access-control-allow-methods"]
    assert guarded.ask("OPTIONS", "/v1/resolve", Origin=EVIL, **preflight).status == 400
    read = guarded.get("/registry.json", Origin=APP, **BEARER)
    assert (read.headers["access-control-allow-origin"], read.headers["vary"]) == (APP, "Origin")
    assert "ETag" in read.headers["access-control-expose-headers"]
    other = guarded.get("/registry.json", Origin=EVIL, **BEARER)
    assert "access-control-allow-origin" not in other.headers


# What the operator sees


def test_one_line_for_each_request(site):
    site.get("/index/tiny.jsonl?secret=x", Range="bytes=0-9")
    site.ask("HEAD", "/registry.json")
    site.get("/%0a%1b[31m/" + "x" * 1000)
    ranged, bare, odd = lines = site.log(3)
    keys = {"time", "method", "route", "path", "status", "bytes", "seconds", "client"}
    assert [set(line) for line in lines] == [keys] * 3
    facts = {"route": "/index/{file}", "path": "/index/tiny.jsonl", "status": 206, "bytes": 10}
    assert ranged.items() >= facts.items()
    assert (bare["method"], bare["bytes"], bare["client"]) == ("HEAD", 0, "127.0.0.1")
    assert (odd["route"], odd["status"]) == (None, 404) and len(odd["path"]) <= 300
    assert all("\n" not in line and "\x1b" not in line for line in site.lines)


def test_every_request_is_counted(site):
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


# The client


Reg = Callable[..., tuple[Any, str]]


@pytest.fixture
def reg(tmp_path, capfd) -> Reg:
    """Run `reg --registry home ... --json`; returns what it printed, or its error, and all that it said."""

    def run(*words: str, status: int = 0) -> tuple[Any, str]:
        capfd.readouterr()
        assert main(["--registry", str(tmp_path / "home"), *words, "--json"]) == status
        out, err = capfd.readouterr()
        return json.loads(err)["error"] if status else json.loads(out), out + err

    return run


def test_each_host_has_a_variable(monkeypatch):
    for host, name in {
        "https://models.example/tree": "MODELS_EXAMPLE",
        "https://my-models.example:8443": "MY__MODELS_EXAMPLE_8443",
        "https://my.models.example": "MY_MODELS_EXAMPLE",
        "http://[::1]:80": "___1__80",
    }.items():
        assert variable(host) == f"REG_TOKEN_{name}"
    monkeypatch.setenv("REG_TOKEN_MODELS_EXAMPLE", TOKEN)
    with pytest.raises(InputError, match="http://"):
        open_url("http://models.example")  # in plain text, to another machine


def test_reading_with_a_token(guarded, reg, monkeypatch, filled, tmp_path):
    monkeypatch.setenv(variable(guarded.url), TOKEN)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # would see the token, and is not asked
    resolved, _ = reg("resolve", "acme/pii", "--remote", guarded.url)
    assert resolved["manifest"] == str(filled.get("acme/pii").digest)
    listed, _ = reg("ls", "acme/pii", "--remote", guarded.url)
    assert len(listed["versions"]) == 2
    _, told = reg("pull", "acme/pii", guarded.url)
    assert not owner.verify(Registry(tmp_path / "home")).damages
    kept = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert kept and not [path for path in kept if TOKEN.encode() in path.read_bytes()]
    assert TOKEN not in told + "".join(guarded.lines)


def test_without_a_token_the_error_says_what_to_set(guarded, reg):
    for words in (("resolve", "tiny", "--remote", guarded.url), ("pull", "tiny", guarded.url)):
        error, _ = reg(*words, status=6)
        assert "401" in error["message"] and variable(guarded.url) in error["hint"]


@pytest.mark.parametrize("bad", ["another-secret", "two words", "a\nX-Evil: yes", "caf\u00e9", "'quoted'"])
def test_a_wrong_or_invalid_token_is_not_printed(guarded, bad, reg, monkeypatch):
    monkeypatch.setenv(variable(guarded.url), bad)
    is_token = bad == "another-secret"
    error, told = reg("resolve", "tiny", "--remote", guarded.url, status=6 if is_token else 2)
    assert variable(guarded.url) in error["hint" if is_token else "message"]
    assert bad not in told


def test_a_redirect_takes_it_along_within_the_server_alone(monkeypatch):
    """Another port of the same host is another origin."""
    seen: dict[str, set[str | None]] = {"/inside": set(), "/": set()}
    target = [""]

    def answer(handler: http.Handler) -> None:
        is_inside = handler.path.startswith("/inside")
        seen["/inside" if is_inside else "/"].add(handler.headers["Authorization"])
        handler.reply(404 if is_inside else 302, headers={"Location": f"{target[0]}/inside{handler.path}"})

    with http.serving(answer=answer) as url, http.serving(answer=answer) as other:
        monkeypatch.setenv(variable(url), TOKEN)
        for target[0], taken in (("", f"Bearer {TOKEN}"), (other, None)):
            with pytest.raises(NotFoundError):
                open_url(url)
            assert seen == {"/inside": {taken}, "/": {f"Bearer {TOKEN}"}}
            seen["/inside"].clear()


def test_no_host_gets_the_password_of_a_proxy():
    handler, headers = SameOrigin(), Message()
    handler.parent = SimpleNamespace(open=lambda request, timeout: request)
    headers["Location"] = "https://8.8.8.8/there"
    request = urllib.request.Request("https://1.1.1.1/here", headers={"Range": "bytes=1-"})
    request.timeout = 1.0
    urllib.request.ProxyHandler().proxy_open(request, "http://user:secret@127.0.0.1:9", "https")
    assert request.has_header("Proxy-authorization")
    redirected = handler.http_error_302(request, BytesIO(), 302, "Found", headers)
    assert redirected.header_items() == [("Range", "bytes=1-")]


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_the_client_for_apps(guarded, capfd):
    def resolve(url: str, token: str) -> Any:
        answer = call(url, None, "resolve", "tiny", {}, token=token)
        assert not token or token not in f"{answer}{capfd.readouterr()}"
        return answer

    with web_client.running(NODE) as call:
        assert resolve(guarded.url, TOKEN)["version"] == "1.0.0"
        assert "the option `token`" in resolve(guarded.url, "")["message"]
        assert resolve(guarded.url, "wrong")["error"] == "remote"
        assert resolve(guarded.url, "two words")["error"] == "input"
        assert resolve("http://models.example", TOKEN)["error"] == "input"


def test_answers_leave_without_waiting_for_the_client() -> None:
    """A socket that collects small pieces would wait 40 ms for each answer but a connection's first."""
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
