"""The comments of one pull request, as GitHub's API reads, pages and writes them. It is ours: the real one cannot be reached."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

REPOSITORY = "acme/app"
PULL_REQUEST = 7
TOKEN = "a-token-that-no-log-shows"
_COMMENTS = f"/repos/{REPOSITORY}/issues/{PULL_REQUEST}/comments"


class GitHub(ThreadingHTTPServer):
    """A running API. With `refuses` it answers writes as if the token had no permission."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.refuses = False
        self.comments: list[dict[str, Any]] = []
        self.writes: list[str] = []

    def add(self, body: str, kind: str = "User") -> dict[str, Any]:
        """Add a comment by a person, or by a program (`Bot`)."""
        self.comments.append({"id": len(self.comments) + 1, "body": body, "user": {"type": kind}})
        return self.comments[-1]

    def reports(self) -> list[str]:
        """The texts of the comments by programs."""
        return [comment["body"] for comment in self.comments if comment["user"]["type"] == "Bot"]


@contextmanager
def running() -> Iterator[GitHub]:
    with GitHub() as server:
        Thread(target=server.serve_forever).start()
        try:
            yield server
        finally:
            server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    server: GitHub

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if not self._is_allowed() or url.path != _COMMENTS:
            return self._send(404, {})
        query = parse_qs(url.query)
        size, page = int(query["per_page"][0]), int(query["page"][0])
        self._send(200, self.server.comments[(page - 1) * size : page * size])

    def do_POST(self) -> None:
        if self._may_write() and self.path == _COMMENTS:
            self._send(201, self.server.add(self._body(), "Bot"))

    def do_PATCH(self) -> None:
        if self._may_write():
            number = int(self.path.removeprefix(f"/repos/{REPOSITORY}/issues/comments/"))
            comment = self.server.comments[number - 1]
            comment["body"] = self._body()
            self._send(200, comment)

    def _may_write(self) -> bool:
        self.server.writes.append(self.command)
        if self._is_allowed() and not self.server.refuses:
            return True
        self._send(403, {"message": "Resource not accessible by integration"})
        return False

    def _is_allowed(self) -> bool:
        return self.headers["Authorization"] == f"Bearer {TOKEN}"

    def _body(self) -> str:
        return str(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"])

    def _send(self, status: int, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *words: Any) -> None:
        """Say nothing."""
