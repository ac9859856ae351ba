"""Notices to a listener of the file that is read next, so that it can name the file if the process ends."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

Listener = Callable[[Path], None]
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def notify_listener(listener: Listener) -> Iterator[None]:
    """Show `listener` every file that is opened inside, before it is read."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def opening(path: Path) -> None:
    """A model file, or its external data, is about to be read."""
    listener = _listener.get()
    if listener is not None:
        listener(path)
