"""The ASGI application: all routes of one registry, with the middleware that guards and observes them."""

import hmac
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from onnxreg.registry.server import openapi
from onnxreg.registry.server.api import Api
from onnxreg.registry.server.http import messages
from onnxreg.registry.server.http.messages import JSON, error_body
from onnxreg.registry.server.http.tree_routes import IndexAnswers, TreeRoutes
from onnxreg.registry.server.hub_routes import HUB_HEADERS, HubRoutes
from onnxreg.registry.server.observability import MEDIA_TYPE, Log, Metrics, RequestObserver
from onnxreg.registry.server.pages.pages import Pages
from onnxreg.registry.server.served_registry import ServedRegistry
from onnxreg.registry.server.settings import Limits, Settings
from onnxreg.schema.core.errors import RegError

REQUEST_HEADERS = ("Authorization", "Content-Type", "If-Match", "If-None-Match", "If-Range", "Range")
RESPONSE_HEADERS = ("Accept-Ranges", "Content-Length", "Content-Range", "ETag", *HUB_HEADERS)
"""Headers that scripts of other web sites may send, and read."""


def application(
    registry: ServedRegistry,
    settings: Settings | None = None,
    limits: Limits | None = None,
    log: Log | None = None,
    metrics: Metrics | None = None,
) -> ASGIApp:
    """Create the ASGI application of a registry. `log` gets a line for each request, `metrics` counts them."""
    settings, limits, metrics = settings or Settings(), limits or Limits(), metrics or Metrics()
    pages = Pages(registry, settings, limits)
    app: ASGIApp = IndexAnswers(_router(routes(registry, settings, limits, metrics, pages), pages), registry)
    if settings.token is not None:
        app = TokenGuard(app, settings.token)
    if settings.origins:
        app = CORSMiddleware(
            app,
            settings.origins,
            ("GET", "HEAD", "POST"),
            REQUEST_HEADERS,
            expose_headers=RESPONSE_HEADERS,
            max_age=86_400,
        )
    return RequestObserver(app, metrics, log)


def routes(
    registry: ServedRegistry, settings: Settings, limits: Limits, metrics: Metrics, pages: Pages | None = None
) -> list[BaseRoute]:
    """Every route of the server."""

    async def healthz(request: Request) -> Response:
        """Check that the registry can still be read: its disk may be gone."""
        registry.read_identity()
        return Response(b'{"status": "ok"}\n', 200, {"Cache-Control": "no-store"}, messages.JSON)

    async def metrics_text(request: Request) -> Response:
        return Response(metrics.text(), 200, {"Cache-Control": "no-store", "Content-Type": MEDIA_TYPE})

    document = openapi.document(settings.token is not None)

    async def description(request: Request) -> Response:
        return messages.of_json(request, document)

    own = [
        Route("/healthz", healthz),
        Route("/metrics", metrics_text),
        Route("/openapi.json", description),
    ]
    return [
        *TreeRoutes(registry, shared=settings.token is None).routes(),
        *Api(registry, settings, limits).routes(),
        *(pages or Pages(registry, settings, limits)).routes(),
        *HubRoutes(registry, limits, shared=settings.token is None).routes(),
        *own,
    ]


def _router(routes: Sequence[BaseRoute], pages: Pages) -> Starlette:
    async def refused(request: Request, error: Exception) -> Response:
        """Answer with a page if a browser requests a path without a route."""
        assert isinstance(error, HTTPException)
        unrouted = error.status_code == 404 and not isinstance(error, messages.HttpError)
        if unrouted and messages.HTML in request.headers.get("accept", ""):
            return pages.nothing_there(request)
        return messages.of_http_error(request, error)

    async def failed(request: Request, error: Exception) -> Response:
        """Answer with a page if a browser met a bug."""
        if messages.HTML in request.headers.get("accept", ""):
            return pages.of_bug()
        return messages.of_bug(request, error)

    async def client_gone(request: Request, error: Exception) -> Response:
        return Response(None, 499)

    handlers: dict[Any, Callable[[Request, Exception], Response | Awaitable[Response]]] = {
        RegError: messages.of_error,
        HTTPException: refused,
        ClientDisconnect: client_gone,
        Exception: failed,
    }
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return app


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
