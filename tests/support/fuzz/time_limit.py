"""A limit on processor time, for readers of hostile input."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

BUDGET = 10.0
"""Seconds of this process's own time that one case may take: a thousand times what it needs."""


@contextmanager
def bounded() -> Iterator[None]:
    """TimeoutError in the middle of work that takes more than the budget of processor time."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"more than {BUDGET} s of work")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, BUDGET)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
