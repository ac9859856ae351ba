"""The HTTP servers of tests: a handler answers each request, whatever its method, and may break its connection."""

import socket
import ssl
import struct
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit


class Server(ThreadingHTTPServer):
    """More connections may wait than the five of the standard library: a client tries others again after a second."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client may hang up within an answer."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """`answer` is what a subclass, or a word of `serving`, defines; `body` is that of the request."""

    protocol_version = "HTTP/1.1"
    timeout = 30
    disable_nagle_algorithm = True

    def handle(self) -> None:
        with suppress(OSError):
            super().handle()

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                self.body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        self.answer()

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_CONNECT = do_GET  # noqa: N815

    def answer(self) -> None:
        raise NotImplementedError

    @property
    def query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.path).query)

    def reply(
        self, status: int, data: bytes = b"", headers: Mapping[str, str] | None = None, cut: int | None = None
    ) -> None:
        """Answer; with `cut` the connection breaks after so many bytes of the body."""
        headers = headers or {}
        names = {name.lower() for name in headers}
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "date" not in names:
            self.send_header("Date", self.date_time_string())
        if status != 304 and not names & {"content-length", "transfer-encoding"}:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[:cut])
        if cut is not None:
            self.break_off()

    def break_off(self) -> None:
        """Reset the connection, as a machine that goes down does."""
        self.close_connection = True
        with suppress(OSError):
            self.wfile.flush()
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()


@contextmanager
def serving(handler: type[Handler] = Handler, certificate: Path | None = None, **words: Any) -> Iterator[str]:
    """The URL of a server whose handler has these attributes and methods; with a certificate it speaks TLS."""
    server = Server(("127.0.0.1", 0), type(handler.__name__, (handler,), words))
    # What is sent here waits at the sender's.
    server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**17)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http{'s' if certificate else ''}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
