"""HTTP messages: JSON, bytes in memory, files piece by piece, and errors as answers; the bodies of requests.

Conditional requests and ranges follow RFC 9110, sections 13 and 14. Entity tags are strong. There is no date of
modification, so conditions on dates do not count, as in section 13.1.3. The answer to a request for several ranges is
the whole file, which section 14.2 allows: nobody can request one byte a thousand times.
"""

import asyncio
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, BinaryIO

from anyio.to_thread import run_sync
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from onnxreg.registry.log.lookup import MismatchError
from onnxreg.registry.server.settings import Limits, Settings
from onnxreg.registry.store.protocol import MissingBlobError
from onnxreg.schema.core.errors import ConflictError, IntegrityError, RegError

PIECE_BYTES = 1024 * 1024
"""Bytes of a file that are sent at a time, at first."""
MAX_PIECE_BYTES = 8 * PIECE_BYTES
"""Largest piece, for a client that takes each piece within `FAST_PIECE_SECONDS`."""
FAST_PIECE_SECONDS = 1.0
ZERO_COPY = "http.response.zerocopysend"
"""The ASGI extension by which a server sends from a file itself."""
JSON = "application/json"
HTML = "text/html"
INDIVISIBLE_TYPES = frozenset({JSON, HTML})
"""Documents without ranges: a part of one has no use."""
STATUS = {
    "input": 400,
    "not-found": 404,
    "integrity": 500,
    "conflict": 409,
    "gate": 409,
    "remote": 502,
    "environment": 503,
}
"""HTTP status of each family of errors; the others cannot happen to a reader and are 500."""
RETRY_SECONDS = 2
"""Seconds after which a client for whom there was no room may come again."""
_ENTITY_TAG = re.compile(r'(W/)?"([\x21\x23-\x7e\x80-\xff]*)"')
_RANGE_HEADER = re.compile(r"bytes=[ \t]*([0-9]{0,18})-([0-9]{0,18})[ \t]*", re.IGNORECASE)
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class RangeDecision:
    """A status (200, 206, 304, 412 or 416), and for 200 and 206 the bytes from `start` up to `stop`."""

    status: int
    start: int = 0
    stop: int = 0


def decide_range(method: str, headers: Mapping[str, str], tag: str, size: int) -> RangeDecision:
    """Decide the answer for a file of `size` bytes with the entity tag `tag`, quotes included.

    `headers`: by lower-case name; repeated headers are joined by commas.
    """
    if_match = headers.get("if-match")
    if if_match is not None and not _matches(if_match, tag, weak=False):
        return RangeDecision(412)
    if_none_match = headers.get("if-none-match")
    if if_none_match is not None and _matches(if_none_match, tag, weak=True):
        return RangeDecision(304)
    range_header = headers.get("range")
    if method == "GET" and range_header is not None and headers.get("if-range", tag).strip() == tag:
        return _read_range(range_header, size)
    return RangeDecision(200, 0, size)


class HttpError(HTTPException):
    """A request that is refused for an HTTP reason."""

    def __init__(
        self, status: int, message: str, hint: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, message, headers)
        self.hint = hint


def encode(value: Any) -> bytes:
    """A JSON document."""
    return json.dumps(value).encode() + b"\n"


def error_body(family: str, message: str, hint: str = "") -> bytes:
    """`{"error": {"family", "message", "hint"}}`, as `reg --json` writes it to stderr."""
    return encode({"error": {"family": family, "message": message, "hint": hint}})


def of_error(request: Request, error: Exception) -> Response:
    """The answer to a request that failed with an expected error."""
    assert isinstance(error, RegError)
    error = as_served(error)
    body = error_body(error.family, error.message, error.hint)
    return Response(body, STATUS.get(error.family, 500), {"Cache-Control": "no-store"}, JSON)


def as_served(error: RegError) -> RegError:
    """The error in the family that clients need: a lost blob is damage, and not a name that does not exist."""
    if isinstance(error, MissingBlobError):
        return IntegrityError(error.message, error.advice)
    if isinstance(error, MismatchError):
        return ConflictError(error.message, error.advice)
    return error


def of_http_error(request: Request, error: Exception) -> Response:
    """The answer to a request that HTTP forbids; the router's own 404 and 405 come here too."""
    assert isinstance(error, HTTPException)
    family = {404: "not-found", 500: "internal", 503: "environment"}.get(error.status_code, "input")
    if isinstance(error, HttpError):
        message, hint = error.detail, error.hint
    else:
        message = f"{request.method} {request.scope['path'][:200]}: {error.detail.lower()}"
        hint = "GET /openapi.json says what there is"
    headers = {"Cache-Control": "no-store", **(error.headers or {})}
    return Response(error_body(family, message, hint), error.status_code, headers, JSON)


def of_bug(request: Request, error: Exception) -> Response:
    """The answer after a bug; its traceback goes to the log."""
    return Response(
        error_body("internal", "internal error", "the server's log has the cause"), 500, None, JSON
    )


def of_json(request: Request, value: Any) -> Response:
    """A JSON document with an entity tag."""
    return of_bytes(request, encode(value), JSON, "no-cache")


def of_bytes(
    request: Request, data: bytes, media_type: str, caching: str, tag: str | None = None
) -> Response:
    """Answer with bytes in memory, or the requested part or status. `tag`: their digest, if known."""
    quoted = f'"{tag or sha256(data).hexdigest()}"'
    outcome = _range_of(request, quoted, len(data), parts=media_type not in INDIVISIBLE_TYPES)
    headers = _headers(outcome, quoted, len(data), caching, parts=media_type not in INDIVISIBLE_TYPES)
    body = data[outcome.start : outcome.stop]
    return _refusal(outcome, headers) or Response(body, outcome.status, headers, media_type)


def of_file(request: Request, file: BinaryIO, size: int, tag: str, caching: str) -> Response:
    """Answer with a file, or the requested part or status. Closes the file in the end."""
    outcome = _range_of(request, f'"{tag}"', size)
    headers = _headers(outcome, f'"{tag}"', size, caching)
    refusal = _refusal(outcome, headers)
    if refusal is not None:
        file.close()
        return refusal
    return FileAnswer(file, outcome, headers)


class FileAnswer(Response):
    """Part of an open file, sent by the server itself if it can, else read piece by piece in a thread."""

    media_type = "application/octet-stream"

    def __init__(self, file: BinaryIO, outcome: RangeDecision, headers: dict[str, str]) -> None:
        length = {"Content-Length": str(outcome.stop - outcome.start)}
        super().__init__(None, outcome.status, {**headers, **length})
        self._file = file
        self._start = outcome.start
        self._stop = outcome.stop

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file:
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            if scope["method"] == "HEAD" or self._start == self._stop:
                await send({"type": "http.response.body"})
            elif ZERO_COPY in scope.get("extensions", {}):
                await self._send_zero_copy(send)
            else:
                await self._send_read(send)

    async def _send_zero_copy(self, send: Send) -> None:
        """Pieces grow while the client takes them quickly: the fewer there are, the less each byte costs."""
        start, count = self._start, PIECE_BYTES
        while start < self._stop:
            began, count = time.monotonic(), min(count, self._stop - start)
            more = start + count < self._stop
            await send(
                {"type": ZERO_COPY, "file": self._file, "offset": start, "count": count, "more_body": more}
            )
            start += count
            count = (
                min(2 * count, MAX_PIECE_BYTES)
                if time.monotonic() - began < FAST_PIECE_SECONDS
                else PIECE_BYTES
            )

    async def _send_read(self, send: Send) -> None:
        self._file.seek(self._start)
        remaining = self._stop - self._start
        while remaining:
            data = await run_sync(self._file.read, min(PIECE_BYTES, remaining))
            if not data:
                raise OSError("a file became shorter while it was sent")
            remaining -= len(data)
            await send({"type": "http.response.body", "body": data, "more_body": remaining > 0})


def base_url(request: Request, settings: Settings) -> str:
    """The base URL for clients: the one of the operator, else that of this request. HttpError for a bad Host."""
    if settings.url is not None:
        return settings.url
    host = request.headers.get("host", "")
    if not _HOST.fullmatch(host):
        raise HttpError(400, "the Host header is missing or malformed", "name the server as the URL does")
    return f"{request.scope['scheme']}://{host}"


async def read_body(request: Request, limits: Limits) -> bytes:
    """Read the body of a request, within the limits of size and time."""
    body = bytearray()
    refused = HttpError(413, f"the body has more than {limits.body:,} bytes", headers={"Connection": "close"})
    if int(request.headers.get("content-length", "0")) > limits.body:
        raise refused
    try:
        async with asyncio.timeout(limits.asking):
            async for part in request.stream():
                body += part
                if len(body) > limits.body:
                    raise refused
    except TimeoutError:
        slow = f"the body did not arrive within {limits.asking:g} seconds"
        raise HttpError(408, slow, headers={"Connection": "close"}) from None
    return bytes(body)


def _matches(condition: str, tag: str, weak: bool) -> bool:
    """Check if the condition lists the tag; a weak tag in the list counts only for weak comparison."""
    if condition.strip() == "*":
        return True
    opaque = tag.strip('"')
    return any(match[2] == opaque and (weak or not match[1]) for match in _ENTITY_TAG.finditer(condition))


def _read_range(range_header: str, size: int) -> RangeDecision:
    match = _RANGE_HEADER.fullmatch(range_header)
    if match is None or not (match[1] or match[2]):
        return RangeDecision(200, 0, size)
    if not match[1]:
        start, stop = max(0, size - int(match[2])), size
    elif match[2] and int(match[2]) < int(match[1]):
        return RangeDecision(200, 0, size)
    else:
        start = int(match[1])
        stop = min(size, int(match[2]) + 1) if match[2] else size
    return RangeDecision(206, start, stop) if start < stop else RangeDecision(416)


def _range_of(request: Request, tag: str, size: int, parts: bool = True) -> RangeDecision:
    fields: dict[str, str] = {}
    for name, value in request.headers.items():
        if parts or name != "range":
            fields[name] = f"{fields[name]}, {value}" if name in fields else value
    return decide_range(request.method, fields, tag, size)


def _headers(outcome: RangeDecision, tag: str, size: int, caching: str, parts: bool = True) -> dict[str, str]:
    headers = {"ETag": tag, "Cache-Control": caching, **({"Accept-Ranges": "bytes"} if parts else {})}
    if outcome.status == 206:
        headers["Content-Range"] = f"bytes {outcome.start}-{outcome.stop - 1}/{size}"
    elif outcome.status == 416:
        headers["Content-Range"] = f"bytes */{size}"
    return headers


def _refusal(outcome: RangeDecision, headers: dict[str, str]) -> Response | None:
    """The answer without content, if the decision is one."""
    if outcome.status == 304:
        return Response(None, 304, headers)
    if outcome.status in (412, 416):
        message = "the condition does not hold" if outcome.status == 412 else "there is no such range"
        return Response(
            error_body("input", message), outcome.status, {**headers, "Cache-Control": "no-store"}, JSON
        )
    return None
