"""Send requests to web servers, and read registries on a static web server or CDN, which cannot be written.

A server may be silent for `REG_READ_TIMEOUT` seconds, and one file may take `REG_READ_DEADLINE` seconds. If a server
asks for a pause (`Retry-After` or `RateLimit`), the next try waits.

These redirects are refused: from TLS to plain HTTP, from the internet into a private network or to this machine, to
schemes other than HTTP, and to a URL with a user name. Messages omit the query of a URL, since a signed URL has a
secret in it. The bearer token in `REG_TOKEN_<HOST>` goes to that host only, over TLS or on this machine.
"""

import io
import os
import random
import re
import secrets
import socket
import ssl
import string
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from email.message import Message
from email.utils import parsedate_to_datetime
from functools import cached_property, partial
from http.client import HTTPException, HTTPMessage, HTTPResponse
from ipaddress import ip_address
from typing import IO, Any, BinaryIO, NamedTuple, TypeVar, cast
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from onnxreg.registry import system
from onnxreg.registry.store.protocol import ReadOnlyStore, StoredObject, TreeFile, UnlistedError
from onnxreg.registry.store.streams import CHUNK_BYTES, BlockStream
from onnxreg.schema.core.bounds import MAX_DOCUMENT_BYTES
from onnxreg.schema.core.errors import InputError, RemoteError, why

LIMITS = {"REG_READ_TIMEOUT": 60.0, "REG_READ_DEADLINE": 86_400.0}
MAX_TRIES, MAX_SILENT_TRIES = 8, 2
"""Maximum number of tries of a request. After `MAX_SILENT_TRIES` tries without any answer, no more are made."""
FIRST_WAIT_SECONDS, MAX_WAIT_SECONDS = 0.1, 5.0
"""The wait after try n is random, from 0 to min(FIRST_WAIT_SECONDS * 2**n, MAX_WAIT_SECONDS)."""
MAX_PAUSE_SECONDS = 300
"""If a server asks for a longer pause, the request fails, and the error says when the pause ends."""
PASSING_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
READ_BYTES = 2**16
ABSENT_STATUS = frozenset({404, 410})
Result = TypeVar("Result")
Body = Callable[[], Any] | None
"""A function that opens the body of a request, or None for a request without a body."""


class RefusedError(RemoteError):
    """The server refused the request. `reason` is the service's error code, or "" if the answer has no code."""

    def __init__(
        self, message: str, status: int, hint: str, headers: Message | None = None, reason: str = ""
    ) -> None:
        self.headers = headers or Message()
        self.pause = pause_seconds(self.headers)
        super().__init__(message, later(self.pause) if status in PASSING_STATUS else hint)
        self.status = status
        self.reason = reason


class UnansweredError(RemoteError):
    """The server sent no answer, or an unreadable one. It may still have carried out the request."""


def unanswered(message: str, error: BaseException) -> RemoteError:
    """Return the error of a request without an answer: UnansweredError if another try may succeed, else RemoteError."""
    if is_final(error):
        return RemoteError(message, f"check the certificate (SSL_CERT_FILE) and {proxy_variables()}")
    return UnansweredError(message, "check the network and the URL")


def is_final(error: BaseException) -> bool:
    """True if further tries are useless: TLS or a certificate failed, or a proxy refused the request."""
    return any(
        isinstance(cause, FileNotFoundError | ssl.SSLCertVerificationError)
        or (type(cause) is ssl.SSLError and "MAC" not in str(cause.reason))
        or "Tunnel connection failed: 4" in str(cause)
        for cause in _causes(error)
    )


def hides_absence(read: Callable[[str], object]) -> bool:
    """True if `read` can read registry.json, but gets 403 instead of 404 for a file that does not exist."""

    def status(key: str) -> int:
        try:
            read(key)
        except RefusedError as error:
            return error.status
        return 200

    return status("registry.json") == 200 and status(f"absent-{secrets.token_hex(8)}") == 403


def is_passing(error: Exception) -> bool:
    """True if another try may succeed after this error of a request."""
    return isinstance(error, UnansweredError) or getattr(error, "status", None) in PASSING_STATUS


def retrying(
    attempt: Callable[[], Result],
    passing: Callable[[Exception], bool] = is_passing,
) -> Result:
    """Call `attempt` and return its result. If `passing(error)` is true, try again, up to `MAX_TRIES` times in all.

    Between two tries, wait at least for the pause that the server asked for, such as 30 seconds. If it asked for more
    than `MAX_PAUSE_SECONDS`, raise the error.
    """
    silent = 0
    for number in range(1, MAX_TRIES):
        try:
            return attempt()
        except Exception as error:
            silent += any(isinstance(cause, TimeoutError) for cause in _causes(error))
            least = getattr(error, "pause", 0.0)
            if silent >= MAX_SILENT_TRIES or not passing(error) or least > MAX_PAUSE_SECONDS:
                raise
            system.sleep(least + random.uniform(0, min(MAX_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2**number)))
    return attempt()


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    for _ in range(10):
        if cause is None:
            return
        yield cause
        reason = getattr(cause, "reason", None)
        cause = reason if isinstance(reason, BaseException) else cause.__cause__ or cause.__context__


def setting(name: str) -> float:
    """Return a limit in seconds. In the environment, 0 means infinity. Raises InputError for anything but a number."""
    text = system.variable(name) or ""
    try:
        value = float(text) if text else LIMITS[name]
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise InputError(f"{name} is {text[:40]!r}", "set it to a number; 0 means no limit")
    return value or float("inf")


def timeout() -> float | None:
    """Return the seconds after which a silent server is given up, or None if there is no limit."""
    limit = setting("REG_READ_TIMEOUT")
    return limit if limit < float("inf") else None


def deadline() -> float:
    """Return the time of `time.monotonic` by which a read that begins now must end."""
    return time.monotonic() + setting("REG_READ_DEADLINE")


def timed_blocks(blocks: Iterable[bytes], end: float) -> Iterator[bytes]:
    """Yield the blocks of an answer. Raises RemoteError if a block comes after the time `end` (see `deadline`)."""
    for block in blocks:
        system.check_stop()
        if time.monotonic() > end:
            raise RemoteError("the file took longer than REG_READ_DEADLINE", "is the server that slow?")
        yield block


def join_blocks(blocks: Iterable[bytes], label: str, limit: int) -> bytes:
    """Join the blocks of an answer. Raises RemoteError if they exceed `limit` bytes, or come after the `deadline`."""
    data = bytearray()
    for block in timed_blocks(blocks, deadline()):
        data += block
        if len(data) > limit:
            raise RemoteError(f"{label} has more than {limit:,} bytes")
    return bytes(data)


class ObjectAnswer(NamedTuple):
    """The bytes of an object from an offset on, in blocks. `tag` is the object's ETag, or "" if it is unknown."""

    blocks: Iterator[bytes]
    tag: str
    close: Callable[[], object] = lambda: None


class Download:
    """Reads an object from the offset `start` on. If the connection breaks, it requests the rest.

    `begin(offset, tag)` requests the bytes from `offset` on. The request fails if `tag` is not "" and the object has
    another ETag. `errors` makes a context that translates errors. If `passing(error)` is true, the request is repeated.
    """

    def __init__(
        self,
        begin: Callable[[int, str], ObjectAnswer],
        errors: Callable[[], AbstractContextManager[None]],
        start: int,
        passing: Callable[[Exception], bool] = is_passing,
    ) -> None:
        self._begin, self._errors, self._offset, self._passing = begin, errors, start, passing
        self._end = deadline()
        self._answer: ObjectAnswer | None = None
        self._tag = ""

    def open(self, is_absence: Callable[[RefusedError], bool]) -> BinaryIO | None:
        """Request the object and return its stream, or None if `is_absence` is true for the server's refusal."""
        try:
            self._advance(lambda answer: b"")
        except RefusedError as error:
            if is_absence(error):
                return None
            if error.status != 416:
                raise
            return io.BytesIO(b"")
        return cast(BinaryIO, io.BufferedReader(BlockStream(self._next_block, self._close), READ_BYTES))

    def _next_block(self) -> bytes:
        block = self._advance(lambda answer: next(timed_blocks(answer.blocks, self._end), b""))
        self._offset += len(block)
        return block

    def _advance(self, read: Callable[[ObjectAnswer], bytes]) -> bytes:
        def attempt() -> bytes:
            try:
                with self._errors():
                    if self._answer is None:
                        self._answer = self._begin(self._offset, self._tag)
                        self._tag = self._answer.tag
                    return read(self._answer)
            except BaseException:
                self._close()
                raise

        return retrying(attempt, self._passing)

    def _close(self) -> None:
        if self._answer is not None:
            self._answer.close()
        self._answer = None


MAX_HOPS = 10


def next_url(url: str, location: str | None) -> str:
    """Return the URL to which `url` is redirected. Raises RemoteError if the redirect must not be followed."""
    source = urlsplit(url)
    try:
        encoded = quote(location or "", encoding="iso-8859-1", safe=string.punctuation)
        destination = urlsplit(urljoin(url, encoded))
        port = destination.port
    except ValueError:
        raise _refused(source, "to a malformed URL") from None
    if not location or not destination.hostname or (port is not None and not port):
        raise _refused(source, "without a URL to go on to")
    if destination.scheme not in ("http", "https"):
        raise _refused(source, f"to a {destination.scheme[:20]}: URL")
    if destination.username is not None or destination.password is not None:
        raise _refused(source, "to a URL with credentials in it")
    if destination.scheme == "http" and (source.scheme == "https" or not is_loopback(destination.hostname)):
        raise _refused(source, f"to plain http:// at {destination.hostname}")
    if not is_private(destination.hostname) or is_private(source.hostname or ""):
        return destination.geturl()
    raise _refused(source, f"into a private network, to {destination.hostname}")


def _refused(source: SplitResult, reason: str) -> RemoteError:
    source_text = f"{source.scheme}://{source.netloc.rpartition('@')[2]}{source.path}"
    return RemoteError(f"{source_text} redirects {reason}", "this is not followed; check the URL")


def proxy_variables() -> str:
    names = [name for name, value in os.environ.items() if value and name.lower().endswith("_proxy")]
    return ", ".join(sorted(name for name in names if name.lower() != "no_proxy")) or "the proxy"


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_private(host: str) -> bool:
    """True if a host is in a private network or is this machine. False if the host's name cannot be resolved."""
    try:
        addresses = {str(item[4][0]) for item in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return False
    parsed = [ip_address(address.partition("%")[0]) for address in addresses]
    return any(not (getattr(item, "ipv4_mapped", None) or item).is_global for item in parsed)


_RANGE = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19}|\*)")
_TAG = re.compile(r'(W/)?"[\x21\x23-\x7e]{0,1000}"')
_LENGTH = re.compile(r"[0-9]{1,19}")


def content_range(text: str) -> tuple[int, int, int | None]:
    """Parse `bytes FIRST-LAST/SIZE`. Return the first byte, the end (LAST + 1) and the size (None for `*`)."""
    match = _RANGE.fullmatch(text)
    first, last = (int(match[1]), int(match[2])) if match else (1, 0)
    size = int(match[3]) if match and match[3] != "*" else None
    if not first <= last < (last + 1 if size is None else size):
        raise ValueError(f"Content-Range is {text[:60]!r}")
    return first, last + 1, size


def entity_tag(headers: Mapping[str, str] | Message) -> str:
    """Return the ETag of an answer, or "" if it is absent or malformed."""
    text = headers.get("ETag") or ""
    return text if _TAG.fullmatch(text) else ""


def check_framing(headers: Message) -> None:
    """Raise ValueError if the headers state several lengths, or a compression. Compression is never requested."""
    lengths = {part.strip() for value in headers.get_all("Content-Length", ()) for part in value.split(",")}
    if len(lengths) > 1 or not all(map(_LENGTH.fullmatch, lengths)):
        raise ValueError(f"Content-Length is {', '.join(sorted(lengths))[:60]!r}")
    packed = headers.get("Content-Encoding", "identity").strip().lower()
    if packed not in ("", "identity"):
        raise ValueError(f"Content-Encoding is {packed[:20]!r}, which was not asked for")


_NO_QUOTA = re.compile(r"\b(?:r|remaining)=0\b.*\b(?:t|reset)=([0-9]{1,9})\b")
"""The pattern of a `RateLimit` header with no requests left, in the newest and older drafts of the standard."""


def pause_seconds(headers: Mapping[str, str] | Message) -> float:
    """Return the seconds for which the server asks the client to pause, or 0 if it asks for no pause."""
    fields = {name.lower(): str(value).strip() for name, value in headers.items()}
    retry_after = fields.get("retry-after", "")
    if re.fullmatch(r"[0-9]{1,9}", retry_after):
        return int(retry_after)
    with suppress(ValueError, OverflowError):
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    quota = _NO_QUOTA.search(fields.get("ratelimit", ""))
    return int(quota[1]) if quota else 0.0


def later(pause: float) -> str:
    if not pause:
        return "run the command again later"
    moment = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(time.time() + pause))
    return f"the server wants no requests until {moment}; run the command again then"


_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750


def variable(url: str) -> str:
    """Return the variable for a host's token, such as `REG_TOKEN_MY__HOST_ORG_8443` for `my-host.org:8443`."""
    host = urlsplit(url).netloc.upper()
    return system.TOKEN_PREFIX + re.sub(r"[^A-Z0-9_]", "_", host.replace("-", "__"))


def bearer(url: str) -> dict[str, str]:
    """Return the Authorization header for a URL, or {} without a token. Raises InputError for a malformed token."""
    name = variable(url)
    token = (system.variable(name) or "").strip()
    if not token:
        return {}
    if not _TOKEN.fullmatch(token):
        raise InputError(f"{name} holds no bearer token", "it has only letters, digits and -._~+/=")
    return {"Authorization": f"Bearer {token}"}


class SameOrigin(urllib.request.HTTPRedirectHandler):
    """Follows redirects that `next_url` permits. The token is sent only if a redirect stays on the same server."""

    def http_error_302(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage
    ) -> Any:
        hops: int = getattr(req, "hops", 0)
        try:
            if hops >= MAX_HOPS:
                raise _refused(urlsplit(req.full_url), f"more than {MAX_HOPS} times")
            url = next_url(req.full_url, headers.get("Location"))
        except RemoteError:
            fp.close()
            raise
        redirected: Any = self.redirect_request(req, fp, code, msg, headers, url)  # this may read fp
        fp.close()
        redirected.hops = hops + 1
        redirected.remove_header("Proxy-authorization")  # the next host may need no proxy
        token: Any = req.unredirected_hdrs.get("Authorization")
        if token and _origin(redirected.full_url) == _origin(req.full_url):
            redirected.add_unredirected_header("Authorization", token)
        return self.parent.open(redirected, timeout=req.timeout)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


class HttpStore(ReadOnlyStore):
    """A read-only `ObjectStore` on a web server. A key is a path below `url`, or a URL that the server sent.

    Subclasses for services with their own API (OCI, the Hub) override `authorization`, `hint` and `refusal_text`.
    """

    description = "a registry on a web server"
    instead = "write to the place that it is served from"

    def __init__(self, url: str, authorization: Mapping[str, str] | None = None) -> None:
        """Make the store of a URL. Only this server gets the headers `authorization` (default: its bearer token)."""
        self.url = check_url(url)
        self._authorization = authorization

    @cached_property
    def _opener(self) -> urllib.request.OpenerDirector:
        # no proxy to this machine: it would see the token
        direct = [urllib.request.ProxyHandler({})] if self.url.startswith("http:") else []
        return urllib.request.build_opener(SameOrigin, *direct)

    def authorization(self) -> Mapping[str, str]:
        if self._authorization is None:
            self._authorization = bearer(self.url)
        return self._authorization

    def refusal_text(self, error: urllib.error.HTTPError) -> str:
        """Return the server's explanation of a refusal, for the error message."""
        return str(error.reason)

    def get(self, key: str, cached: StoredObject | None = None) -> StoredObject | None:
        no_copy = {"Cache-Control": "no-cache"}  # from a web cache, which may be old
        try:
            data, headers = self.fetch(
                key, {"If-None-Match": cached.token} if cached and cached.token else no_copy
            )
        except RefusedError as error:
            if error.status == 304 and cached:
                return cached
            if self._is_absence(error):
                return None
            raise
        if headers.get_content_type() == "text/html" and data.lstrip()[:1] == b"<":
            raise RemoteError(f"{self.url}/{key} is a web page", "is there a login or a proxy in between?")
        return StoredObject(data, entity_tag(headers))

    def open(self, key: str, start: int = 0) -> BinaryIO | None:
        def begin(offset: int, tag: str) -> ObjectAnswer:
            answer = self._begin(key, offset, tag)
            return ObjectAnswer(_blocks(answer), entity_tag(answer.headers), answer.close)

        return Download(begin, partial(self.errors, key), start).open(self._is_absence)

    def _begin(self, key: str, start: int, tag: str) -> HTTPResponse:
        headers = {"Range": f"bytes={start}-"} if start else {}
        answer = self.send("GET", key, headers | ({"If-Range": tag} if start and tag[:1] == '"' else {}))
        try:
            if tag and entity_tag(answer.headers) not in ("", tag):
                raise RemoteError(f"{self.url}/{key} changed while it was read", "run the command again")
            if answer.status == 206:
                first, end, size = content_range(answer.headers.get("Content-Range", ""))
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

    def exists(self, key: str) -> bool:
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
        return hides_absence(lambda key: self.fetch(key, {}))

    def list(self, prefix: str) -> Iterator[TreeFile]:
        raise UnlistedError(
            f"a web server does not list what it has, so neither does {self.url}",
            "name the model, or work on the place that it is served from: there `reg index publish` makes it searchable",
        )

    def hint(self, status: int) -> str:
        if status not in (401, 403):
            return "check the URL"
        return f"check the URL, and the server's token in {variable(self.url)}"

    def fetch(
        self, key: str, headers: Mapping[str, str], limit: int = MAX_DOCUMENT_BYTES
    ) -> tuple[bytes, Message]:
        """Request a file. Return its bytes and headers. Raises RemoteError if it has more than `limit` bytes."""
        url = self._url(key)
        return self.ask("GET", key, headers, lambda answer: (read_body(answer, url, limit), answer.headers))

    def ask(
        self,
        method: str,
        key: str,
        headers: Mapping[str, str],
        use: Callable[[HTTPResponse], Result],
        body: Body = None,
        tries: bool = True,
    ) -> Result:
        """Send a request and return `use(answer)`. If `tries` is set, repeat the request after failures.

        Raises RefusedError if the server refuses the request.
        """

        def attempt() -> Result:
            with self.errors(key), self.send(method, key, headers, body) as answer:
                return use(answer)

        return retrying(attempt) if tries else attempt()

    def is_own(self, key: str) -> bool:
        """True if the key is a path, or a URL on this server."""
        return urlsplit(self._url(key))[:2] == urlsplit(self.url)[:2]

    def _url(self, key: str) -> str:
        return key if "://" in key else f"{self.url}/{key}"

    def send(self, method: str, key: str, headers: Mapping[str, str], body: Body = None) -> HTTPResponse:
        """Send a request once. Return the successful answer, which the caller must close. `body` opens the body."""
        url, data = self._url(key), body() if body else None
        request = urllib.request.Request(url, data=data, headers=dict(headers), method=method)
        if self.is_own(url):
            for name, value in self.authorization().items():
                request.add_unredirected_header(name, value)
        with self.errors(key), nullcontext() if data is None or isinstance(data, bytes) else closing(data):
            answer: HTTPResponse = self._opener.open(request, timeout=timeout())
            try:
                check_framing(answer.headers)
            except ValueError:
                answer.close()
                raise
            return answer

    @contextmanager
    def errors(self, key: str) -> Iterator[None]:
        """A context that turns the errors of a request for `key` into RemoteErrors."""
        url = self._url(key).partition("?")[0]
        try:
            yield
        except urllib.error.HTTPError as error:
            with error:
                message = f"{url} answers {error.code} {self.refusal_text(error)}"
                raise RefusedError(message, error.code, self.hint(error.code), error.headers) from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise unanswered(f"reading {url} failed: {why(reason)}", error) from error
        except ValueError as error:
            hint = "is there a proxy in between, or is the URL wrong?"
            raise RemoteError(f"{url}: the answer is malformed: {why(error)}"[:400], hint) from error


def _blocks(answer: HTTPResponse) -> Iterator[bytes]:
    while data := answer.read1(READ_BYTES):
        yield data
    if answer.length:
        raise ConnectionError(f"{answer.length:,} bytes did not arrive")


def read_body(answer: HTTPResponse, url: str, limit: int) -> bytes:
    """Read a whole body. Raises RemoteError if it has more than `limit` bytes."""
    size = limit if answer.length is None else answer.length
    if size > limit:
        raise RemoteError(f"{url} has {size:,} bytes where at most {limit:,} were asked for")
    data = join_blocks(iter(partial(answer.read1, CHUNK_BYTES), b""), url, limit)
    if answer.length:
        raise ConnectionError(f"{len(data):,} of {size:,} bytes arrived")
    return data


def check_url(url: str) -> str:
    """Return a URL without slashes at its end. Raises InputError if it is malformed, unencrypted or has credentials."""
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise InputError("the URL holds credentials, which would be stored and shown", "leave them out")
    is_place = False
    with suppress(ValueError):  # `port` raises it
        is_place = bool(parts.hostname) and parts.port != 0 and parts.path.isascii()
    if parts.query or parts.fragment or not is_place or re.search(r"[\x00-\x20\x7f]", url):
        raise InputError(f"not the URL of a registry: {url[:80]!r}", "write https://host/path")
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise InputError("http:// shows and hands anybody on the way what is read", "write https://")
    return url.rstrip("/")
