"""The ASGI application: all routes of one registry, with the middleware that guards and observes them."""

from pathlib import Path
from typing import Any

from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from onnxreg.registry.server.answers import HTML, JSON, NO_STORE, HttpError, of_bytes, of_error
from onnxreg.registry.server.api import Api
from onnxreg.registry.server.hub_routes import HUB_HEADERS, HubRoutes
from onnxreg.registry.server.middleware import Guard, Log, Metrics, Observer
from onnxreg.registry.server.pages.pages import Pages
from onnxreg.registry.server.served_registry import ServedRegistry
from onnxreg.registry.server.settings import Limits, Settings
from onnxreg.schema.core.errors import NotFoundError, RegError

DESCRIPTION = Path(__file__).with_name("openapi.json")
"""OpenAPI 3.1; tests compare it with the routes and answers."""
EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"
REQUEST_HEADERS = ("Authorization", "Content-Type", "If-None-Match", "If-Range", "Range")
RESPONSE_HEADERS = ("Accept-Ranges", "Content-Length", "Content-Range", "ETag", *HUB_HEADERS)
"""Headers that scripts of other web sites may send, and read."""


def application(
    registry: ServedRegistry,
    settings: Settings | None = None,
    limits: Limits | None = None,
    log: Log | None = None,
) -> ASGIApp:
    """Create the ASGI application of a registry. `log` gets a line for each request."""
    settings, limits, metrics = settings or Settings(), limits or Limits(), Metrics()
    pages = Pages(registry, settings, limits)

    async def failed(request: Request, error: Exception) -> Response:
        """Answer with a page if a browser requests a path without a route, or met a bug."""
        if isinstance(error, ClientDisconnect):
            return Response(None, 499)
        if HTML in request.headers.get("accept", "") and not isinstance(error, RegError | HttpError):
            if not isinstance(error, HTTPException):
                return pages.of_error(RegError("The server's log has the cause"))
            if error.status_code == 404:
                return pages.of_error(NotFoundError(f"There is no {request.scope['path'][:200]}"))
        return of_error(request, error)

    handlers: dict[Any, Any] = dict.fromkeys((RegError, HTTPException, ClientDisconnect, Exception), failed)
    app = Starlette(routes=routes(registry, settings, limits, metrics, pages), exception_handlers=handlers)
    app.router.redirect_slashes = False
    guarded: ASGIApp = Guard(app, settings.token, limits.head)
    if settings.origins:
        methods = ("GET", "HEAD", "POST")
        guarded = CORSMiddleware(
            guarded,
            settings.origins,
            methods,
            REQUEST_HEADERS,
            expose_headers=RESPONSE_HEADERS,
            max_age=86_400,
        )
    return Observer(guarded, metrics, log)


def routes(
    registry: ServedRegistry, settings: Settings, limits: Limits, metrics: Metrics, pages: Pages
) -> list[BaseRoute]:
    """Every route of the server."""

    async def healthz(request: Request) -> Response:
        """Check that the registry can still be read: its disk may be gone."""
        await run_sync(registry.store.check_readable)
        return Response(b'{"status": "ok"}\n', 200, NO_STORE, JSON)

    async def metrics_text(request: Request) -> Response:
        return Response(metrics.text(), 200, {**NO_STORE, "Content-Type": EXPOSITION})

    description = DESCRIPTION.read_bytes()

    async def openapi(request: Request) -> Response:
        return of_bytes(request, description, JSON)

    return [
        *Api(registry, settings, limits).routes(),
        *pages.routes(),
        *HubRoutes(registry, settings, limits).routes(),
        Route("/healthz", healthz),
        Route("/metrics", metrics_text),
        Route("/openapi.json", openapi),
    ]
