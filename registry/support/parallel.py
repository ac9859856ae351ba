"""Parallel work on threads. Ctrl-C, or the failure of one thread, stops the other threads at once.

A call of `run_parallel` has one stop event for all its threads. Code that waits before a retry calls `sleep`, and code
that moves bytes calls `check_stop`: both raise CancelledError when the event is set. A thread that waits for a server does
not notice the event.
"""

import threading
from collections.abc import Callable, Iterable
from contextvars import ContextVar, copy_context
from typing import TypeVar

from onnxreg.schema.core.errors import RegError

WORKERS = 8
"""The default number of threads of `run_parallel`."""
JOIN_TIMEOUT_SECONDS = 1.0
"""Seconds after Ctrl-C for which threads are awaited that may not react, because they wait for a server."""
POLL_SECONDS = 0.1
"""Seconds between two checks if all items are done."""

Item = TypeVar("Item")
Result = TypeVar("Result")
_event: ContextVar[threading.Event] = ContextVar("stop", default=threading.Event())  # noqa: B039
"""The stop event of the current `run_parallel`; outside of such a call, the event is never set."""


class CancelledError(RegError, family="interrupted"):
    """The call of `run_parallel` to which this thread belongs has ended."""


def check_stop() -> None:
    """Raise CancelledError if the current `run_parallel` has ended."""
    if _event.get().is_set():
        raise CancelledError("stopped")


def sleep(seconds: float) -> None:
    """Wait this long. Raise CancelledError if the current `run_parallel` ends meanwhile."""
    if _event.get().wait(seconds):
        raise CancelledError("stopped")


def run_parallel(work: Callable[[Item], Result], items: Iterable[Item], workers: int = 0) -> list[Result]:
    """Apply `work` to every item on `workers` threads (0: `WORKERS`) and return the results in order.

    Even a single item runs in another thread, so that the calling thread can stop at once after Ctrl-C.
    """
    from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait

    stop = threading.Event()
    pool = ThreadPoolExecutor(workers or WORKERS)
    futures: list[Future[Result]] = []
    try:
        for item in items:  # not all at once: after Ctrl-C, only running items are awaited
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
