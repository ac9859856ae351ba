"""Retries of requests that failed for a passing reason, with full jitter between the tries."""

import random
from collections.abc import Callable, Iterator
from typing import TypeVar

from onnxreg.registry.store.net import pace, server_waits
from onnxreg.registry.support import parallel
from onnxreg.schema.core.errors import RemoteError, why

MAX_TRIES = 8
MAX_SILENT_TRIES = 2
"""So many of them may end because the server was silent or too slow."""
FIRST_WAIT_SECONDS, MAX_WAIT_SECONDS = 0.1, 5.0
"""Seconds.

Before try n + 1 a random time up to FIRST_WAIT_SECONDS * 2**n passes, never more than MAX_WAIT_SECONDS.
"""

Result = TypeVar("Result")


class UnansweredError(RemoteError):
    """No answer came, or none that can be understood. What was asked for may have been done all the same."""


def retrying(attempt: Callable[[], Result], passing: Callable[[Exception], bool], host: str = "") -> Result:
    """Return the result of `attempt`, called again, up to `MAX_TRIES` times, if it raises an error that is
    `passing`.

    `host` is shown to those who watch. A read ends with its time: see `pace`.
    """
    silent = 0
    with server_waits.noted(host or "the server") as request:
        for number in range(1, MAX_TRIES):
            try:
                return attempt()
            except Exception as error:
                silent += is_silence(error)
                if silent >= MAX_SILENT_TRIES or pace.is_over() or not passing(error):
                    raise
                request.failed(f" (try {number + 1} of {MAX_TRIES}: {_reason(error)})")
                parallel.sleep(random.uniform(0, min(MAX_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2**number)))
        return attempt()


def is_silence(error: BaseException) -> bool:
    """True if a request failed because the server was silent, or too slow."""
    return any(isinstance(cause, TimeoutError) for cause in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and those that led to it."""
    cause: BaseException | None = error
    for _ in range(10):
        if cause is None:
            return
        yield cause
        reason = getattr(cause, "reason", None)
        cause = reason if isinstance(reason, BaseException) else cause.__cause__ or cause.__context__


def _reason(error: Exception) -> str:
    """The last cause in a few words; addresses with secrets in them are never there."""
    *_, cause = _causes(error)
    return why(cause)[:60] if isinstance(cause, OSError) else type(error).__name__
