"""A registry on any static web server or CDN, for reading: the same tree below an `https://` URL.

A web server lists nothing, so models are asked for by name. An index file is asked for with the ETag that it had; a blob
comes in one answer, of which the rest is requested if the connection breaks. Proxies are those of the environment.

Some hosts answer 403 for files that are absent. `HttpStore` finds out once, with a name that cannot exist.
"""

import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from email.message import Message
from functools import cached_property, partial
from typing import Any, BinaryIO, TypeVar
from urllib.parse import urlsplit

from onnxreg.registry.store import requests
from onnxreg.registry.store.layout import index_path
from onnxreg.registry.store.protocol import (
    IndexFile,
    ReadOnlyStore,
    RegistryStore,
    StoredObject,
    TreeFile,
    UnlistedError,
)
from onnxreg.registry.store.requests import (
    READ_BYTES,
    ObjectAnswer,
    ObjectStream,
    RefusedError,
    is_loopback,
    retrying,
)
from onnxreg.registry.store.streams import CHUNK_BYTES
from onnxreg.registry.support.parallel import run_parallel
from onnxreg.schema.core.bounds import MAX_DOCUMENT_BYTES
from onnxreg.schema.core.errors import InputError, RemoteError, why

ABSENT_STATUS = frozenset({404, 410})
Result = TypeVar("Result")


class HttpStore(ReadOnlyStore):
    """An `ObjectStore` that refuses to write. A key may also be a URL, to which the server sent us.

    Registries with an API of their own (OCI, the Hub) subclass it, with `authorization`, `hint` and `words`.
    """

    description = "a registry on a web server"
    instead = "write to the place that it is served from"

    def __init__(self, url: str, authorization: Mapping[str, str] | None = None) -> None:
        """`authorization`: headers that only this server may see; by default the token in the environment."""
        self.url = check_url(url)
        self._authorization = authorization

    @cached_property
    def _opener(self) -> urllib.request.OpenerDirector:
        """Servers on this machine are reached without a proxy, which would see the token."""
        direct = [urllib.request.ProxyHandler({})] if self.url.startswith("http:") else []
        return urllib.request.build_opener(requests.SameOrigin, *direct)

    def authorization(self) -> Mapping[str, str]:
        """The headers that only this server may see."""
        if self._authorization is None:
            self._authorization = requests.bearer(self.url)
        return self._authorization

    def words(self, error: urllib.error.HTTPError) -> str:
        """The server's own words on a refusal, for its message."""
        return str(error.reason)

    def get(self, key: str, cached: StoredObject | None = None, fresh: bool = False) -> StoredObject | None:
        """Read a small file, see `ObjectStore.get`; `fresh` bypasses caches in between."""
        conditions = {"If-None-Match": cached[1]} if cached and cached[1] else {}
        if fresh:
            conditions["Cache-Control"] = "no-cache"
        try:
            data, headers = self.fetch(key, conditions)
        except RefusedError as error:
            if error.status == 304 and cached:
                return cached
            if self._is_absence(error):
                return None
            raise
        if headers.get_content_type() == "text/html" and data.lstrip()[:1] == b"<":
            raise RemoteError(
                f"{self.url}/{key} is a web page", "is there a login page or a proxy in between?"
            )
        return data, requests.entity_tag(headers)

    def open(self, key: str, start: int = 0) -> BinaryIO | None:
        def begin(offset: int, tag: str) -> ObjectAnswer:
            answer = self._begin(key, offset, tag)
            return ObjectAnswer(_blocks(answer), requests.entity_tag(answer.headers), answer.close)

        def ask(attempt: Callable[[], bytes]) -> bytes:
            def translated() -> bytes:
                with self.errors(key):
                    return attempt()

            return retrying(translated)

        return ObjectStream(begin, ask, start).opened(self._is_absence)

    def _begin(self, key: str, start: int, tag: str) -> http.client.HTTPResponse:
        """Begin to receive a file from an offset on, in one answer. RemoteError if it has another `tag` than before."""
        headers = {"Range": f"bytes={start}-"} if start else {}
        answer = self.send("GET", key, headers | ({"If-Range": tag} if start and tag[:1] == '"' else {}))
        try:
            if tag and requests.entity_tag(answer.headers) not in ("", tag):
                raise RemoteError(f"{self.url}/{key} changed while it was read", "run the command again")
            if answer.status == 206:
                first, end, size = requests.content_range(answer.headers.get("Content-Range", ""))
                if first != start or size not in (None, end):
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

    def has(self, keys: Iterable[str]) -> set[str]:
        key_list = list(keys)
        present = run_parallel(self._is_there, key_list)
        return {key for key, is_present in zip(key_list, present, strict=True) if is_present}

    def _is_there(self, key: str) -> bool:
        try:
            return self.ask("HEAD", key, {}, lambda answer: True)
        except RefusedError as error:
            if self._is_absence(error):
                return False
            raise

    def _is_absence(self, error: RefusedError) -> bool:
        return error.status in ABSENT_STATUS or (error.status == 403 and self._hides_absence)

    @cached_property
    def _hides_absence(self) -> bool:
        return requests.hides_absence(lambda key: self.fetch(key, {}))

    def list(self, prefix: str) -> Iterator[TreeFile]:
        raise UnlistedError(
            f"a web server does not list what it has, so neither does {self.url}",
            "name the model, or work on the place that it is served from: there `reg index publish` makes it searchable",
        )

    def hint(self, status: int) -> str:
        """The hint for a refusal."""
        if status not in (401, 403):
            return "check the URL"
        return f"check the URL, and the server's token in {requests.variable(self.url)}"

    def fetch(
        self, key: str, headers: Mapping[str, str], limit: int = MAX_DOCUMENT_BYTES
    ) -> tuple[bytes, Message]:
        """Body, of at most `limit` bytes, and headers of an answer that grants the request."""
        url = self._url(key)
        return self.ask("GET", key, headers, lambda answer: (read_body(answer, url, limit), answer.headers))

    def ask(
        self,
        method: str,
        key: str,
        headers: Mapping[str, str],
        use: Callable[[http.client.HTTPResponse], Result],
        body: Callable[[], Any] | None = None,
        tries: bool = True,
    ) -> Result:
        """Return the result of `use` for an answer that grants the request. RefusedError for any other answer.

        `body` opens the bytes to send. After a passing failure the request is sent again, unless `tries` is False.
        """

        def attempt() -> Result:
            with self.errors(key), self.send(method, key, headers, body) as answer:
                return use(answer)

        return retrying(attempt) if tries else attempt()

    def is_own(self, key: str) -> bool:
        """True for a key, and for a URL of the same server."""
        return urlsplit(self._url(key))[:2] == urlsplit(self.url)[:2]

    def _url(self, key: str) -> str:
        return key if "://" in key else f"{self.url}/{key}"

    def send(
        self, method: str, key: str, headers: Mapping[str, str], body: Callable[[], Any] | None = None
    ) -> http.client.HTTPResponse:
        """Send a request once; its answer, which grants it, is to be closed."""
        url, data = self._url(key), body() if body else None
        request = urllib.request.Request(url, data=data, headers=dict(headers), method=method)
        if self.is_own(url):
            for name, value in self.authorization().items():
                request.add_unredirected_header(name, value)
        with self.errors(key), nullcontext() if data is None or isinstance(data, bytes) else closing(data):
            answer: http.client.HTTPResponse = self._opener.open(request, timeout=requests.timeout())
            try:
                requests.check_framing(answer.headers)
            except ValueError:
                answer.close()
                raise
            return answer

    @contextmanager
    def errors(self, key: str) -> Iterator[None]:
        """Turn what may go wrong with a request into one family of errors."""
        url = self._url(key).partition("?")[0]
        try:
            yield
        except urllib.error.HTTPError as error:
            with error:
                message = f"{url} answers {error.code} {self.words(error)}"
                raise RefusedError(message, error.code, self.hint(error.code), error.headers) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise requests.unanswered(f"reading {url} failed: {why(reason)}", error) from error
        except ValueError as error:
            raise RemoteError(
                f"{url}: the answer is malformed: {why(error)}"[:400],
                "is there a proxy in between, or is the URL wrong?",
            ) from error


def _blocks(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    while data := answer.read1(READ_BYTES):
        yield data
    if answer.length:
        raise ConnectionError(f"{answer.length:,} bytes did not arrive")


def read_body(answer: http.client.HTTPResponse, url: str, limit: int) -> bytes:
    """The whole body, read no further than `limit` bytes and one, in memory that grows with what arrives."""
    size = limit if answer.length is None else answer.length
    if size > limit:
        raise RemoteError(f"{url} has {size:,} bytes where at most {limit:,} were asked for")
    data = bytearray()
    for block in requests.timely(iter(partial(answer.read1, CHUNK_BYTES), b""), requests.deadline()):
        data += block
        if len(data) > limit:
            raise RemoteError(f"{url} has more than the {limit:,} bytes that were asked for")
    if answer.length:
        raise ConnectionError(f"{len(data):,} of {size:,} bytes arrived")
    return bytes(data)


def check_url(url: str) -> str:
    """The URL without a slash at its end. InputError if it holds credentials, or is not encrypted."""
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise InputError(
            "the URL holds credentials, which would be written to disk and shown", "leave them out"
        )
    is_place = False
    with suppress(ValueError):  # of the port
        is_place = bool(parts.hostname) and parts.port != 0 and parts.path.isascii()
    if parts.query or parts.fragment or not is_place or re.search(r"[\x00-\x20\x7f]", url):
        raise InputError(f"not the URL of a registry: {url[:80]!r}", "write https://host/path")
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise InputError("http:// shows and hands anybody on the way what is read", "write https://")
    return url.rstrip("/")


class HttpRegistry(RegistryStore):
    """The registry on a web server, which may be behind caches."""

    store: HttpStore

    def read_file(self, path: str, cached: StoredObject | None = None) -> StoredObject | None:
        return self.store.get(path, cached, fresh=cached is None)

    def read_fresh(self, name: str) -> IndexFile | None:
        """Read a model's index file past the caches in between."""
        index = self.store.get(index_path(name), fresh=True)
        return IndexFile(*index) if index else None


def http_remote(url: str, known_id: str | None = None) -> RegistryStore:
    """The registry at an `https://` URL, or at an `http://` one on this machine. For `known_id` see `RegistryStore`."""
    registry = HttpRegistry(HttpStore(url), known_id)
    registry.check_exists()
    return registry
