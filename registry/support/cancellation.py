"""Ending what other threads do: Ctrl-C, or the failure of one of them, stops the others at once.

A piece of parallel work has one event. Threads that are started with `submit` inherit it. What waits there for another
thread or before another try waits with `outcome` or `sleep`, and what moves bytes calls `check_stop` between them: all of
these end as soon as the event is set. A thread that waits for a server does not hear of it.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

from onnxreg.schema.core.errors import RegError

LOOK = 0.1
"""Seconds between two looks at the event."""

Result = TypeVar("Result")
_event: ContextVar[threading.Event | None] = ContextVar("stop", default=None)


class CancelledError(RegError):
    """The work that this was a part of has ended."""

    family = "interrupted"


@contextmanager
def ended_by(event: threading.Event | None) -> Iterator[None]:
    """What waits within ends when the event is set; with None, nothing ends it."""
    token = _event.set(event)
    try:
        yield
    finally:
        _event.reset(token)


def submit(pool: Executor, work: Callable[..., Result], *arguments: Any) -> "Future[Result]":
    """Start work in another thread, which ends when this one's would."""
    return pool.submit(copy_context().run, work, *arguments)


def outcome(future: "Future[Result]") -> Result:
    """A future's result. StoppedError where the work ends before."""
    while not wait([future], LOOK).done:
        check_stop()
    return future.result()


def check_stop() -> None:
    """StoppedError where the work has ended."""
    event = _event.get()
    if event is not None and event.is_set():
        raise CancelledError("stopped")


def sleep(seconds: float) -> None:
    """Wait. StoppedError where the work ends before."""
    if (_event.get() or threading.Event()).wait(seconds):
        raise CancelledError("stopped")
