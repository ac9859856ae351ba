"""A static web server as hosts and CDNs are: ETag, If-None-Match, Range and If-Range; it lists nothing.

`Manners` says what a server does in another way, as people report of hosts and CDNs.
"""

import gzip
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit


class Server(ThreadingHTTPServer):
    """More connections may wait than the five of the standard library: a client tries others again after a second."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client may hang up within an answer."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


Refusal = tuple[int, dict[str, str]]
"""A status, and headers that come with it."""


@dataclass
class Manners:
    """The ways in which a server answers; they may change while it runs.

    Args:
        ranges: `yes`, `no` (each answer is the whole file), `chunked` (the same, without a length), `star` (an
            answer does not say the size of the file).
        packed: the answers with a whole file are packed by gzip, though nobody asked for it.
        absent: the status for a file that is not there; with 200 a page comes.
        head: the status of each answer to HEAD, if it is not 200.
        refused: the answer to each request for a path that ends so, by one of the `methods`.
        once: answers to the next requests of any kind, in this order.
        seen: the method and path of each request so far.
    """

    ranges: str = "yes"
    packed: bool = False
    absent: int = 404
    head: int = 200
    refused: dict[str, Refusal] = field(default_factory=dict)
    methods: tuple[str, ...] = ("GET",)
    once: list[Refusal] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)


PAGE = b"<!doctype html><title>shop</title><div id=root></div>"


@contextmanager
def serve(root: Path, manners: Manners | None = None) -> Iterator[str]:
    """The URL under which the files of a directory are served."""
    server = Server(("127.0.0.1", 0), Handler)
    cast(Any, server).root = root
    cast(Any, server).manners = manners or Manners()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def tag_of(data: bytes) -> str:
    return f'"{md5(data, usedforsecurity=False).hexdigest()}"'


@lru_cache
def large_tag(path: Path, _: os.stat_result) -> str:
    """The tag of a large file, which is read in many ranges."""
    return tag_of(path.read_bytes())


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        root: Path = cast(Any, self.server).root
        manners: Manners = cast(Any, self.server).manners
        manners.seen.append(f"{self.command} {self.path}")
        refused = manners.refused.items() if self.command in manners.methods else ()
        refusals = [answer for end, answer in refused if self.path.endswith(end)]
        if manners.once:
            refusals = [manners.once.pop(0)]
        if self.command == "HEAD" and manners.head != 200:
            refusals = [(manners.head, {})]
        if refusals:
            return self.answer(refusals[0][0], b"no", refusals[0][1])
        path = root / unquote(urlsplit(self.path).path).lstrip("/")
        if not path.is_file():
            return self.answer(manners.absent, PAGE, {"Content-Type": "text/html"})
        data = path.read_bytes()
        tag = large_tag(path, path.stat()) if len(data) > 2**20 else tag_of(data)
        headers = {"ETag": tag, "Content-Type": "application/octet-stream"}
        if self.headers.get("If-None-Match") == tag:
            return self.answer(304, b"", headers)
        span = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if manners.ranges in ("no", "chunked") or span is None or self.headers.get("If-Range", tag) != tag:
            return self.answer(200, data, headers)
        start, end = int(span[1]), min(int(span[2] or len(data)) + 1, len(data))
        if start >= len(data):
            return self.answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
        size = "*" if manners.ranges == "star" else len(data)
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        return self.answer(206, data[start:end], headers)

    do_HEAD = do_GET  # noqa: N815

    def answer(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        if status == 200 and cast(Any, self.server).manners.packed:
            data, headers = gzip.compress(data), headers | {"Content-Encoding": "gzip"}
        for name, value in headers.items():
            self.send_header(name, value)
        chunked = status == 200 and cast(Any, self.server).manners.ranges == "chunked"
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
            data = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (data, b""))
        elif status != 304:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
