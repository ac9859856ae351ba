"""Observe requests: count each in the metrics, and write it as one JSON line to the log.

    {"time", "method", "route", "path", "status", "bytes", "seconds", "client"}

`time` is UTC, `route` the template (null if none fits), `bytes` those of the body. Headers and the query
string are left out: they may have secrets.
"""

import json
import logging
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onnxreg.registry.server.http.responses import ZERO_COPY
from onnxreg.registry.server.metrics import Metrics

Log = Callable[[str], None]
"""Takes one line, without its end."""
METHODS = frozenset({"GET", "HEAD", "POST", "OPTIONS"})
"""The others count as one, so that nobody makes up series."""
MAX_LOGGED_PATH_CHARS = 300
"""Characters of a path in the log."""


class RequestObserver:
    """Middleware that counts requests and, with a `log`, logs them."""

    def __init__(self, app: ASGIApp, metrics: Metrics, log: Log | None) -> None:
        self._app = app
        self._metrics = metrics
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send, scope["method"] == "HEAD")
        started = time.perf_counter()
        self._metrics.counters.in_flight += 1
        try:
            await self._app(scope, receive, answer.send)
        finally:
            self._metrics.counters.in_flight -= 1
            self._record(scope, answer, time.perf_counter() - started)

    def _record(self, scope: Scope, answer: "_Answer", seconds: float) -> None:
        route = getattr(scope.get("route"), "path", None)
        method = scope["method"] if scope["method"] in METHODS else "other"
        self._metrics.count(route or "none", method, answer.status, answer.sent, seconds)
        if self._log is not None:
            self._log(json.dumps(_line(scope, route, answer, seconds)))


class _Answer:
    """Forwards an answer and records its status and body size. 499: the client disconnected before it began."""

    def __init__(self, send: Send, bare: bool) -> None:
        self.status = 499
        self.sent = 0
        self._send = send
        self._bare = bare

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)
        if not self._bare:
            self.sent += message["count"] if message["type"] == ZERO_COPY else len(message.get("body", b""))


def _line(scope: Scope, route: str | None, answer: _Answer, seconds: float) -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return {
        "time": now.replace("+00:00", "Z"),
        "method": scope["method"][:20],
        "route": route,
        "path": scope["path"][:MAX_LOGGED_PATH_CHARS],
        "status": answer.status,
        "bytes": answer.sent,
        "seconds": round(seconds, 6),
        "client": (scope.get("client") or (None,))[0],
    }


def to_stderr(line: str) -> None:
    """Write one line. A closed log does not stop answers."""
    with suppress(OSError, ValueError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


class JsonLines(logging.Handler):
    """Log records of libraries, as `{"level", "message", "trace"?}` among the other lines."""

    def emit(self, record: logging.LogRecord) -> None:
        value = {"level": record.levelname.lower(), "message": record.getMessage().strip()}
        if record.exc_info:
            value["trace"] = logging.Formatter().formatException(record.exc_info)
        to_stderr(json.dumps(value))
