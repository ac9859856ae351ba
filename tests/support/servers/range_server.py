"""A server of S3's GET requests that seeks to a range, or reads the whole object for each, and counts what it reads."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BUCKET = "models"


@dataclass
class RangeServer:
    """Its objects by key. `seeks`: it reads no more than was asked for; `rate`: bytes that it reads in a second.

    `break_after`: the next answer with more bytes ends after so many, once.
    """

    objects: dict[str, bytes]
    seeks: bool
    rate: float
    url: str = ""
    break_after: int = 0
    bytes_read: int = 0
    requests: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, key: str, start: int, stop: int) -> bytes:
        data = self.objects[key]
        count = (min(stop, len(data)) - start) if self.seeks else len(data)
        with self.lock:
            self.bytes_read += count
            self.requests.append(f"{key} {start}-{stop}")
        time.sleep(count / self.rate)
        return data[start:stop]


class Listener(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client may hang up."""


@contextmanager
def running(objects: dict[str, bytes], seeks: bool, rate: float) -> Iterator[RangeServer]:
    server = RangeServer(objects, seeks, rate)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            key = self.path.partition("?")[0].removeprefix(f"/{BUCKET}/")
            if key not in server.objects:
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            size = len(server.objects[key])
            first, _, last = (self.headers["Range"] or f"bytes=0-{size - 1}")[6:].partition("-")
            start, stop = int(first), min(int(last) + 1, size)
            data = server.read(key, start, stop)
            self.send_response(206)
            self.send_header("ETag", '"tag"')
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
            self.end_headers()
            if 0 < server.break_after < len(data):
                data, server.break_after = data[: server.break_after], 0
                self.close_connection = True
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with Listener(("127.0.0.1", 0), Handler) as listener:
        thread = threading.Thread(target=listener.serve_forever, args=(0.05,))
        thread.start()
        server.url = (
            f"s3://{BUCKET}/at?endpoint=http://127.0.0.1:{listener.server_port}&anonymous=yes&path_style=yes"
        )
        try:
            yield server
        finally:
            listener.shutdown()
            thread.join()
