"""Bearer token: if the server has one, every request needs it, except `/healthz`."""

import hmac
from hashlib import sha256

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from onnxreg.registry.server.http.responses import JSON, error_body

OPEN_PATHS = frozenset({"/healthz"})


class TokenGuard:
    """An application behind a token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = sha256(token.encode()).digest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if scope["type"] == "http" and len(headers.getlist("authorization")) > 1:
            await _ambiguous(scope, receive, send)
            return
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or self._is_authorized(headers):
            await self._app(scope, receive, send)
            return
        body = error_body("input", "this registry is read with a token", "send Authorization: Bearer TOKEN")
        fields = {"WWW-Authenticate": 'Bearer realm="registry"', "Cache-Control": "no-store"}
        await Response(body, 401, fields, JSON)(scope, receive, send)

    def _is_authorized(self, headers: Headers) -> bool:
        """Compare the token of the request in constant time."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        same = hmac.compare_digest(sha256(token.strip().encode("latin-1")).digest(), self._token)
        return scheme.lower() == "bearer" and same


async def _ambiguous(scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse a request with several tokens: a proxy in front may have checked another one."""
    body = error_body("input", "the request has more than one Authorization header", "send one")
    await Response(body, 400, {"Cache-Control": "no-store"}, JSON)(scope, receive, send)
