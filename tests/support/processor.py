"""Processor time in a unit that suits every machine: passes of a plain loop, timed beside the work."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

STEPS = 1_000_000
"""Additions of one pass: some hundredths of a second."""

PASSES = 200
"""Three times what the slowest of these tests needs, so that it passes on a busy machine."""


@contextmanager
def no_quadratic_time() -> Iterator[None]:
    """Fail if the work inside takes more processor time than PASSES passes of the loop.

    The loop is timed once in a process, and again behind work that takes more; the slower time counts. The input must be so
    large that a cost which grows with its square is far above the limit.
    """
    started = time.process_time()
    yield
    used, limit = time.process_time() - started, PASSES * _first_pass_seconds()
    if used >= limit:
        limit = max(limit, PASSES * _pass_seconds())
    assert used < limit, f"{used:.2f} s of processor time, more than {PASSES} passes of a loop: {limit:.2f} s"


def _pass_seconds() -> float:
    started, total = time.process_time(), 0
    for number in range(STEPS):
        total += number
    return time.process_time() - started


_first_pass_seconds = cache(_pass_seconds)
