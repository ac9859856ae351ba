"""Running the application: a socket, uvicorn, a log on stderr, and an orderly end."""

import logging
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from ipaddress import ip_address

import uvicorn

from onnxreg.registry.server.app import application
from onnxreg.registry.server.http.connection import Connection
from onnxreg.registry.server.observability import Log
from onnxreg.registry.server.request_log import JsonLines
from onnxreg.registry.server.served_registry import ServedRegistry
from onnxreg.registry.server.settings import Limits, Settings
from onnxreg.schema.core.errors import HostError, InputError

BACKLOG = 2048
SPARE = 256
"""Open files that are no connections: what is being sent, the log, the search index."""


def listen(host: str, port: int) -> socket.socket:
    """A socket at an address of this machine. InputError where there is no such address, HostError where it is taken."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise InputError(
            f"{host!r} is no address of this machine: {error}", "try --host 127.0.0.1"
        ) from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise HostError(
            f"cannot listen at {host}:{port}: {error.strerror}", "choose another --port"
        ) from error
    return listener


def url_of(listener: socket.socket) -> str:
    """How somebody on this machine reaches the server."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def is_loopback(listener: socket.socket) -> bool:
    """Whether only this machine reaches the server."""
    return ip_address(listener.getsockname()[0].partition("%")[0]).is_loopback


def server(
    place: ServedRegistry, settings: Settings, limits: Limits | None = None, log: Log | None = None
) -> "Server":
    """A server whose `run([listener])` answers until SIGTERM or SIGINT.

    Then it takes no new connection, and lets running answers end.
    """
    limits = allowed(limits or Limits())
    config = uvicorn.Config(
        application(place, settings, limits, log),
        loop="asyncio",
        http=partial(Connection, limits=limits, waiting={}),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        headers=[("X-Content-Type-Options", "nosniff")],
        backlog=BACKLOG,
        timeout_keep_alive=limits.idle,
        timeout_graceful_shutdown=settings.drain,
    )
    return Server(config)


def serve(
    place: ServedRegistry, listener: socket.socket, settings: Settings, limits: Limits, log: Log | None
) -> None:
    """Answer until SIGTERM or SIGINT, and log what goes wrong on stderr."""
    logging.getLogger("uvicorn.error").addHandler(JsonLines(logging.WARNING))
    server(place, settings, limits, log).run([listener])


class Server(uvicorn.Server):
    """Ends by returning, whichever signal asked for it: who was told to stop, and stopped, has done its work."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        with super().capture_signals():
            try:
                yield
            finally:
                self._captured_signals.clear()


def allowed(limits: Limits) -> Limits:
    """The limits with no more connections than this process may have files open, once it may have all it can."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    if soft == resource.RLIM_INFINITY:
        return limits
    return replace(limits, connections=max(1, min(limits.connections, soft * 3 // 4 - SPARE)))
