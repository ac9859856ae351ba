"""Requests over HTTP: the URL by which a client knows the server, and bodies of at most so many bytes."""

import asyncio
import re

from starlette.requests import Request

from onnxreg.registry.server.http.responses import HttpError
from onnxreg.registry.server.settings import Limits, Settings

_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:[0-9]{1,5})?")


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
