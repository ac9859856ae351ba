"""A registry served by a real server in a thread, and a client that sends what it is told to."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import uvicorn

from onnxreg.registry.server import server
from onnxreg.registry.server.served_registry import ServedRegistry
from onnxreg.registry.server.server import application
from onnxreg.registry.server.settings import Settings


@dataclass(frozen=True)
class Answer:
    """One answer: its status, its headers by lower-case name, its body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @classmethod
    def of(cls, answer: HTTPResponse) -> "Answer":
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return cls(answer.status, headers, answer.read())

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, str]:
        assert self.headers["content-type"] == "application/json"
        found: dict[str, str] = self.json["error"]
        assert found.keys() == {"family", "message", "hint"}
        return found


@dataclass(frozen=True)
class Site:
    """A running server; `lines` is its log so far."""

    port: int
    root: Path
    lines: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """One request on a connection of its own; `If_Match` is the header If-Match. The path goes out as it is."""
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.putrequest(method, path, "Host" in headers, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name.replace("_", "-"), value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            return Answer.of(connection.getresponse())

    def log(self, count: int) -> list[Any]:
        """The lines of the first so many requests; a line comes a moment after its answer."""
        wait(lambda: len(self.lines) >= count)
        return [json.loads(line) for line in self.lines]

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, **headers)

    def resolve(self, value: Any, **headers: str) -> Answer:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        return self.ask("POST", "/v1/resolve", body, Content_Type="application/json", **headers)

    def raw(self, method: str, path: str, body: bytes, host: str) -> Answer:
        """One request with a Host header of one's own."""
        head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
        with self.connect() as connection:
            connection.sendall(head.encode() + body)
            return read_answer(connection)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)


def wait(condition: Callable[[], object]) -> None:
    """Return once a condition holds; a minute is given."""
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.01)
    raise TimeoutError


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def read_answer(connection: socket.socket) -> Answer:
    """The next answer on a connection."""
    answer = HTTPResponse(connection)
    answer.begin()
    return Answer.of(answer)


@contextmanager
def running(root: Path, settings: Settings | None = None) -> Iterator[Site]:
    """A server over the registry in a directory. Its thread ends by itself, a fifth of a second later."""
    listener = server.listen("127.0.0.1", 0)
    site = Site(listener.getsockname()[1], root)
    settings = settings or Settings()
    app = application(ServedRegistry.open(root), settings, site.lines.append)
    serving = uvicorn.Server(server.configuration(lambda: app, settings))
    threading.Thread(target=serving.run, args=([listener],)).start()
    try:
        yield site
    finally:
        serving.should_exit = True
