"""Parallel work on threads. Ctrl-C, or the failure of one thread, stops the other threads at once.

A piece of parallel work has one stop event, which its threads inherit. Code that waits before a retry calls `sleep`,
and code that moves bytes calls `check_stop`: both raise CancelledError as soon as the event is set. A thread that waits
for a server does not notice the event.
"""

import threading
from collections.abc import Callable, Iterable
from contextvars import ContextVar, copy_context
from typing import TypeVar

from onnxreg.schema.core.errors import RegError

WORKERS = 8
"""The number of threads for one piece of work."""
JOIN_TIMEOUT_SECONDS = 1.0
"""Seconds after Ctrl-C to wait for threads that do not react, such as a thread that waits for a server."""
POLL_SECONDS = 0.1
"""Seconds between two checks of the event."""

Item = TypeVar("Item")
Result = TypeVar("Result")
_event: ContextVar[threading.Event] = ContextVar("stop", default=threading.Event())  # noqa: B039
"""The stop event of the current parallel work; outside of parallel work the event is never set."""


class CancelledError(RegError, family="interrupted"):
    """The parallel work that called this code has ended."""


def check_stop() -> None:
    """Raise CancelledError if the parallel work has ended."""
    if _event.get().is_set():
        raise CancelledError("stopped")


def sleep(seconds: float) -> None:
    """Wait this long. Raise CancelledError if the parallel work ends meanwhile."""
    if _event.get().wait(seconds):
        raise CancelledError("stopped")


def run_parallel(work: Callable[[Item], Result], items: Iterable[Item], workers: int = 0) -> list[Result]:
    """Apply `work` to every item on `workers` threads (0: `WORKERS`) and return the results in order.

    Even a single item gets a thread of its own, so that the calling thread can stop at once after Ctrl-C.
    """
    from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait

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
