"""Processor time in a unit that suits every machine: passes of a plain loop, timed beside the work."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

STEPS = 1_000_000
"""Additions of one pass: some hundredths of a second."""


@contextmanager
def at_most(passes: int) -> Iterator[None]:
    """Require that the work inside takes less processor time than so many passes take before or after it."""
    before, started = _pass_seconds(), time.process_time()
    yield
    used = time.process_time() - started
    limit = passes * max(before, _pass_seconds())
    assert used < limit, f"{used:.2f} s of processor time, more than {passes} passes of a loop: {limit:.2f} s"


def _pass_seconds() -> float:
    started, total = time.process_time(), 0
    for number in range(STEPS):
        total += number
    return time.process_time() - started
