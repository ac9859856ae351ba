"""Asking again where a request failed for a passing reason, with full jitter between the tries."""

import random
from collections.abc import Callable
from typing import TypeVar

from onnxreg.registry import stopping
from onnxreg.schema.errors import RemoteError

TRIES = 8
FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0
"""Seconds. Before try n + 1 a random time up to FIRST_WAIT * 2**n passes, never more than LONGEST_WAIT."""

Result = TypeVar("Result")


class UnansweredError(RemoteError):
    """No answer came, or none that can be understood. What was asked for may have been done all the same."""


def retrying(attempt: Callable[[], Result], passing: Callable[[Exception], bool]) -> Result:
    """What `attempt` returns. It is made again, up to `TRIES` times, where it raised something that is `passing`."""
    for number in range(1, TRIES):
        try:
            return attempt()
        except Exception as error:
            if not passing(error):
                raise
            stopping.sleep(random.uniform(0, min(LONGEST_WAIT, FIRST_WAIT * 2**number)))
    return attempt()
