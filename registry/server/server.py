"""Run the application: a socket, uvicorn with its workers, and an orderly end."""

import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from multiprocessing import connection, parent_process
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp
from uvicorn.supervisors import Multiprocess

from onnxreg.registry.server.middleware import WORKERS_DIRECTORY
from onnxreg.registry.server.settings import Limits, Settings
from onnxreg.schema.core.errors import HostError, InputError

BACKLOG_CONNECTIONS = 2048
"""Connections that the kernel accepts in advance."""
IDLE_SECONDS = 30
"""A connection may wait so long for its next request."""


def listen(host: str, port: int, behind_proxy: bool = False) -> socket.socket:
    """Open a socket at an address of this machine. HostError if it is in use.

    InputError for an unknown address, or for one that others reach with no proxy in front.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise InputError(f"{host!r} is not an address here: {error}", "try 127.0.0.1") from error
    if not behind_proxy and not ip_address(str(address[0]).partition("%")[0]).is_loopback:
        raise InputError(
            f"other machines reach {host}, and slow clients could occupy the server",
            "put a proxy in front (docs/serve.md) and add --behind-proxy, or listen at 127.0.0.1",
        )
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG_CONNECTIONS)
    except OSError as error:
        listener.close()
        raise HostError(f"cannot listen at {host}:{port}: {error.strerror}", "try another --port") from error
    return listener


def url_of(listener: socket.socket) -> str:
    """The URL of the server on this machine."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def configuration(
    make: Callable[[], ASGIApp], settings: Settings, limits: Limits, workers: int = 1
) -> uvicorn.Config:
    """uvicorn's configuration; `make` creates the application in each worker."""
    return uvicorn.Config(
        make,
        factory=True,
        workers=workers,
        http="h11",
        h11_max_incomplete_event_size=limits.head,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        headers=[("X-Content-Type-Options", "nosniff")],
        backlog=BACKLOG_CONNECTIONS,
        forwarded_allow_ips="*" if settings.behind_proxy else "127.0.0.1",
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=settings.drain,
    )


def serve(
    root: Path, listener: socket.socket, settings: Settings, limits: Limits, has_log: bool, workers: int = 1
) -> None:
    """Answer until SIGTERM or SIGINT, in `workers` processes; then take no new connection, and let running answers end."""
    make = partial(_make, root, settings, limits, has_log)
    config = configuration(make, settings, limits, workers)
    if workers > 1:
        with tempfile.TemporaryDirectory(prefix="reg-serve-") as directory:
            os.environ[WORKERS_DIRECTORY] = directory
            Multiprocess(config, [listener]).run()
        return
    server = uvicorn.Server(config)
    for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises a signal again in the end: no failure
        signal.signal(number, lambda *_: setattr(server, "should_exit", True))
    server.run([listener])


def _make(root: Path, settings: Settings, limits: Limits, has_log: bool) -> ASGIApp:
    from onnxreg.registry.server.app import application
    from onnxreg.registry.server.middleware import to_stderr
    from onnxreg.registry.server.served_registry import ServedRegistry

    if parent_process() is not None:
        threading.Thread(target=_end_with_parent, daemon=True).start()
    return application(ServedRegistry.open(root), settings, limits, to_stderr if has_log else None)


def _end_with_parent() -> None:
    """End a worker in order if the process that started it was killed."""
    if (parent := parent_process()) is not None:
        connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
