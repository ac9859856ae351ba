"""Middleware around every request: it counts and logs requests, and refuses those with a large head or a wrong token."""

import hmac
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onnxreg.registry.server.answers import error_answer

Log = Callable[[str], None]
"""A function that receives one log line, without the line end."""
METHODS = frozenset({"GET", "HEAD", "POST", "OPTIONS"})
"""The HTTP methods that metrics count by name. All methods that clients invent count as "other"."""
MAX_LOGGED_PATH_CHARS = 300
OPEN_PATHS = frozenset({"/healthz"})
"""Paths that clients may request without a token."""
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""The upper bounds of the histogram's buckets, in seconds."""
WORKERS_DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"
"""The variable with which prometheus-client finds the directory of metrics that all workers share."""
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """Counters of one server, or of all its workers if the workers share a directory."""

    def __init__(self) -> None:
        self._own = own = CollectorRegistry()
        labels = ("route", "method", "status")
        self.requests = Counter("reg_requests", "Requests that were answered.", labels, registry=own)
        self.bytes = Counter("reg_response_bytes", "Bytes of answers' bodies.", labels[:1], registry=own)
        self.seconds = Histogram(
            "reg_request_seconds", "Seconds to the last byte.", ("route",), registry=own, buckets=SECONDS
        )

    def text(self) -> bytes:
        """Return the metrics in the text format of Prometheus, summed over all workers."""
        if WORKERS_DIRECTORY not in os.environ:
            return generate_latest(self._own)
        everyone = CollectorRegistry()
        MultiProcessCollector(everyone)  # type: ignore[no-untyped-call]
        return generate_latest(everyone)


class Observer:
    """Counts requests, and logs each as one JSON line: {time, method, route, path, status, bytes, seconds, client}.

    `time` is in UTC, `route` is the route's template or null, `bytes` counts the body. Headers and query string are not
    logged, since they may have secrets. Status 499 means that the client left before the answer began.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, log: Log | None) -> None:
        self._app, self._metrics, self._log = app, metrics, log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, count, started = 499, 0, time.perf_counter()

        async def observed(message: Message) -> None:
            nonlocal status, count
            await send(message)
            status = message.get("status", status)
            count += len(message.get("body", b"")) if scope["method"] != "HEAD" else 0

        try:
            await self._app(scope, receive, observed)
        finally:
            self._record(scope, status, count, time.perf_counter() - started)

    def _record(self, scope: Scope, status: int, count: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", None)
        method = scope["method"] if scope["method"] in METHODS else "other"
        self._metrics.requests.labels(route or "none", method, status).inc()
        self._metrics.bytes.labels(route or "none").inc(count)
        self._metrics.seconds.labels(route or "none").observe(seconds)
        if self._log is not None:
            line = {
                "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "method": scope["method"][:20],
                "route": route,
                "path": scope["path"][:MAX_LOGGED_PATH_CHARS],
                "status": status,
                "bytes": count,
                "seconds": round(seconds, 6),
                "client": (scope.get("client") or (None,))[0],
            }
            self._log(json.dumps(line))


def to_stderr(line: str) -> None:
    """Write one line to stderr. If stderr is closed, the error is ignored, and requests are answered as before."""
    with suppress(OSError, ValueError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


class Guard:
    """Refuses requests with a large head or several tokens and, if the server has a token, requests without this token."""

    def __init__(self, app: ASGIApp, token: str | None, max_head_bytes: int) -> None:
        self._app = app
        self._token = None if token is None else sha256(token.encode()).digest()
        self._max_head_bytes = max_head_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refuse(scope) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _refuse(self, scope: Scope) -> Response | None:
        head = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
        if head + len(scope["raw_path"]) + len(scope["query_string"]) > self._max_head_bytes:
            message = f"the head has more than {self._max_head_bytes:,} bytes"
            return error_answer(431, "input", message, "", {"Connection": "close"})
        tokens = Headers(scope=scope).getlist("authorization")
        if len(tokens) > 1:  # a proxy may have checked another header than we do
            return error_answer(400, "input", "the request has several Authorization headers", "send one")
        if self._token is None or scope["path"] in OPEN_PATHS or self._is_right("".join(tokens)):
            return None
        fields = {"WWW-Authenticate": 'Bearer realm="registry"'}
        hint = "send Authorization: Bearer TOKEN"
        return error_answer(401, "input", "this registry is read with a token", hint, fields)

    def _is_right(self, authorization: str) -> bool:
        """Compare a request's token with the server's token, in constant time."""
        assert self._token is not None
        scheme, _, token = authorization.partition(" ")
        is_same = hmac.compare_digest(sha256(token.strip().encode("latin-1")).digest(), self._token)
        return scheme.lower() == "bearer" and is_same
