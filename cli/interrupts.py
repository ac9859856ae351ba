"""Ctrl-C counts, even if a library swallows the exception that it raises."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible(number: int = signal.SIGINT) -> Iterator[Callable[[], None]]:
    """Run the code of other people. Yields a check that raises KeyboardInterrupt if Ctrl-C was pressed.

    `number` is the signal that means it, if its handler is Python's own for Ctrl-C: a worker is sent another one.
    An exception in a finalizer, a callback or below a bare `except` would be lost. So the handler notes the press;
    the check and the end of the work raise it again.
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
