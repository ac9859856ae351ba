"""Several processes that answer on one socket: one for each core.

The process that `reg serve` started as answers nothing. It starts the workers, starts another one for each
that dies, and ends them when it is ended. A worker that loses this process ends too. Each worker keeps its
counters in a file, so that `/metrics` of any worker has the sums of all.
"""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import TYPE_CHECKING

from onnxreg.registry.server.metrics import Metrics
from onnxreg.schema.core.errors import HostError

if TYPE_CHECKING:
    from multiprocessing.context import ForkProcess

STARTUP_SECONDS = 2.0
"""A worker that dies earlier than this did not start."""
MAX_FAILED_STARTS = 3
"""Failed starts in a row after which the server gives up."""
SIGNALS = (signal.SIGTERM, signal.SIGINT)
logger = logging.getLogger("uvicorn.error")


def run_workers(count: int, serve: Callable[[Metrics], None]) -> None:
    """Run `serve` in `count` processes until SIGTERM or SIGINT. HostError if they die as they start."""
    with TemporaryDirectory(prefix="reg-serve-") as directory:
        _Supervisor(serve, [Path(directory) / f"{number}.json" for number in range(count)]).run()


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
