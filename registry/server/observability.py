"""Observe requests: count each in the metrics, and write it as one JSON line to the log.

    {"time", "method", "route", "path", "status", "bytes", "seconds", "client"}

`time` is UTC, `route` the template (null if none fits), `bytes` those of the body. Headers and the query
string are left out: they may have secrets.
"""

import json
import logging
import sys
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import accumulate
from operator import add
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onnxreg.registry.server.http.messages import ZERO_COPY

Log = Callable[[str], None]
"""Takes one line, without its end."""
METHODS = frozenset({"GET", "HEAD", "POST", "OPTIONS"})
"""The others count as one, so that nobody makes up series."""
MAX_LOGGED_PATH_CHARS = 300
"""Characters of a path in the log."""


@dataclass
class Counters:
    """Counts of what a process answered: requests by route, method and status; bytes, seconds and buckets by route."""

    requests: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    response_bytes: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    buckets: dict[str, list[int]] = field(default_factory=dict)
    in_flight: int = 0

    def add(self, other: "Counters") -> None:
        """Add the counters of another process."""
        self.requests.update(other.requests)
        self.response_bytes.update(other.response_bytes)
        self.in_flight += other.in_flight
        for route, seconds in other.seconds.items():
            self.seconds[route] = self.seconds.get(route, 0.0) + seconds
        for route, buckets in other.buckets.items():
            own = self.buckets.get(route, [0] * len(buckets))
            self.buckets[route] = list(map(add, own, buckets))

    def to_json(self) -> dict[str, Any]:
        requests = [[*key, count] for key, count in self.requests.items()]
        return {**vars(self), "requests": requests}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Counters":
        """Read what `to_json` wrote."""
        requests = {(route, method, status): count for route, method, status, count in value["requests"]}
        return cls(
            **{**value, "requests": Counter(requests), "response_bytes": Counter(value["response_bytes"])}
        )


class Metrics:
    """Counters of one server.

    Args:
        file: where this process keeps its counters, in a directory with those of the other workers; None if
            it is the only one. A worker that takes the place of a dead one goes on with its counters.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._saved = ""
        self.counters = Counters() if file is None else _read(file)
        self.counters.in_flight = 0

    def count(self, route: str, method: str, status: int, body_bytes: int, seconds: float) -> None:
        """Count one answered request. `body_bytes`: bytes of its answer's body; `seconds` to its last byte."""
        counters = self.counters
        counters.requests[route, method, status] += 1
        counters.response_bytes[route] += body_bytes
        counters.seconds[route] = counters.seconds.get(route, 0.0) + seconds
        buckets = counters.buckets.setdefault(route, [0] * (len(BUCKETS) + 1))
        buckets[bisect_left(BUCKETS, seconds)] += 1

    def save(self) -> None:
        """Write the counters to the file, if they changed."""
        text = json.dumps(self.counters.to_json())
        if self._file is not None and text != self._saved:
            aside = self._file.with_suffix(".new")
            aside.write_text(text, "utf-8")
            aside.replace(self._file)
            self._saved = text

    def _sum(self) -> Counters:
        """The counters of all workers: this one's of now, the others' as they saved them."""
        total = Counters()
        total.add(self.counters)
        if self._file is not None:
            for file in self._file.parent.glob("*.json"):
                if file != self._file:
                    total.add(_read(file))
        return total

    def text(self) -> str:
        """The exposition."""
        return "".join(f"{line}\n" for line in _lines(self._sum()))


def _read(file: Path) -> Counters:
    try:
        return Counters.from_json(json.loads(file.read_text("utf-8")))
    except FileNotFoundError:
        return Counters()


def _lines(counters: Counters) -> Iterator[str]:
    yield from _head("reg_requests_total", "counter", "Requests that were answered.")
    for (route, method, status), count in sorted(counters.requests.items()):
        labels = f'route="{route}",method="{method}",status="{status}"'
        yield f"reg_requests_total{{{labels}}} {count}"
    yield from _head("reg_response_bytes_total", "counter", "Bytes of the bodies of answers.")
    for route, count in sorted(counters.response_bytes.items()):
        yield f'reg_response_bytes_total{{route="{route}"}} {count}'
    yield from _head("reg_requests_in_flight", "gauge", "Requests that are being answered.")
    yield f"reg_requests_in_flight {counters.in_flight}"
    yield from _head("reg_request_seconds", "histogram", "Seconds from a request's head to its last byte.")
    for route, buckets in sorted(counters.buckets.items()):
        yield from _histogram(route, list(accumulate(buckets)), counters.seconds[route])


def _histogram(route: str, upto: Sequence[int], seconds: float) -> Iterator[str]:
    for bound, count in zip((*map(str, BUCKETS), "+Inf"), upto, strict=True):
        yield f'reg_request_seconds_bucket{{route="{route}",le="{bound}"}} {count}'
    yield f'reg_request_seconds_sum{{route="{route}"}} {seconds:.6f}'
    yield f'reg_request_seconds_count{{route="{route}"}} {upto[-1]}'


def _head(name: str, kind: str, help_text: str) -> tuple[str, str]:
    return f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"


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


BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper bounds in seconds of the latency histogram; a last bucket has none."""
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
