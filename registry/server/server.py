"""Run the application: a socket, uvicorn, a log on stderr, and an orderly end.

With several workers, one for each core, all answer on one socket, and the process that `reg serve` started
answers nothing. It starts the workers, starts another one for each that dies, and ends them when it is ended.
A worker that loses this process ends too. Each worker keeps its counters in a file, so that `/metrics` of any
worker has the sums of all.
"""

import logging
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from onnxreg.registry.server.app import application
from onnxreg.registry.server.http.connection import Connection
from onnxreg.registry.server.observability import JsonLines, Log, Metrics
from onnxreg.registry.server.served_registry import ServedRegistry
from onnxreg.registry.server.settings import Limits, Settings
from onnxreg.registry.store.directory.scratch import temporary
from onnxreg.schema.core.errors import Advice, HostError, InputError

if TYPE_CHECKING:
    from multiprocessing.context import ForkProcess


BACKLOG_CONNECTIONS = 2048
"""Connections that the kernel accepts in advance."""
TICKS_PER_SAVE = 5
"""Tenths of a second between two writes of the counters, if there are other workers."""
RESERVED_FILES = 256
"""Open files other than connections: files being sent, the log, the search index."""


def listen(host: str, port: int) -> socket.socket:
    """Open a socket at an address of this machine. InputError for an unknown address, HostError if it is in
    use.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise InputError(
            f"{host!r} is not an address of this machine: {error}", Advice("try-host")
        ) from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG_CONNECTIONS)
    except OSError as error:
        listener.close()
        raise HostError(f"cannot listen at {host}:{port}: {error.strerror}", Advice("choose-port")) from error
    return listener


def url_of(listener: socket.socket) -> str:
    """The URL of the server on this machine."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def is_loopback(listener: socket.socket) -> bool:
    """Check if only this machine can reach the server."""
    return ip_address(listener.getsockname()[0].partition("%")[0]).is_loopback


def server(
    registry: ServedRegistry,
    settings: Settings,
    limits: Limits | None = None,
    log: Log | None = None,
    metrics: Metrics | None = None,
) -> "Server":
    """A server whose `run([listener])` answers until SIGTERM or SIGINT.

    Then it takes no new connection, and lets running answers end.
    """
    limits, metrics = fit_open_files(limits or Limits()), metrics or Metrics()
    config = uvicorn.Config(
        application(registry, settings, limits, log, metrics),
        loop="asyncio",
        http=partial(Connection, limits=limits, waiting={}),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        headers=[("X-Content-Type-Options", "nosniff")],
        backlog=BACKLOG_CONNECTIONS,
        timeout_keep_alive=limits.idle,
        timeout_graceful_shutdown=settings.drain,
    )
    return Server(config, metrics)


def serve(
    root: Path,
    listener: socket.socket,
    settings: Settings,
    limits: Limits,
    log: Log | None,
    workers: int = 1,
) -> None:
    """Answer until SIGTERM or SIGINT, in `workers` processes, and log what goes wrong on stderr.

    The connections of `limits` are those of all workers.
    """
    logging.getLogger("uvicorn.error").addHandler(JsonLines(logging.WARNING))
    share = replace(limits, connections=max(1, limits.connections // workers))

    def work(metrics: Metrics) -> None:
        server(ServedRegistry.open(root), settings, share, log, metrics).run([listener])

    if workers == 1:
        work(Metrics())
    else:
        run_workers(workers, work)


class Server(uvicorn.Server):
    """A server whose `run` returns normally after a signal: an orderly stop is a success."""

    def __init__(self, config: uvicorn.Config, metrics: Metrics) -> None:
        super().__init__(config)
        self._metrics = metrics

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS_PER_SAVE == 0:
            self._metrics.save()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        self._metrics.save()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        with super().capture_signals():
            try:
                yield
            finally:
                self._captured_signals.clear()


def fit_open_files(limits: Limits) -> Limits:
    """Raise the limit of open files to its maximum, and reduce `connections` to fit into it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    if soft == resource.RLIM_INFINITY:
        return limits
    return replace(limits, connections=max(1, min(limits.connections, soft * 3 // 4 - RESERVED_FILES)))


STARTUP_SECONDS = 2.0
"""A worker that dies earlier than this did not start."""
MAX_FAILED_STARTS = 3
"""Failed starts in a row after which the server gives up."""
SIGNALS = (signal.SIGTERM, signal.SIGINT)
logger = logging.getLogger("uvicorn.error")


def run_workers(count: int, serve: Callable[[Metrics], None]) -> None:
    """Run `serve` in `count` processes until SIGTERM or SIGINT. HostError if they die as they start."""
    with temporary() as directory:
        _Supervisor(serve, [directory / f"{number}.json" for number in range(count)]).run()


class _Supervisor:
    def __init__(self, serve: Callable[[Metrics], None], files: list[Path]) -> None:
        self._serve = serve
        self._files = files
        self._workers: dict[Path, tuple[ForkProcess, float]] = {}
        self._stopping = False
        self._failed_starts = 0

    def run(self) -> None:
        """Keep all workers alive until a signal comes, then wait until they ended."""
        for number in SIGNALS:
            signal.signal(number, self._stop)
        try:
            for file in self._files:
                self._start(file)
            while self._workers:
                wait([process.sentinel for process, _ in self._workers.values()])
                self._replace_dead()
        finally:
            self._stop(signal.SIGTERM, None)
            for process, _ in self._workers.values():
                process.join()

    def _start(self, file: Path) -> None:
        """Start a worker. Signals wait meanwhile, so that none is lost between two handlers."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            if not self._stopping:
                process = get_context("fork").Process(target=_work, args=(self._serve, file))
                process.start()
                self._workers[file] = process, time.monotonic()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """End all workers by SIGTERM. Ctrl-C in a terminal reaches them too; a second SIGINT would cut answers."""
        self._stopping = True
        for process, _ in self._workers.values():
            process.terminate()

    def _replace_dead(self) -> None:
        for file, (process, started) in list(self._workers.items()):
            if process.is_alive():
                continue
            del self._workers[file]
            if self._stopping:
                continue
            is_failed_start = time.monotonic() - started < STARTUP_SECONDS
            self._failed_starts = self._failed_starts + 1 if is_failed_start else 0
            if self._failed_starts >= MAX_FAILED_STARTS:
                raise HostError(f"the workers end as they start, with status {process.exitcode}")
            logger.warning("a worker ended with status %s, and another one takes its place", process.exitcode)
            self._start(file)


def _work(serve: Callable[[Metrics], None], file: Path) -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    serve(Metrics(file))


def _end_with_parent() -> None:
    """Stop in an orderly way if the process that started the workers was killed."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
