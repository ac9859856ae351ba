"""Processor time in a unit that suits every machine: passes of a plain loop, timed beside the work."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

STEPS = 1_000_000
"""Additions of one pass: some hundredths of a second."""

PASSES = 300
"""Five times what the slowest of these tests needs: a busy machine passes, a cost that grows with the square does not."""


@contextmanager
def no_quadratic_time() -> Iterator[None]:
    """Require that the work inside takes less processor time than PASSES passes take before or after it."""
    before, started = _pass_seconds(), time.process_time()
    yield
    used = time.process_time() - started
    limit = PASSES * max(before, _pass_seconds())
    assert used < limit, f"{used:.2f} s of processor time, more than {PASSES} passes of a loop: {limit:.2f} s"


def _pass_seconds() -> float:
    started, total = time.process_time(), 0
    for number in range(STEPS):
        total += number
    return time.process_time() - started
