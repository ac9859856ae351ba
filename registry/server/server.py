"""The ASGI application with all routes of a registry, and the server that runs it."""

import hmac
import json
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from asyncio import get_running_loop
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, partial
from hashlib import sha256
from ipaddress import ip_address
from multiprocessing import connection, parent_process
from pathlib import Path
from typing import Any

import uvicorn
from anyio.to_thread import run_sync
from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.supervisors import Multiprocess

from onnxreg.registry.server.answers import HTML, JSON, NO_STORE, HttpError, error_answer, of_bytes, of_error
from onnxreg.registry.server.api import Api
from onnxreg.registry.server.hub_routes import HUB_HEADERS, HubRoutes
from onnxreg.registry.server.pages.pages import Pages
from onnxreg.registry.server.served_registry import ServedRegistry
from onnxreg.registry.server.settings import Settings
from onnxreg.schema.core.errors import HostError, InputError, NotFoundError, RegError

Log = Callable[[str], None]  # a function that receives one log line, without the line end
METHODS = frozenset({"GET", "HEAD", "POST", "OPTIONS"})
"""The HTTP methods that metrics count by name. All other methods, which clients may invent, count as "other"."""
MAX_LOGGED_PATH_CHARS = 300
OPEN_PATHS = frozenset({"/healthz"})  # the paths that clients may request without a token
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""The upper bounds of the histogram's buckets, in seconds."""
WORKERS_DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable that tells prometheus-client the directory of metrics that all workers share."""
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """The counters of a server.

    The counters are read from `registry`, a collector registry of prometheus_client. If several workers share a
    directory, the counters in `registry` are the sums over all workers.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own = self.registry
        if WORKERS_DIRECTORY in os.environ:
            own = CollectorRegistry()
            MultiProcessCollector(self.registry)  # type: ignore[no-untyped-call]
        labels = ("route", "method", "status")
        requests = Counter("reg_requests", "Requests that were answered.", labels, registry=own)
        size = Counter("reg_response_bytes", "Bytes of answers' bodies.", labels[:1], registry=own)
        seconds = Histogram(
            "reg_request_seconds", "Seconds to the last byte.", labels[:1], registry=own, buckets=SECONDS
        )
        self.requests = cache(requests.labels)  # one lookup instead of the checks of `labels` at each request
        self.bytes, self.seconds = cache(size.labels), cache(seconds.labels)


class Observer:
    """Counts requests, and logs each as one JSON line: {time, method, route, path, status, bytes, seconds, client}.

    `time` is in UTC, `route` is the route's template or null, `bytes` counts the body. Headers and query string are not
    logged, since they may have secrets. Status 499 means that the client left before the answer began.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, log: Log | None) -> None:
        self._app, self._metrics, self._log = app, metrics, log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, count, started = 499, 0, time.perf_counter()

        async def observed(message: Message) -> None:
            nonlocal status, count
            await send(message)
            status = message.get("status", status)
            count += len(message.get("body", b"")) if scope["method"] != "HEAD" else 0

        try:
            await self._app(scope, receive, observed)
        finally:
            seconds, route = time.perf_counter() - started, getattr(scope.get("route"), "path", None)
            method = scope["method"] if scope["method"] in METHODS else "other"
            self._metrics.requests(route or "none", method, status).inc()
            self._metrics.bytes(route or "none").inc(count)
            self._metrics.seconds(route or "none").observe(seconds)
            if self._log is not None:
                line = {
                    "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                    "method": scope["method"][:20],
                    "route": route,
                    "path": scope["path"][:MAX_LOGGED_PATH_CHARS],
                    "status": status,
                    "bytes": count,
                    "seconds": round(seconds, 6),
                    "client": (scope.get("client") or (None,))[0],
                }
                self._log(json.dumps(line))


def to_stderr(line: str) -> None:
    """Write one line to stderr. Errors are ignored, so that requests are answered even if stderr is closed."""
    with suppress(OSError, ValueError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


class Guard:
    """Refuses a request with a large head, with several tokens or without the server's token (if it has one).

    Behind a proxy, it also refuses a request to change the protocol.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._max_head_bytes, self._behind_proxy = app, settings.head, settings.behind_proxy
        self._token = None if settings.token is None else sha256(settings.token.encode()).digest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._refuse(scope) or self._app)(scope, receive, send)

    def _refuse(self, scope: Scope) -> Response | None:
        head, tokens = len(scope["raw_path"]) + len(scope["query_string"]), []
        for name, value in scope["headers"]:
            head += len(name) + len(value) + 4
            if name == b"authorization":
                tokens.append(value)
            elif name == b"connection" and self._behind_proxy and b"upgrade" in value.lower():
                message = "a proxy must not pass a request for another protocol on"
                hint = "send plain HTTP/1.1, or let the proxy remove the header Upgrade"  # httptools loses the body
                return error_answer(400, "input", message, hint, {"Connection": "close"})
        if head > self._max_head_bytes:
            message = f"the head has more than {self._max_head_bytes:,} bytes"
            return error_answer(431, "input", message, "", {"Connection": "close"})
        if len(tokens) > 1:  # a proxy may have checked another header than we do
            return error_answer(400, "input", "the request has several Authorization headers", "send one")
        if self._token is None or scope["path"] in OPEN_PATHS:
            return None
        scheme, _, token = b"".join(tokens).partition(b" ")
        digest = sha256(token.strip()).digest()
        if scheme.lower() == b"bearer" and hmac.compare_digest(digest, self._token):  # in constant time
            return None
        fields = {"WWW-Authenticate": 'Bearer realm="registry"'}
        hint = "send Authorization: Bearer TOKEN"
        return error_answer(401, "input", "this registry is read with a token", hint, fields)


DESCRIPTION = Path(__file__).with_name("openapi.json")
"""The description of the API in OpenAPI 3.1. Tests compare it with the routes and answers."""
EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"
REQUEST_HEADERS = ("Authorization", "Content-Type", "If-None-Match", "If-Range", "Range")
RESPONSE_HEADERS = ("Accept-Ranges", "Content-Length", "Content-Range", "ETag", "Retry-After", *HUB_HEADERS)
"""The headers that scripts of other web sites may send (`REQUEST_HEADERS`) and read (`RESPONSE_HEADERS`)."""
BACKLOG_CONNECTIONS = 2048
IDLE_SECONDS = 30  # an open connection may wait this many seconds for its next request


def application(registry: ServedRegistry, settings: Settings, log: Log | None = None) -> ASGIApp:
    """Create the ASGI application of a registry. `log` receives a line for each request."""
    metrics, pages = Metrics(), Pages(registry, settings)

    async def failed(request: Request, error: Exception) -> Response:
        if isinstance(error, ClientDisconnect):
            return Response(None, 499)
        if HTML in request.headers.get("accept", "") and not isinstance(error, RegError | HttpError):
            if not isinstance(error, HTTPException):
                return pages.of_error(RegError("The server's log has the cause"))
            if error.status_code == 404:
                return pages.of_error(NotFoundError(f"There is no {request.scope['path'][:200]}"))
        return of_error(request, error)

    handlers: dict[Any, Any] = dict.fromkeys((RegError, HTTPException, ClientDisconnect, Exception), failed)
    app = Starlette(routes=routes(registry, settings, metrics, pages), exception_handlers=handlers)
    app.router.redirect_slashes = False
    guarded: ASGIApp = Guard(app, settings)
    if settings.origins:
        may = settings.origins, ("GET", "HEAD", "POST"), REQUEST_HEADERS
        guarded = CORSMiddleware(guarded, *may, expose_headers=RESPONSE_HEADERS, max_age=86_400)
    return Observer(guarded, metrics, log)


def routes(registry: ServedRegistry, settings: Settings, metrics: Metrics, pages: Pages) -> list[BaseRoute]:

    async def healthz(request: Request) -> Response:
        await run_sync(registry.store.check_readable)
        return Response(b'{"status": "ok"}\n', 200, NO_STORE, JSON)

    async def metrics_text(request: Request) -> Response:
        return Response(generate_latest(metrics.registry), 200, {**NO_STORE, "Content-Type": EXPOSITION})

    description = DESCRIPTION.read_bytes()

    async def openapi(request: Request) -> Response:
        return of_bytes(request, description, JSON)

    return [
        *Api(registry, settings).routes(),
        *pages.routes(),
        *HubRoutes(registry, settings).routes(),
        Route("/healthz", healthz),
        Route("/metrics", metrics_text),
        Route("/openapi.json", openapi),
    ]


def listen(host: str, port: int, behind_proxy: bool = False) -> socket.socket:
    """Open a socket at an address of this machine. Raises HostError if the address is in use.

    Raises InputError if the address is unknown, or if other machines reach it and `behind_proxy` is False.
    """
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise InputError(f"{host!r} is not an address here: {error}", "try 127.0.0.1") from error
    family, *_, address = addresses[0]
    if not behind_proxy and not ip_address(str(address[0]).partition("%")[0]).is_loopback:
        raise InputError(
            f"other machines reach {host}, and slow clients could occupy the server",
            "put a proxy in front (docs/serve.md) and add --behind-proxy, or listen at 127.0.0.1",
        )
    dual = family == socket.AF_INET6 and socket.has_dualstack_ipv6()  # `::` takes clients of IPv4 too
    try:
        opened = socket.create_server(
            address, family=family, backlog=BACKLOG_CONNECTIONS, dualstack_ipv6=dual
        )
    except OSError as error:
        problem = os.strerror(error.errno or 0)
        raise HostError(f"cannot listen at {host}:{port}: {problem}", "try another --port") from error
    # asyncio does not do this for a socket without a protocol number
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def configuration(make: Callable[[], ASGIApp], settings: Settings, workers: int = 1) -> uvicorn.Config:
    """Return the configuration of uvicorn. Each worker calls `make` to create the application."""
    return uvicorn.Config(
        make,
        factory=True,
        workers=workers,
        http="httptools" if settings.behind_proxy else "h11",  # h11 is slower, and limits unfinished heads
        h11_max_incomplete_event_size=settings.head,
        loop="asyncio",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        headers=[("X-Content-Type-Options", "nosniff")],
        backlog=BACKLOG_CONNECTIONS if workers == 1 else 1,  # with 1, clients spread over the workers
        forwarded_allow_ips="*" if settings.behind_proxy else "127.0.0.1",
        timeout_keep_alive=IDLE_SECONDS,
        timeout_worker_healthcheck=30,  # seconds in which a worker starts, or is started again
        timeout_graceful_shutdown=settings.drain,
    )


def serve(root: Path, listener: socket.socket, settings: Settings, has_log: bool, workers: int = 1) -> None:
    """Answer requests in `workers` processes. After SIGTERM or SIGINT, finish the running answers, then stop."""
    config = configuration(partial(_make, root, settings, has_log, listener), settings, workers)
    if workers > 1:
        with tempfile.TemporaryDirectory(prefix="reg-serve-") as directory:
            os.environ[WORKERS_DIRECTORY] = directory
            Multiprocess(config, [listener]).run()
        return
    server = uvicorn.Server(config)
    for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn's own handler would end with a failure
        signal.signal(number, lambda *_: setattr(server, "should_exit", True))
    server.run([listener])


def _make(root: Path, settings: Settings, has_log: bool, listener: socket.socket) -> ASGIApp:
    if (parent := parent_process()) is not None:  # a worker; uvicorn's `backlog` shortened the queue as well
        get_running_loop().call_soon(listener.listen, BACKLOG_CONNECTIONS)
        threading.Thread(target=_stop_with_parent, args=(parent.sentinel,), daemon=True).start()
    return application(ServedRegistry.open(root), settings, to_stderr if has_log else None)


def _stop_with_parent(sentinel: int) -> None:
    connection.wait([sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
