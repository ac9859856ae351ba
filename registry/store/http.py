"""A registry on any static web server or CDN, for reading: the same tree below an `https://` URL.

A web server lists nothing, so models are asked for by name. An index file is asked for with the ETag that it had, and
large files in ranges, each on the condition that the file is still the same; a server without ranges sends a file in
one answer. Proxies are those of the environment.

Some hosts answer 403, or with a page, for files that are absent. `HttpStore` finds out once, with a name that cannot
exist.
"""

import http.client
import io
import secrets
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from email.message import Message
from functools import cached_property
from io import BytesIO
from typing import Any, BinaryIO, TypeVar, cast
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
ABSENT_STATUS = frozenset({404, 410})
NO_HEAD_STATUS = frozenset({403, 405, 501})
"""Statuses of a server that may refuse HEAD and answer GET."""
Result = TypeVar("Result")


class RefusedError(RemoteError):
    """The server answered with another status than asked for."""

    def __init__(self, message: str, status: int, hint: str, pause: float = 0.0) -> None:
        super().__init__(message, http_rules.later(pause) if status in PASSING_STATUS else hint)
        self.status = status
        self.pause = pause


class HttpStore(ReadOnlyStore):
    """An `ObjectStore` that refuses to write."""

    description = "a registry on a web server"
    instead = "write to the place that it is served from"

    def __init__(self, url: str) -> None:
        self.url = check_url(url)
        self._ahead = ReadAhead()

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc

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
            if self._is_absence(error):
                return None
            raise
        if is_page(data, headers):
            if self._absence[0] == 200:
                return None
            raise RemoteError(
                f"{self.url}/{key} is a web page, and no file of a registry",
                "check the URL; is there a login page or a proxy in between?",
            )
        return bytes(data), http_rules.entity_tag(headers)

    def open(self, key: str, start: int = 0) -> BinaryIO | None:
        memory, budget = self._ahead.memory(), FileBudget.current()

        def first_block(answer: http.client.HTTPResponse) -> tuple[memoryview | None, Message]:
            """The bytes of a range, or of a whole file that is as small; None for those of a larger file."""
            is_range = "Content-Range" in answer.headers
            if not is_range and (answer.length is None or answer.length > len(memory)):
                return None, answer.headers
            return read_body(answer, f"{self.url}/{key}", len(memory), memory), answer.headers

        range_header = {"Range": f"bytes={start}-{start + len(memory) - 1}"}
        try:
            with requests.reading(budget):
                first, headers = self._ask("GET", key, range_header, first_block)
        except RefusedError as error:
            if self._is_absence(error):
                return None
            if error.status != 416:
                raise
            return BytesIO(b"")
        if self._is_absence_page(key, headers):
            return None
        if first is not None and "Content-Range" not in headers:
            return BytesIO(first[start:])
        size = None if first is None else self._size(key, headers, start, len(first))
        if first is None or size is None:
            self._ahead.give_back(memory)
            return cast(BinaryIO, WholeAnswer(self, key, start, budget))
        tag = http_rules.entity_tag(headers)
        same = {"If-Range": tag} if tag and not tag.startswith("W/") else {}

        def fetch(start: int, memory: memoryview, stop: int) -> None:
            span = f"{start}-{start + len(memory) - 1}"
            with requests.reading(budget):
                _, headers = self._fetch("GET", key, len(memory), {"Range": f"bytes={span}", **same}, memory)
            if headers.get("Content-Range", "") not in (f"bytes {span}/{size}", f"bytes {span}/*"):
                raise RemoteError(f"{self.url}/{key} changed while it was read", "run the command again")

        block = Block(memory, len(first))
        return cast(BinaryIO, RangedReader(fetch, block, size, self._ahead, start))

    def begin(self, key: str, start: int) -> http.client.HTTPResponse:
        """Begin to receive a file from an offset on, in one answer, which has no error and whose end is clear."""
        answer = self._send("GET", key, {"Range": f"bytes={start}-"} if start else {})
        with self.errors(key):
            try:
                if answer.status == 206:
                    first = http_rules.content_range(answer.headers.get("Content-Range", ""))[0]
                    if first != start:
                        raise ValueError("another range than the one that was asked for")
                    return answer
                while start and (data := answer.read(min(start, CHUNK_BYTES))):
                    start -= len(data)
                if start and answer.length:
                    raise ConnectionError(f"{answer.length:,} bytes did not arrive")
                return answer
            except BaseException:
                answer.close()
                raise

    def _size(self, key: str, headers: Message, start: int, count: int) -> int | None:
        """The size of a file of which the bytes came that were asked for; None if the server does not say it.
        RemoteError if others came.
        """
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
        """True if there is a file. A server that refuses HEAD is asked for one byte."""
        try:
            headers = self._ask("HEAD", key, {}, lambda answer: answer.headers)
        except RefusedError as error:
            if error.status in ABSENT_STATUS:
                return False
            if error.status not in NO_HEAD_STATUS:
                raise
            try:
                headers = self._ask("GET", key, {"Range": "bytes=0-0"}, lambda answer: answer.headers)
            except RefusedError as refusal:
                if not self._is_absence(refusal) and refusal.status != 416:
                    raise
                return refusal.status == 416
        return not self._is_absence_page(key, headers)

    @cached_property
    def _absence(self) -> tuple[int, bytes]:
        """The status, and the page, that this place sends for a file that cannot exist.

        404 if not even registry.json is read here: then a 403 means that permission is missing.
        """
        status, data = self._status("registry.json")
        if status != 200 or data.lstrip()[:1] != b"{":
            return 404, b""
        return self._status(f"absent-{secrets.token_hex(8)}")

    def _status(self, key: str) -> tuple[int, bytes]:
        try:
            data, _ = self._fetch("GET", key, MAX_DOCUMENT_BYTES, {})
        except RefusedError as error:
            return error.status, b""
        return 200, bytes(data)

    def _is_absence(self, error: RefusedError) -> bool:
        return error.status in ABSENT_STATUS or (error.status == 403 and self._absence[0] == 403)

    def _is_absence_page(self, key: str, headers: Message) -> bool:
        """True if an answer is the page that this place sends for files that are absent."""
        if headers.get_content_type() != "text/html" or self._absence[0] != 200:
            return False
        try:
            return self._status(key) == self._absence
        except RemoteError:
            return False  # it is larger than a page

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        raise UnlistedError(
            f"a web server does not list what it has, so neither does {self.url}",
            Advice("name-model-or-catalog"),
        )

    def _hint(self, status: int) -> str:
        if status not in (401, 403):
            return "check the URL"
        name = http_rules.variable(self.url)
        if self._token:
            return f"it does not take the token in {name}"
        hint = f"put the server's token into {name}, if it has one"
        return (
            f"check the URL, since some hosts answer 403 for what is absent; {hint}"
            if status == 403
            else hint
        )

    def _fetch(
        self, method: str, key: str, limit: int, headers: dict[str, str], memory: memoryview | None = None
    ) -> tuple[memoryview, Message]:
        """Body and headers of an answer that grants the request; the body, whole, has at most `limit` bytes.

        The body is read into `memory` if that is given.
        """
        return self._ask(
            method,
            key,
            headers,
            lambda answer: (read_body(answer, f"{self.url}/{key}", limit, memory), answer.headers),
        )

    def _ask(
        self,
        method: str,
        key: str,
        headers: dict[str, str],
        use: Callable[[http.client.HTTPResponse], Result],
    ) -> Result:
        """Return the result of `use` for an answer that grants the request. RefusedError for any other answer."""

        def attempt() -> Result:
            with self.errors(key), self._send(method, key, headers) as answer:
                return use(answer)

        with requests.reading():
            return retrying(attempt, is_passing, self.host)

    def _send(self, method: str, key: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        request = urllib.request.Request(f"{self.url}/{key}", headers=headers, method=method)
        for name, value in self.authorization().items():
            request.add_unredirected_header(name, value)
        with self.errors(key):
            answer: http.client.HTTPResponse = self._opener.open(request, timeout=requests.timeout())
            try:
                http_rules.check_framing(answer.headers)
            except ValueError:
                answer.close()
                raise
            return answer

    @contextmanager
    def errors(self, key: str) -> Iterator[None]:
        """Turn what may go wrong with a request into one family of errors."""
        url = f"{self.url}/{key}"
        try:
            yield
        except urllib.error.HTTPError as error:
            with error:
                raise RefusedError(
                    f"{url} answers {error.code} {error.reason}",
                    error.code,
                    self._hint(error.code),
                    http_rules.pause_seconds(error.headers),
                ) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise requests.unanswered(f"reading {url} failed: {why(reason)}", error) from error
        except ValueError as error:
            raise _malformed(url, error) from error


class WholeAnswer(io.RawIOBase):
    """A file from an offset on, as one answer brings it. If the connection breaks, the rest is requested."""

    def __init__(self, store: HttpStore, key: str, start: int, budget: FileBudget) -> None:
        self._store = store
        self._key = key
        self._offset = start
        self._budget = budget
        self._answer: http.client.HTTPResponse | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        def attempt() -> int:
            try:
                self._answer = self._answer or self._store.begin(self._key, self._offset)
                with self._store.errors(self._key):
                    count = self._answer.readinto(buffer)
                    if not count and self._answer.length:
                        raise ConnectionError(f"{self._answer.length:,} bytes did not arrive")
                    return count
            except RemoteError:
                self._drop()
                raise

        with requests.reading(self._budget):
            count = retrying(attempt, is_passing, self._store.host)
        self._offset += count
        return count

    def _drop(self) -> None:
        if self._answer is not None:
            self._answer.close()
            self._answer = None

    def close(self) -> None:
        self._drop()
        super().close()


def is_page(data: memoryview, headers: Message) -> bool:
    """True if a web page came in the place of a file."""
    return headers.get_content_type() == "text/html" and bytes(data).lstrip()[:1] == b"<"


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
    return isinstance(error, UnansweredError)


def make_opener(url: str) -> urllib.request.OpenerDirector:
    """Build a URL opener. Servers on this machine are reached without a proxy, which would see the token."""
    if not url.startswith("http:"):
        http_rules.check_proxy(url)
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
