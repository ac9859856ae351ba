"""Strangers: requests that are too large, too slow, too many or no requests at all."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

import pytest
from support.servers.regserve import Site, read_answer, running, wait

from onnxreg.registry.server import served_registry
from onnxreg.registry.server.answers import HttpError
from onnxreg.registry.server.served_registry import Queue, ServedRegistry, open_beneath
from onnxreg.registry.server.server import application
from onnxreg.registry.server.settings import Limits
from onnxreg.registry.store.layout import CATALOG, blob_path
from onnxreg.schema.query.resolve import ResolveRequest

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


@pytest.fixture
def strict(filled) -> Iterator[Site]:
    """A server with little room."""
    with running(filled.store.root, None, Limits(1000, 1000)) as site:
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


HEADS = [
    b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 100_000,
    b"GET /healthz HTTP/1.1\r\n" + b"X: x\r\n" * 20_000,
    b"GET /" + b"x" * 100_000,
    b"\r\n" * 1000,
    b"GET /none\r\n\r\n",
    b"FROB / HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    b"POST /v1/resolve HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: frob\r\n\r\n0\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
]
WHOLE = ["GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n"]


def said(site: Site, data: bytes) -> bytes:
    with site.connect() as connection:
        connection.sendall(data)
        return ended(connection)


def test_heads_that_are_too_long_or_none(strict):
    for head in HEADS:
        assert said(strict, head).split()[1] in (b"400", b"431", b"404", b"405"), head[:40]
        assert strict.get("/healthz").status == 200
    for head in WHOLE:
        for length in (1000, 2000, 100_000):
            assert said(strict, head.format("x" * length).encode()).startswith(b"HTTP/1.1 431 ")


def test_a_question_with_too_many_conditions(site):
    names = [f"format{number}" for number in range(10_000)]
    for key, value in {"formats": names, "min_recall": dict.fromkeys(names, 0.5)}.items():
        answer = site.resolve({"ref": "tiny", key: value})
        assert answer.status == 400
        message = answer.error["message"]
        assert message.startswith(f"{key}: Expected") and "<= 100" in message


def test_a_question_that_takes_too_many_steps(filled):
    tests = " or ".join(["path ~ '*zq*'"] * 50)
    with running(filled.store.root, None, Limits(steps=40)) as site:
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
        crew = Queue("test", 1, Limits(waiting=2))
        running = [asyncio.ensure_future(crew.run(wait_for_release)) for _ in range(3)]
        await asyncio.to_thread(started.wait, 60)
        with pytest.raises(HttpError, match="too many questions") as refused:
            await crew.run(wait_for_release)
        release.set()
        await asyncio.gather(*running)
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
    with running(filled.store.root, None, Limits()) as site, ThreadPoolExecutor(5) as clients:
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
    alone = [site.get(path).body for path in paths]
    position = 0
    for body in alone:
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
    app, opened = application(ServedRegistry.open(filled.store.root)), list[BinaryIO]()

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
