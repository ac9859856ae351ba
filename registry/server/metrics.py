"""Counters of a server, in the text format that Prometheus reads (version 0.0.4).

Routes are templates such as `/v1/models/{name}`, so that the number of series is the number of routes, for
any requests.
"""

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import add
from pathlib import Path
from typing import Any

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper bounds in seconds of the latency histogram; a last bucket has none."""
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


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
