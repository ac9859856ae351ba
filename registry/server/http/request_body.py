"""The body of a request, within the limits of the server."""

import asyncio

from starlette.requests import Request

from onnxreg.registry.server.http.responses import HttpError
from onnxreg.registry.server.settings import Limits


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
