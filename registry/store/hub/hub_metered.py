"""Connections of httpx2 whose answers are metered, see `requests`, and which follow a redirect only within the rules."""

import time
from collections.abc import Iterator
from typing import Any

import httpcore2
import httpx2

from onnxreg.registry.store.net import http_rules
from onnxreg.registry.store.net.internals import wrap_networks
from onnxreg.registry.store.net.requests import Meter


class MeteredStream(httpcore2.NetworkStream):
    """A connection. An answer begins behind what is written, so the meter begins anew there."""

    def __init__(self, stream: httpcore2.NetworkStream) -> None:
        self._stream = stream
        self._meter = Meter()

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        began = time.monotonic()
        try:
            data = self._stream.read(max_bytes, self._meter.allowed(timeout))
            self._meter.count(len(data), began)
        except TimeoutError as error:
            raise httpcore2.ReadTimeout(str(error)) from error
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._meter = Meter()
        self._stream.write(buffer, timeout)

    def close(self) -> None:
        self._stream.close()

    def start_tls(self, *args: Any, **kwargs: Any) -> httpcore2.NetworkStream:
        return MeteredStream(self._stream.start_tls(*args, **kwargs))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class MeteredBackend(httpcore2.NetworkBackend):
    """Makes connections that are metered."""

    def __init__(self, backend: httpcore2.NetworkBackend) -> None:
        self._backend = backend

    def connect_tcp(self, *args: Any, **kwargs: Any) -> httpcore2.NetworkStream:
        return MeteredStream(self._backend.connect_tcp(*args, **kwargs))

    def connect_unix_socket(self, *args: Any, **kwargs: Any) -> httpcore2.NetworkStream:
        return MeteredStream(self._backend.connect_unix_socket(*args, **kwargs))

    def sleep(self, seconds: float) -> None:
        self._backend.sleep(seconds)


class DiscardedStream(httpx2.SyncByteStream):
    """The body of an answer that redirects, which nobody needs: empty, and an error if it does not come to an end."""

    def __init__(self, stream: httpx2.SyncByteStream, url: str) -> None:
        self._stream = stream
        self._url = url

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for part in self._stream:
            size += len(part)
            http_rules.check_size(self._url, size)
        return iter(())

    def close(self) -> None:
        self._stream.close()


def check_redirect(response: httpx2.Response) -> None:
    """RemoteError if an answer redirects to a forbidden place, or sends a body without end."""
    if not response.has_redirect_location:
        return
    url = str(response.request.url)
    http_rules.target(url, response.headers["Location"])
    assert isinstance(response.stream, httpx2.SyncByteStream)
    response.stream = DiscardedStream(response.stream, url)


def guard(client: httpx2.Client) -> None:
    """Meter the connections of a client, and check its redirects. Idempotent."""
    hooks = client.event_hooks
    if check_redirect in hooks["response"]:
        return
    client.event_hooks = {**hooks, "response": [*hooks["response"], check_redirect]}
    wrap_networks(client, MeteredBackend)
