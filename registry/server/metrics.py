"""Counters of a server, in the text format that Prometheus reads (version 0.0.4).

Routes are templates such as `/v1/models/{name}`, so that the number of series is the number of routes, for
any requests.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper bounds in seconds of the latency histogram; a last bucket has none."""
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Counters of one server."""

    def __init__(self) -> None:
        self.in_flight = 0
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._bytes: Counter[str] = Counter()
        self._seconds: Counter[str] = Counter()
        self._buckets: dict[str, list[int]] = {}

    def count(self, route: str, method: str, status: int, body_bytes: int, seconds: float) -> None:
        """Count one answered request. `body_bytes`: bytes of its answer's body; `seconds` to its last byte."""
        self._requests[route, method, status] += 1
        self._bytes[route] += body_bytes
        self._seconds[route] += seconds  # type: ignore[assignment]
        buckets = self._buckets.setdefault(route, [0] * (len(BUCKETS) + 1))
        buckets[bisect_left(BUCKETS, seconds)] += 1

    def text(self) -> str:
        """The exposition."""
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        yield from _head("reg_requests_total", "counter", "Requests that were answered.")
        for (route, method, status), count in sorted(self._requests.items()):
            labels = f'route="{route}",method="{method}",status="{status}"'
            yield f"reg_requests_total{{{labels}}} {count}"
        yield from _head("reg_response_bytes_total", "counter", "Bytes of the bodies of answers.")
        for route, count in sorted(self._bytes.items()):
            yield f'reg_response_bytes_total{{route="{route}"}} {count}'
        yield from _head("reg_requests_in_flight", "gauge", "Requests that are being answered.")
        yield f"reg_requests_in_flight {self.in_flight}"
        yield from _head(
            "reg_request_seconds", "histogram", "Seconds from a request's head to its last byte."
        )
        for route, buckets in sorted(self._buckets.items()):
            yield from self._histogram(route, list(accumulate(buckets)))

    def _histogram(self, route: str, upto: Sequence[int]) -> Iterator[str]:
        for bound, count in zip((*map(str, BUCKETS), "+Inf"), upto, strict=True):
            yield f'reg_request_seconds_bucket{{route="{route}",le="{bound}"}} {count}'
        yield f'reg_request_seconds_sum{{route="{route}"}} {self._seconds[route]:.6f}'
        yield f'reg_request_seconds_count{{route="{route}"}} {upto[-1]}'


def _head(name: str, kind: str, help_text: str) -> tuple[str, str]:
    return f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"
