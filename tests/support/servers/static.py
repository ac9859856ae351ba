"""A static web server as hosts and CDNs are: ETag, If-None-Match, Range and If-Range; it lists nothing."""

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def serve(root: Path) -> Iterator[str]:
    """The URL under which the files of a directory are served."""
    server = Server(("127.0.0.1", 0), Handler)
    cast(Any, server).root = root
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
        path = root / unquote(urlsplit(self.path).path).lstrip("/")
        if not path.is_file():
            return self.answer(404, b"<html>not found</html>", {"Content-Type": "text/html"})
        data = path.read_bytes()
        tag = large_tag(path, path.stat()) if len(data) > 2**20 else tag_of(data)
        headers = {"ETag": tag, "Content-Type": "application/octet-stream"}
        if self.headers.get("If-None-Match") == tag:
            return self.answer(304, b"", headers)
        span = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if span is None or self.headers.get("If-Range", tag) != tag:
            return self.answer(200, data, headers)
        start, end = int(span[1]), min(int(span[2]) + 1, len(data))
        if start >= len(data):
            return self.answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        return self.answer(206, data[start:end], headers)

    do_HEAD = do_GET  # noqa: N815

    def answer(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 304:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
