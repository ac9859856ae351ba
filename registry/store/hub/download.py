"""The bytes of a file on the Hugging Face Hub, as they arrive.

Connections of httpx2 are metered, see `net.requests`, and follow a redirect only within the rules.
"""

import io
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from email.message import Message
from typing import Any

import httpcore2
import httpx2
from huggingface_hub import constants

from onnxreg.registry.store.hub.hub_errors import UnnamedCommitError
from onnxreg.registry.store.net import http_rules, requests
from onnxreg.registry.store.net.internals import wrap_networks
from onnxreg.registry.store.net.requests import Meter, retrying
from onnxreg.registry.store.net.waits import FileBudget

BLOCK_BYTES = 2**16
"""So many bytes are one try: a server that sends a few, and is asked again, is as slow as before."""
Ask = Callable[[str, int, bytes | None], httpx2.Response]
"""Begins to receive the file at a revision, from an offset; nothing if it is known. See `HubClient.get`."""


class Download(io.RawIOBase):
    """A file's bytes from an offset, all from one commit. If the connection breaks, the rest is requested.

    `unchanged`: none is sent, since the file is the one that is known. Errors while reading pass through `errors`.
    """

    def __init__(
        self,
        ask: Ask,
        errors: Callable[[], AbstractContextManager[None]],
        revision: str,
        start: int = 0,
        cached: bytes | None = None,
    ) -> None:
        super().__init__()
        self._ask = ask
        self._errors = errors
        self._offset = start
        self._budget = FileBudget.current()
        with requests.reading(self._budget):
            self._response = ask(revision, start, cached)
        self.unchanged = self._response.status_code == 304
        self.commit = self._commit()
        self._blocks = self._received()
        self._block = bytearray()

    def _commit(self) -> str:
        """The commit that the Hub says it reads from: with a redirect, it says so there."""
        for response in (*self._response.history, self._response):
            commit = response.headers.get(constants.HUGGINGFACE_HEADER_X_REPO_COMMIT)
            if commit and constants.REGEX_COMMIT_OID.fullmatch(commit):
                return str(commit)
        self._response.close()
        if self.unchanged:
            raise UnnamedCommitError
        raise ValueError("an answer without a commit")

    def _received(self) -> Iterator[bytes]:
        """The bytes from the offset on. A Hub that ignores the range sends all of them."""
        blocks = self._response.iter_raw()
        http_rules.check_framing(_message(self._response))
        if self._response.status_code == 206:
            first, _, _ = http_rules.content_range(self._response.headers.get("Content-Range", ""))
            if first != self._offset:
                raise ValueError("another range than the one that was asked for")
        return _without_first(blocks, self._offset) if self._response.status_code == 200 else blocks

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        if not self._block:
            with self._errors(), requests.reading(self._budget):
                retrying(self._fill, self._resumed, self._response.url.host)
        target = memoryview(buffer).cast("B")
        size = min(len(target), len(self._block))
        target[:size] = self._block[:size]
        del self._block[:size]
        return size

    def _fill(self) -> None:
        """Receive the next block, or the rest of it if the connection broke within."""
        while len(self._block) < BLOCK_BYTES and (data := next(self._blocks, b"")):
            self._block += data
            self._offset += len(data)

    def _resumed(self, error: Exception) -> bool:
        """After a broken connection: ask for the rest."""
        if not isinstance(error, httpx2.TransportError):
            return False
        self._response.close()
        self._response = self._ask(self.commit, self._offset, None)
        self._blocks = self._received()
        return True

    def close(self) -> None:
        if not self.closed:
            self._response.close()
        super().close()


def _message(response: httpx2.Response) -> Message:
    message = Message()
    for name, value in response.headers.multi_items():
        message[name] = value
    return message


def _without_first(blocks: Iterable[bytes], count: int) -> Iterator[bytes]:
    for block in blocks:
        block_rest, count = block[count:], max(0, count - len(block))
        if block_rest:
            yield block_rest


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
