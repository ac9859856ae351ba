"""An HTTP proxy between a client and a server that does to a request what a bad day does."""

import http.client
import itertools
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from email.message import Message
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from support.servers.static import Server

Plan = Callable[[str, str], str | None]
"""Method and path of a request -> the fault it meets, None where it passes unharmed. Asked once for each request."""

FAULTS = ("reset", "lost", "slow-down", "error", "truncated", "garbled", "page")
"""reset: the connection breaks before the server sees the request; lost: after it has done it; slow-down, error: 503,
500; truncated: half of the answer's body, then the connection breaks; garbled: one byte of the body on its way up, or of
the answer's, is another; page: a web page with status 200.

Also stalled: no answer until the proxy ends; faltering: truncated, but a second after the half of the body; slow: the
body in pieces of `piece` bytes, with a pause before each; expired: the credentials are no longer good, which a HEAD cannot say;
astray: 404, as a gateway answers whose way to the server is not set up; stale: the first good answer to the same request;
swapped: the first good answer to a request for another blob; hidden: 403 for what is absent and for each list, as S3
answers a reader who may not list the bucket; `403 AccessDenied`: that status and code of S3, with the headers `more`."""


Answer = tuple[int, list[tuple[str, str]], bytes]


def _with(answer: Answer, data: bytes | None = None, status: int = 0, **changed: str) -> Answer:
    """The answer with other bytes, another status, or other headers (`Content_Range`); an empty one is left out."""
    named = {name.replace("_", "-").lower(): value for name, value in changed.items()}
    if data is not None:
        named.setdefault("content-length", str(len(data)))
    headers = [(name, value) for name, value in answer[1] if name.lower() not in named]
    headers += [(name, value) for name, value in named.items() if value]
    return status or answer[0], headers, answer[2] if data is None else data


def _redirect(location: str) -> Callable[[Answer], Answer]:
    return lambda answer: _with(answer, b"", 302, Location=location)


LIES: dict[str, Callable[[Answer], Answer]] = {
    "short": lambda answer: _with(answer, answer[2][:-1]),
    "long": lambda answer: _with(answer, answer[2] + b"x"),
    "empty": lambda answer: _with(answer, b""),
    "other bytes": lambda answer: _with(answer, bytes(len(answer[2]))),
    "lying range": lambda answer: _with(answer, status=206, Content_Range="bytes 7-8/9"),
    "malformed range": lambda answer: _with(answer, status=206, Content_Range="bytes x-y/z"),
    "huge range": lambda answer: _with(answer, status=206, Content_Range=f"bytes 0-0/{'9' * 5000}"),
    "no range": lambda answer: _with(answer, answer[2] + bytes(9), 200, Content_Range=""),
    "negative length": lambda answer: _with(answer, Content_Length="-5"),
    "huge length": lambda answer: _with(answer, Content_Length="60000000"),
    "absurd length": lambda answer: _with(answer, Content_Length="9" * 5000),
    "no number as length": lambda answer: _with(answer, Content_Length="many"),
    "packed": lambda answer: _with(answer, b"\x1f\x8bnonsense", Content_Encoding="gzip"),
    "odd tag": lambda answer: _with(answer, ETag='"\x01\xff'),
    "wrong tag": lambda answer: _with(answer, ETag='"0"'),
    "no tag": lambda answer: _with(answer, ETag=""),
    "chunks of nonsense": lambda answer: _with(
        answer, b"zz\r\nabc\r\n0\r\n\r\n", Transfer_Encoding="chunked", Content_Length=""
    ),
    "a negative chunk": lambda answer: _with(
        answer, b"-5\r\nabc\r\n0\r\n\r\n", Transfer_Encoding="chunked", Content_Length=""
    ),
    "redirect without end": _redirect("/again"),
    "redirect to nowhere": _redirect(""),
    "redirect to a broken URL": _redirect("http://[::1"),
    "redirect to a file": _redirect("file:///etc/passwd"),
    "redirect to plain http": _redirect("http://192.0.2.1/x?secret=hunter2"),
    "redirect with credentials": _redirect("https://me:hunter2@192.0.2.1/x"),
}
"""What a server may say that is not true, in one answer."""


def at(number: int, fault: str, burst: float = 1) -> Plan:
    """A plan: this fault meets so many requests from the given one on."""
    count = itertools.count()
    return lambda method, path: fault if number <= next(count) < number + burst else None


HOP = {"connection", "transfer-encoding", "keep-alive", "expect"}
PAGE = b"<!doctype html><html><title>Please log in</title></html>"


class Proxy:
    """`url` is where it listens; `plan` may be replaced at any time; `seen` are the requests so far, `headers` their headers,
    `answers` the status of each. `spot` is where in a body the wrong byte is: 0 its first byte, 1 its last. `piece` are the bytes that come every
    0.02 s of a slow answer."""

    def __init__(self, url: str, upstream: str) -> None:
        self.url = url
        self.upstream = urlsplit(upstream)
        self.plan: Plan = lambda method, path: None
        self.seen: list[tuple[str, str]] = []
        self.headers: list[Message] = []
        self.more: list[tuple[str, str]] = []
        self.met: list[str] = []
        self.first: dict[tuple[str, str], Answer] = {}
        self.answers: list[int] = []
        self.spot = 0.5
        self.piece = 1000
        self.lock = threading.Lock()
        self.ended = threading.Event()

    def fault(self, method: str, path: str) -> str | None:
        with self.lock:
            self.seen.append((method, path))
            fault = self.plan(method, path)
            if fault is not None:
                self.met.append(fault)
            return fault

    def remembered(self, method: str, path: str, fault: str | None, answer: Answer) -> Answer:
        """The answer, or an earlier one in its place; answers are told apart without what signs a URL."""
        key = (method, path.partition("?")[0])
        with self.lock:
            if answer[0] < 400 and answer[0] != 304:
                self.first.setdefault(key, answer)
            if fault == "stale":
                return self.first.get(key, answer)
            others = [
                other for other in self.first if other[0] == method and "/blobs/" in other[1] and other != key
            ]
            return self.first[others[0]] if fault == "swapped" and others else answer

    def requests(self, method: str, part: str = "") -> int:
        return sum(seen == method and part in path for seen, path in self.seen)


@contextmanager
def proxy(upstream: str, certificate: Path | None = None) -> Iterator[Proxy]:
    """A proxy in front of a server, in this process; with a certificate it is spoken to over TLS."""
    server = Server(("127.0.0.1", 0), Handler)
    server.socket.setsockopt(
        socket.SOL_SOCKET, socket.SO_RCVBUF, 2**17
    )  # what is sent here waits at the sender's
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    scheme = "http" if certificate is None else "https"
    running = Proxy(f"{scheme}://127.0.0.1:{server.server_address[1]}", upstream)
    cast(Any, server).proxy = running
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield running
    finally:
        running.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30
    disable_nagle_algorithm = True

    def handle(self) -> None:
        with suppress(OSError):
            super().handle()

    def log_message(self, format: str, *args: object) -> None:
        pass

    def serve(self) -> None:
        proxy: Proxy = cast(Any, self.server).proxy
        fault = proxy.fault(self.command, self.path)
        proxy.headers.append(self.headers)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        match fault:
            case "reset":
                return self.break_off()
            case "slow-down":
                return self.refuse(503, "SlowDown")
            case "error":
                return self.refuse(500, "InternalError")
            case "expired":
                return self.refuse(400, "ExpiredToken")
            case "astray":
                return self.refuse(404, "NotFound")
            case "page":
                return self.answer(200, [("Content-Type", "text/html")], PAGE)
            case "stalled":
                proxy.ended.wait()
                return self.break_off()
        if fault is not None and fault[:3].isdecimal():
            return self.refuse(int(fault[:3]), fault[4:])
        if fault == "garbled" and body:
            body = garbled(body, proxy.spot)
        if fault == "redirect without end":
            return self.answer(*LIES[fault]((200, [], b"")))
        status, headers, data = proxy.remembered(self.command, self.path, fault, self.ask(proxy, body))
        if fault == "hidden" and (status == 404 or "list-type=2" in self.path):
            return self.refuse(403, "AccessDenied")
        if fault in LIES:
            return self.answer(*LIES[fault]((status, headers, data)))
        if fault in ("drip", "endless"):
            return self.send_for_ever(status, headers, b"\n" if fault == "drip" else bytes(2**20))
        if fault == "slow":
            return self.answer(status, headers, data, slow=True)
        if fault == "lost":
            return self.break_off()
        if fault == "garbled" and self.command == "GET" and data:
            data = garbled(data, proxy.spot)
        self.answer(
            status, headers, data, cut=fault in ("truncated", "faltering"), pause=fault == "faltering"
        )

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_OPTIONS = serve  # noqa: N815

    def ask(self, proxy: Proxy, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(cast(str, proxy.upstream.netloc), timeout=30)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in HOP:
                    connection.putheader(name, value)
            connection.endheaders(body or None)
            answer = connection.getresponse()
            data = answer.read()
            headers = [(name, value) for name, value in answer.getheaders() if name.lower() not in HOP]
            return answer.status, headers, data
        finally:
            connection.close()

    def answer(
        self,
        status: int,
        headers: list[tuple[str, str]],
        data: bytes,
        cut: bool = False,
        pause: bool = False,
        slow: bool = False,
    ) -> None:
        proxy: Proxy = cast(Any, self.server).proxy
        proxy.answers.append(status)
        self.send_response_only(status)
        named = {name.lower() for name, _ in headers}
        for name, value in headers:
            self.send_header(name, value)
        if not named & {"content-length", "transfer-encoding"} and status != 304:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD" and slow:
            for start in range(0, len(data), proxy.piece):
                proxy.ended.wait(0.02)
                self.wfile.write(data[start : start + proxy.piece])
        elif self.command != "HEAD":
            self.wfile.write(data[: len(data) // 2] if cut else data)
        if cut:
            self.wfile.flush()
            proxy.ended.wait(pause)
            self.break_off()

    def send_for_ever(self, status: int, headers: list[tuple[str, str]], data: bytes) -> None:
        """A body without a length: a byte now and then, or as much as is taken."""
        ended = cast(Any, self.server).proxy.ended
        self.close_connection = True
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() != "content-length":
                self.send_header(name, value)
        self.end_headers()
        while not ended.wait(0.01 if len(data) == 1 else 0):
            self.wfile.write(data)

    def refuse(self, status: int, code: str) -> None:
        data = f"<Error><Code>{code}</Code><Message>a bad day</Message></Error>".encode()
        self.answer(status, [("Content-Type", "application/xml"), *cast(Any, self.server).proxy.more], data)

    def break_off(self) -> None:
        """Reset the connection, as a machine that goes down does."""
        self.close_connection = True
        with suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()


def garbled(data: bytes, spot: float) -> bytes:
    where = round((len(data) - 1) * spot)
    return data[:where] + bytes([data[where] ^ 1]) + data[where + 1 :]
