"""Parallel work on threads. Ctrl-C, or the failure of one of them, stops the others at once.

A piece of parallel work has one event, which its threads inherit. Code that waits before a retry calls `sleep`, and
code that moves bytes calls `check_stop`: both end as soon as the event is set. A thread that waits for a server does
not notice it.
"""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextvars import ContextVar, copy_context
from typing import TypeVar

from onnxreg.schema.core.errors import RegError
from onnxreg.schema.core.progress import count_cores

WORKERS = min(8, count_cores() * 4)
"""Threads that one piece of work uses."""
JOIN_TIMEOUT_SECONDS = 1.0
"""The seconds that Ctrl-C waits for threads that do not react, such as one that waits for a server."""
POLL_SECONDS = 0.1
"""The time between two checks of the event."""

Item = TypeVar("Item")
Result = TypeVar("Result")
_event: ContextVar[threading.Event] = ContextVar("stop", default=threading.Event())  # noqa: B039
"""The event of the work that this code is a part of; outside of any work it is never set."""


class CancelledError(RegError, family="interrupted"):
    """The work that this was a part of has ended."""


def check_stop() -> None:
    """CancelledError if the work has ended."""
    if _event.get().is_set():
        raise CancelledError("stopped")


def sleep(seconds: float) -> None:
    """Wait. CancelledError if the work ends before."""
    if _event.get().wait(seconds):
        raise CancelledError("stopped")


def run_parallel(work: Callable[[Item], Result], items: Iterable[Item], workers: int = 0) -> list[Result]:
    """Apply `work` to every item on `WORKERS` threads, or `workers`; results in order. The first failure or Ctrl-C
    stops the others.

    After Ctrl-C, a thread that waits for something outside of this process may go on for a while. So a single item has
    a thread too: this one can stop it at once.
    """
    stop = threading.Event()
    pool = ThreadPoolExecutor(workers or WORKERS)
    futures: list[Future[Result]] = []
    try:
        for item in items:  # one by one: after Ctrl-C those that run already are waited for
            context = copy_context()
            context.run(_event.set, stop)
            futures.append(pool.submit(context.run, work, item))
        wait(futures, return_when=FIRST_EXCEPTION)
        failed = [future for future in futures if future.done() and future.exception() is not None]
        return [future.result() for future in (failed or futures)]
    except BaseException as error:
        stop.set()
        pool.shutdown(wait=False, cancel_futures=True)
        running = [future for future in futures if not future.cancelled()]
        wait(running, timeout=None if isinstance(error, Exception) else JOIN_TIMEOUT_SECONDS)
        raise
    finally:
        pool.shutdown(wait=False)
