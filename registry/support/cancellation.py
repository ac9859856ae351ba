"""Cooperative cancellation of threads: Ctrl-C, or the failure of one of them, stops the others at once.

A piece of parallel work has one event. Threads that are started with `submit` inherit it. Code that waits
for another thread calls `result_of`, code that waits before a retry calls `sleep`, and code that moves bytes calls
`check_stop`: all of these end as soon as the event is set. A thread that waits for a server does not notice it.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

from onnxreg.schema.core.errors import RegError

POLL_SECONDS = 0.1
"""The time between two checks of the event."""

Result = TypeVar("Result")
_event: ContextVar[threading.Event | None] = ContextVar("stop", default=None)


class CancelledError(RegError):
    """The work that this was a part of has ended."""

    family = "interrupted"


@contextmanager
def cancel_scope(event: threading.Event | None) -> Iterator[None]:
    """Cancel waits inside this context when the event is set; with None, nothing cancels them."""
    token = _event.set(event)
    try:
        yield
    finally:
        _event.reset(token)


def submit(pool: Executor, work: Callable[..., Result], *arguments: Any) -> "Future[Result]":
    """Start work in another thread, which ends when this one's would."""
    return pool.submit(copy_context().run, work, *arguments)


def result_of(future: "Future[Result]") -> Result:
    """Wait for a future's result. CancelledError if the work ends before."""
    while not wait([future], POLL_SECONDS).done:
        check_stop()
    return future.result()


def check_stop() -> None:
    """CancelledError if the work has ended."""
    event = _event.get()
    if event is not None and event.is_set():
        raise CancelledError("stopped")


def sleep(seconds: float) -> None:
    """Wait. CancelledError if the work ends before."""
    if (_event.get() or threading.Event()).wait(seconds):
        raise CancelledError("stopped")
