"""An HTTP proxy between a client and a server that does to a request what a bad day does."""

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from email.message import Message
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

from support.servers import http

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
answers a reader who may not list the bucket; `403 AccessDenied`: that status and code of S3."""

Answer = tuple[int, dict[str, str], bytes]
"""Status, headers by lower-case name, body."""


def _with(answer: Answer, data: bytes | None = None, status: int = 0, **changed: str) -> Answer:
    """The answer with other bytes, another status, or other headers (`Content_Range`); an empty one is left out."""
    headers = {} if data is None else {"content-length": str(len(data))}
    headers |= {name.replace("_", "-").lower(): value for name, value in changed.items()}
    headers = {name: value for name, value in (answer[1] | headers).items() if value}
    return status or answer[0], headers, answer[2] if data is None else data


def _redirect(location: str) -> Callable[[Answer], Answer]:
    return lambda answer: _with(answer, b"", 302, Location=location)


def _chunked(answer: Answer, size: bytes) -> Answer:
    body = size + b"\r\nabc\r\n0\r\n\r\n"
    return _with(answer, body, Transfer_Encoding="chunked", Content_Length="")


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
    "chunks of nonsense": lambda answer: _chunked(answer, b"zz"),
    "a negative chunk": lambda answer: _chunked(answer, b"-5"),
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
REFUSALS = {
    "slow-down": "503 SlowDown",
    "error": "500 InternalError",
    "expired": "400 ExpiredToken",
    "astray": "404 NotFound",
}


class Proxy:
    """`url` is where it listens; `plan` may be replaced at any time; `seen` are the requests so far, `headers` their headers,
    `answers` the status of each. `spot` is where in a body the wrong byte is: 0 its first byte, 1 its last. `piece` are the bytes that come every
    0.02 s of a slow answer."""

    def __init__(self, upstream: str) -> None:
        self.url = ""
        self.upstream = urlsplit(upstream).netloc
        self.plan: Plan = lambda method, path: None
        self.seen: list[tuple[str, str]] = []
        self.headers: list[Message] = []
        self.met: list[str] = []
        self.first: dict[tuple[str, str], Answer] = {}
        self.answers: list[int] = []
        self.spot = 0.5
        self.piece = 1000
        self.lock = threading.Lock()
        self.ended = threading.Event()

    def heal(self) -> None:
        """From now on no request meets a fault; those so far are forgotten."""
        self.plan = lambda method, path: None
        self.seen.clear()

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
    running = Proxy(upstream)
    with http.serving(Handler, certificate, proxy=running) as running.url:
        try:
            yield running
        finally:
            running.ended.set()


class Handler(http.Handler):
    proxy: Proxy

    def answer(self) -> None:
        fault = self.proxy.fault(self.command, self.path)
        self.proxy.headers.append(self.headers)
        match fault:
            case "reset":
                return self.break_off()
            case "page":
                return self.send(200, {"Content-Type": "text/html"}, PAGE)
            case "stalled":
                self.proxy.ended.wait()
                return self.break_off()
            case "redirect without end":
                return self.send(*LIES[fault]((200, {}, b"")))
        refusal = REFUSALS.get(fault or "", fault or "")
        if refusal[:3].isdecimal():
            return self.refuse(refusal)
        if fault == "garbled":
            self.body = self.garbled(self.body)
        status, headers, data = self.proxy.remembered(self.command, self.path, fault, self.ask())
        match fault:
            case "hidden" if status == 404 or "list-type=2" in self.path:
                return self.refuse("403 AccessDenied")
            case "drip" | "endless":
                return self.send_for_ever(status, headers, b"\n" if fault == "drip" else bytes(2**20))
            case "slow" if self.command != "HEAD":
                self.send(status, {"content-length": str(len(data)), **headers}, b"")
                for start in range(0, len(data), self.proxy.piece):
                    self.proxy.ended.wait(0.02)
                    self.wfile.write(data[start : start + self.proxy.piece])
            case "lost":
                self.break_off()
            case "truncated":
                self.send(status, headers, data, len(data) // 2)
            case "faltering":
                self.send(status, {"content-length": str(len(data)), **headers}, data[: len(data) // 2])
                self.wfile.flush()
                self.proxy.ended.wait(1)
                self.break_off()
            case "garbled" if self.command == "GET":
                self.send(status, headers, self.garbled(data))
            case _:
                self.send(*LIES.get(fault or "", lambda answer: answer)((status, headers, data)))

    def ask(self) -> Answer:
        with closing(HTTPConnection(self.proxy.upstream, timeout=30)) as connection:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in HOP:
                    connection.putheader(name, value)
            connection.endheaders(self.body or None)
            answer = connection.getresponse()
            headers = {name.lower(): value for name, value in answer.getheaders() if name.lower() not in HOP}
            return answer.status, headers, answer.read()

    def send(self, status: int, headers: dict[str, str], data: bytes, cut: int | None = None) -> None:
        self.proxy.answers.append(status)
        self.reply(status, data, headers, cut)

    def send_for_ever(self, status: int, headers: dict[str, str], data: bytes) -> None:
        """A body without a length: a byte now and then, or as much as is taken."""
        self.close_connection = True
        self.send_response_only(status)
        for name, value in headers.items():
            if name != "content-length":
                self.send_header(name, value)
        self.end_headers()
        while not self.proxy.ended.wait(0.01 if len(data) == 1 else 0):
            self.wfile.write(data)

    def refuse(self, refusal: str) -> None:
        data = f"<Error><Code>{refusal[4:]}</Code><Message>a bad day</Message></Error>".encode()
        self.send(int(refusal[:3]), {"Content-Type": "application/xml"}, data)

    def garbled(self, data: bytes) -> bytes:
        where = round((len(data) - 1) * self.proxy.spot)
        return data[:where] + bytes([data[where] ^ 1]) + data[where + 1 :] if data else data
