"""A registry on any static web server or CDN, for reading: the same tree below an `https://` URL.

A web server lists nothing, so models are asked for by name. An index file is asked for with the ETag that it had, and
large files in ranges, each on the condition that the file is still the same. Proxies are those of the environment.
"""

import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from email.message import Message
from functools import cached_property
from io import BytesIO
from typing import BinaryIO, cast
from urllib.parse import urlsplit

from onnxreg.registry.store.layout import index_path
from onnxreg.registry.store.net import http_rules, requests
from onnxreg.registry.store.net.http_rules import is_loopback
from onnxreg.registry.store.net.requests import UnansweredError, retrying
from onnxreg.registry.store.net.waits import FileBudget
from onnxreg.registry.store.object_store import ObjectRegistry, ReadOnlyStore
from onnxreg.registry.store.protocol import (
    CHUNK_BYTES,
    MAX_DOCUMENT_BYTES,
    IndexFile,
    StoredObject,
    UnlistedError,
)
from onnxreg.registry.store.range_stream import Block, RangedReader, ReadAhead
from onnxreg.schema.core.errors import Advice, InputError, RemoteError, why

MAX_WORKERS = 8
PASSING_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})


class RefusedError(RemoteError):
    """The server answered with another status than asked for."""

    def __init__(self, message: str, status: int, hint: str) -> None:
        super().__init__(message, hint)
        self.status = status


class HttpStore(ReadOnlyStore):
    """An `ObjectStore` that refuses to write."""

    description = "a registry on a web server"
    instead = "write to the place that it is served from"

    def __init__(self, url: str) -> None:
        self.url = check_url(url)
        self._ahead = ReadAhead()

    @cached_property
    def _opener(self) -> urllib.request.OpenerDirector:
        return make_opener(self.url)

    @cached_property
    def _token(self) -> dict[str, str]:
        return http_rules.bearer(self.url)

    def authorization(self) -> dict[str, str]:
        """The headers that only this server may see."""
        return self._token

    def get(self, key: str, cached: StoredObject | None = None, fresh: bool = False) -> StoredObject | None:
        """Read a small file, see `ObjectStore.get`; `fresh` bypasses caches in between."""
        conditions = {"If-None-Match": cached[1]} if cached and cached[1] else {}
        if fresh:
            conditions["Cache-Control"] = "no-cache"
        try:
            data, headers = self._fetch("GET", key, MAX_DOCUMENT_BYTES, conditions)
        except RefusedError as error:
            if error.status == 304 and cached:
                return cached
            if error.status in (404, 410):
                return None
            raise
        if headers.get_content_type() == "text/html" and bytes(data).lstrip()[:1] == b"<":
            raise RemoteError(
                f"{self.url}/{key} is a web page, and no file of a registry",
                "check the URL; is there a login page or a proxy in between?",
            )
        return bytes(data), http_rules.entity_tag(headers)

    def open(self, key: str, start: int = 0) -> BinaryIO | None:
        memory, budget = self._ahead.memory(), FileBudget.current()
        range_header = {"Range": f"bytes={start}-{start + len(memory) - 1}"}
        try:
            with requests.reading(budget):
                first, headers = self._fetch("GET", key, len(memory), range_header, memory)
        except RefusedError as error:
            if error.status in (404, 410):
                return None
            if error.status != 416:
                raise
            first, headers = memory[:0], Message()
        if "Content-Range" not in headers:
            return BytesIO(first[start:])
        size = self._size(key, headers, start, len(first))
        tag = http_rules.entity_tag(headers)
        same = {"If-Range": tag} if tag and not tag.startswith("W/") else {}

        def fetch(start: int, memory: memoryview, stop: int) -> None:
            span = f"{start}-{start + len(memory) - 1}"
            with requests.reading(budget):
                _, headers = self._fetch("GET", key, len(memory), {"Range": f"bytes={span}", **same}, memory)
            if headers.get("Content-Range", "") != f"bytes {span}/{size}":
                raise RemoteError(f"{self.url}/{key} changed while it was read", "run the command again")

        block = Block(memory, len(first))
        return cast(BinaryIO, RangedReader(fetch, block, size, self._ahead, start))

    def _size(self, key: str, headers: Message, start: int, count: int) -> int:
        """The size of a file of which the bytes came that were asked for. RemoteError if others came."""
        try:
            first, end, size = http_rules.content_range(headers["Content-Range"])
        except ValueError as error:
            raise _malformed(f"{self.url}/{key}", error) from None
        if (first, end) != (start, start + count):
            raise RemoteError(
                f"{self.url}/{key} sends other bytes than those that were asked for",
                "does the server honour Range?",
            )
        return size

    def has(self, keys: Iterable[str]) -> set[str]:
        key_list = list(keys)
        with ThreadPoolExecutor(MAX_WORKERS) as pool:
            present = list(pool.map(self._is_there, key_list))
        return {key for key, is_present in zip(key_list, present, strict=True) if is_present}

    def _is_there(self, key: str) -> bool:
        try:
            self._fetch("HEAD", key, 0, {})
        except RefusedError as error:
            if error.status in (404, 410):
                return False
            raise
        return True

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        raise UnlistedError(
            f"a web server does not list what it has, so neither does {self.url}",
            Advice("name-model-or-snapshot"),
        )

    def _hint(self, status: int) -> str:
        if status not in (401, 403):
            return "check the URL"
        name = http_rules.variable(self.url)
        if self._token:
            return f"it does not take the token in {name}"
        return f"put the server's token into {name}, if it has one"

    def _fetch(
        self, method: str, key: str, limit: int, headers: dict[str, str], memory: memoryview | None = None
    ) -> tuple[memoryview, Message]:
        """Body and headers of an answer that grants the request; the body, whole, has at most `limit` bytes.

        The body is read into `memory` if that is given.
        """
        request = urllib.request.Request(f"{self.url}/{key}", headers=headers, method=method)
        for name, value in self.authorization().items():
            request.add_unredirected_header(name, value)

        def attempt() -> tuple[memoryview, Message]:
            try:
                with self._opener.open(request, timeout=requests.timeout()) as answer:
                    http_rules.check_framing(answer.headers)
                    return read_body(answer, request.full_url, limit, memory), answer.headers
            except urllib.error.HTTPError as error:
                with error:
                    raise RefusedError(
                        f"{request.full_url} answers {error.code} {error.reason}",
                        error.code,
                        self._hint(error.code),
                    ) from None
            except (OSError, http.client.HTTPException) as error:
                reason = getattr(error, "reason", error)
                raise UnansweredError(
                    f"reading {request.full_url} failed: {why(reason)}",
                    _trust(reason) or "check the network and the URL",
                ) from error
            except ValueError as error:
                raise _malformed(request.full_url, error) from error

        with requests.reading():
            return retrying(attempt, is_passing, request.host)


def read_body(
    answer: http.client.HTTPResponse, url: str, limit: int, memory: memoryview | None = None
) -> memoryview:
    """The whole body, read no further than `limit` bytes and one."""
    size = limit if answer.length is None else answer.length
    if size > limit:
        raise RemoteError(
            f"{url} has {size:,} bytes where at most {limit:,} were asked for",
            "does the server honour Range?",
        )
    data = _arrived(answer, size) if memory is None else _filled(answer, memory[:size])
    if answer.length:
        raise ConnectionError(f"{len(data):,} of {size:,} bytes arrived")
    if answer.length is None and answer.read(1):
        raise RemoteError(f"{url} has more than the {limit:,} bytes that were asked for")
    return data


def _arrived(answer: http.client.HTTPResponse, size: int) -> memoryview:
    """The next bytes, in memory that grows with what arrives: a claimed length costs nothing."""
    data = bytearray()
    while len(data) < size and (part := answer.read(min(CHUNK_BYTES, size - len(data)))):
        data += part
    return memoryview(data)


def _filled(answer: http.client.HTTPResponse, memory: memoryview) -> memoryview:
    end = 0
    while end < len(memory) and (count := answer.readinto(memory[end:])):
        end += count
    return memory[:end]


def _malformed(url: str, error: Exception) -> RemoteError:
    return RemoteError(
        f"{url}: the answer is malformed: {why(error)}"[:400],
        "is there a proxy in between, or is the URL wrong?",
    )


class PlainConnection(http.client.HTTPConnection):
    response_class = requests.MeteredResponse


class SecureConnection(http.client.HTTPSConnection):
    response_class = requests.MeteredResponse


class Plain(urllib.request.HTTPHandler):
    """Opens `http:` URLs; the answers are metered."""

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(PlainConnection, req)


class Secure(urllib.request.HTTPSHandler):
    """Opens `https:` URLs; the answers are metered."""

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(SecureConnection, req)


def is_passing(error: Exception) -> bool:
    if isinstance(error, RefusedError):
        return error.status in PASSING_STATUS
    return isinstance(error, UnansweredError) and not isinstance(
        getattr(error.__cause__, "reason", None), ssl.SSLCertVerificationError
    )


def _trust(reason: object) -> str:
    untrusted = isinstance(reason, ssl.SSLCertVerificationError)
    return "if the server is right, name its certificate in SSL_CERT_FILE" if untrusted else ""


def make_opener(url: str) -> urllib.request.OpenerDirector:
    """Build a URL opener. Servers on this machine are reached without a proxy, which would see the token."""
    direct = [urllib.request.ProxyHandler({})] if url.startswith("http:") else []
    return urllib.request.build_opener(http_rules.SameOrigin, Plain, Secure, *direct)


def check_url(url: str) -> str:
    """The URL without a slash at its end. InputError if it holds credentials, or is not encrypted."""
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise InputError(
            "the URL holds credentials, which would be written to disk and shown", "leave them out"
        )
    if parts.query or parts.fragment or not parts.hostname:
        raise InputError(f"not the URL of a registry: {url[:80]!r}", "write https://host/path")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise InputError("http:// shows and hands anybody on the way what is read", "write https://")
    return url.rstrip("/")


class HttpRegistry(ObjectRegistry):
    """The registry on a web server, which may be behind caches."""

    def __init__(self, store: HttpStore, known_id: str | None = None) -> None:
        super().__init__(store, known_id)
        self._web = store

    def read_file(self, path: str, cached: StoredObject | None = None) -> StoredObject | None:
        return self._web.get(path, cached, fresh=cached is None)

    def read_fresh(self, name: str) -> IndexFile | None:
        """Read a model's index file past the caches in between."""
        index = self._web.get(index_path(name), fresh=True)
        return IndexFile(*index) if index else None


def http_remote(url: str, known_id: str | None = None) -> ObjectRegistry:
    """The registry at an `https://` URL, or at an `http://` one on this machine. For `known_id` see `ObjectRegistry`."""
    remote = HttpRegistry(HttpStore(url), known_id)
    remote.check_exists()
    return remote
