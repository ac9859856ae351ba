"""Make HTTP responses from JSON, bytes, files and errors, and read the bodies of requests.

A request may have one range (RFC 9110, section 14). For several ranges, the answer is the whole file. Starlette's
`FileResponse` is not used: it follows links, and its tags depend on times.
"""

import json
import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from os import fstat
from typing import Any, BinaryIO

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from onnxreg.registry.log.log import MismatchError
from onnxreg.registry.server.settings import Settings
from onnxreg.registry.store.protocol import MissingBlobError
from onnxreg.schema.core.errors import ConflictError, HostError, IntegrityError, RegError

JSON, HTML = "application/json", "text/html"
REVALIDATE = "no-cache"
NO_STORE = {"Cache-Control": "no-store"}
PIECE_BYTES = 1024 * 1024
STATUS = {
    "input": 400,
    "not-found": 404,
    "integrity": 500,
    "conflict": 409,
    "gate": 409,
    "remote": 502,
    "environment": 503,
}
"""The HTTP status for each family of errors. Other families, which no client can cause, get 500."""
_RANGE = re.compile(r"bytes=[ \t]*([0-9]{0,18})-([0-9]{0,18})[ \t]*", re.IGNORECASE)
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:[0-9]{1,5})?")


class HttpError(HTTPException):
    def __init__(self, status: int, message: str, hint: str = "", headers: Mapping[str, str] = {}) -> None:
        super().__init__(status, message, headers)
        self.hint = hint


def encode(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


def error_answer(
    status: int, family: str, message: str, hint: str = "", headers: Mapping[str, str] | None = None
) -> Response:
    """Return a response with `{"error": {"family", "message", "hint"}}`, as `reg --json` writes it to stderr."""
    body = encode({"error": {"family": family, "message": message, "hint": hint}})
    return Response(body, status, {**NO_STORE, **(headers or {})}, JSON)


def as_served(error: RegError) -> RegError:
    """Rewrite an error for a client. A lost blob is an IntegrityError. A hint to run a command of `reg` is removed."""
    if isinstance(error, MissingBlobError):
        error = IntegrityError(error.message, error.hint)
    elif isinstance(error, MismatchError):
        error = ConflictError(error.message, error.hint)
    if isinstance(error, HostError) or re.search(r"\breg [a-z]", error.hint):
        error.hint = "tell those who run this server" if STATUS.get(error.family, 500) >= 500 else ""
    return error


def of_error(request: Request, error: Exception) -> Response:
    """Return the response to a request that failed. If a bug is the cause, only the log has the details."""
    if isinstance(error, RegError):
        error = as_served(error)
        return error_answer(STATUS.get(error.family, 500), error.family, error.message, error.hint)
    if isinstance(error, HTTPException):
        family = {404: "not-found", 503: "environment"}.get(error.status_code, "input")
        message = f"{request.method} {request.scope['path'][:200]}: {error.detail.lower()}"
        hint = "see /openapi.json"
        if isinstance(error, HttpError):
            message, hint = error.detail, error.hint
        return error_answer(error.status_code, family, message, hint, error.headers)
    return error_answer(500, "internal", "internal error", "the server's log has the cause")


def of_bytes(
    request: Request,
    data: bytes,
    media_type: str,
    caching: str = REVALIDATE,
    tag: str | None = None,
    ranges: bool = False,
) -> Response:
    """Answer with `data`, or with status 304 if the client has it already. `tag` is the entity tag."""
    headers = {"ETag": f'"{tag or sha256(data).hexdigest()}"', "Cache-Control": caching}
    if _is_unchanged(request, headers):
        return Response(None, 304, headers)
    status, span = _select_range(request, headers, len(data)) if ranges else (200, range(len(data)))
    return Response(data[span.start : span.stop], status, headers, media_type)


def of_file(request: Request, file: BinaryIO, tag: str, caching: str) -> Response:
    """Answer with an open file, or with the range of it that the request names. The response closes the file.

    Do not `await` between opening the file and this call: if the request ended there, the file would stay open.
    """
    headers = {"ETag": f'"{tag}"', "Cache-Control": caching}
    try:
        if _is_unchanged(request, headers):
            file.close()
            return Response(None, 304, headers)
        status, span = _select_range(request, headers, fstat(file.fileno()).st_size)
    except HttpError:
        file.close()
        raise
    headers["Content-Length"] = str(len(span))
    return FileAnswer(file, range(0) if request.method == "HEAD" else span, status, headers)


class FileAnswer(StreamingResponse):
    """A response that sends the range `span` of an open file, and then closes the file."""

    def __init__(self, file: BinaryIO, span: range, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(_pieces(file, span), status, headers, "application/octet-stream")
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file:
            await super().__call__(scope, receive, send)


def _pieces(file: BinaryIO, span: range) -> Iterator[bytes]:
    file.seek(span.start)
    while span:
        data = file.read(min(PIECE_BYTES, len(span)))
        if not data:
            raise OSError("a file became shorter while it was sent")
        span = span[len(data) :]
        yield data


def _is_unchanged(request: Request, headers: Mapping[str, str]) -> bool:
    """True if If-None-Match lists the entity tag of the answer (weak comparison, RFC 9110, section 13.1.2)."""
    condition = request.headers.get("if-none-match", "")
    return condition.strip() == "*" or headers["ETag"] in re.findall(r'"[^"]*"', condition)


def _select_range(request: Request, headers: dict[str, str], size: int) -> tuple[int, range]:
    """Return the status and the byte range of an answer, and add headers about ranges. A GET request with one valid
    range gets 206, unless its If-Range names another entity tag. Raise HttpError 416 for a range beyond `size`.
    """
    headers["Accept-Ranges"] = "bytes"
    match = _RANGE.fullmatch(request.headers.get("range", ""))
    if request.method != "GET" or match is None or not (match[1] or match[2]):
        return 200, range(size)
    is_same = request.headers.get("if-range", headers["ETag"]).strip() == headers["ETag"]
    if not is_same or (match[1] and match[2] and int(match[2]) < int(match[1])):
        return 200, range(size)
    start = int(match[1]) if match[1] else max(0, size - int(match[2]))
    stop = min(size, int(match[2]) + 1) if match[1] and match[2] else size
    if start >= stop:
        raise HttpError(416, "there is no such range", headers={"Content-Range": f"bytes */{size}"})
    headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    return 206, range(start, stop)


def base_url(request: Request, settings: Settings) -> str:
    """Return the base URL, from the settings or the request. Raises HttpError if the Host header is wrong."""
    if settings.url is not None:
        return settings.url
    host = request.headers.get("host", "")
    if not _HOST.fullmatch(host):
        raise HttpError(400, "the Host header is missing or malformed", "name the server as the URL does")
    return f"{request.scope['scheme']}://{host}"


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Read the body of a request. If it exceeds `max_bytes`, raise HttpError 413, which closes the connection."""
    refusal = HttpError(413, f"the body has more than {max_bytes:,} bytes", headers={"Connection": "close"})
    if int(request.headers.get("content-length", "0")) > max_bytes:
        raise refusal
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > max_bytes:
            raise refusal
    return bytes(body)
