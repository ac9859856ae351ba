"""Ctrl-C counts, even if a library swallows the exception that it raises."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible(number: int = signal.SIGINT) -> Iterator[Callable[[], None]]:
    """Work that other people's code does. Yields a check that raises KeyboardInterrupt if Ctrl-C was pressed.

    `number` is the signal that means it, if its handler is Python's own for Ctrl-C: a worker is sent another one.
    The exception may be raised in a finalizer or a callback, or below a bare `except`, where it is lost. So the press
    is noted, and raised again by the check and at the end of the work.
    """
    pressed = threading.Event()

    def press(_: int, frame: FrameType | None) -> None:
        pressed.set()
        raise KeyboardInterrupt

    def check() -> None:
        if pressed.is_set():
            raise KeyboardInterrupt

    owns_handler = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(number) is signal.default_int_handler
    )
    if owns_handler:
        signal.signal(number, press)
    try:
        yield check
    finally:
        if owns_handler:
            signal.signal(number, signal.default_int_handler)
    check()
