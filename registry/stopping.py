"""Ending what other threads do: Ctrl-C, or the failure of one of them, stops the others at once.

A piece of parallel work has one event. Threads that are started with `submit` inherit it, and whatever waits there, for
a server or before another try, waits with `outcome` or `sleep`, which end as soon as it is set.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

from onnxreg.schema.errors import RegError

LOOK = 0.1
"""Seconds between two looks at the event."""

Result = TypeVar("Result")
_event: ContextVar[threading.Event | None] = ContextVar("stop", default=None)


class StoppedError(RegError):
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
    """A future's result. StoppedError, and the future cancelled, where the work ends before."""
    event = _event.get()
    try:
        while not wait([future], LOOK).done:
            if event is not None and event.is_set():
                raise StoppedError("stopped")
        return future.result()
    finally:
        future.cancel()


def sleep(seconds: float) -> None:
    """Wait. StoppedError where the work ends before."""
    if (_event.get() or threading.Event()).wait(seconds):
        raise StoppedError("stopped")
