"""Requests to servers: the pace that an answer must keep, and retries after a passing failure.

One remote read has limits of silence, of its rate, and of its time. A file that is read in blocks has one deadline
for all of them: see `waits.FileBudget`.

A server that sends a byte a second never lets a socket time out. So a reader counts the bytes of each block of an
answer (`Meter`): only the time that is spent waiting for the server counts, and only once its answer has begun.
"""

import random
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from onnxreg.registry.store.net import http_rules, waits
from onnxreg.registry.store.net.waits import DEFAULTS, FileBudget, setting
from onnxreg.registry.support import parallel
from onnxreg.schema.core.errors import RemoteError, why

MAX_TRIES = 8
MAX_SILENT_TRIES = 2
"""So many of them may end because the server was silent or too slow."""
FIRST_WAIT_SECONDS, MAX_WAIT_SECONDS = 0.1, 5.0
"""Seconds.

Before try n + 1 a random time up to FIRST_WAIT_SECONDS * 2**n passes, never more than MAX_WAIT_SECONDS.
"""
MAX_PAUSE_SECONDS = 300
"""The longest pause that a server may ask for; if it asks for a longer one, the error says until when."""
Result = TypeVar("Result")


@contextmanager
def reading(budget: FileBudget | None = None) -> Iterator[None]:
    """Hold what is read within to the limits; `budget` is that of the file. A read within a read is part of it."""
    if _pace.get() is not None:
        yield
        return
    silence, rate = setting("REG_READ_TIMEOUT") or DEFAULTS["REG_READ_TIMEOUT"], setting("REG_READ_RATE")
    with (budget or FileBudget.current()).spent() as end:
        token = _pace.set(Pace(silence, rate, end))
        try:
            yield
        finally:
            _pace.reset(token)


def timeout() -> float | None:
    """The seconds of silence after which a server counts as gone; None for no limit."""
    return setting("REG_READ_TIMEOUT") or None


def is_over() -> bool:
    """True if the present read has no time left."""
    pace = _pace.get()
    return pace is not None and pace.end <= time.monotonic()


def retrying(
    attempt: Callable[[], Result],
    passing: Callable[[Exception], bool],
    host: str = "",
    pause: Callable[[Exception], float] = lambda error: getattr(error, "pause", 0.0),
) -> Result:
    """Return the result of `attempt`, called again, up to `MAX_TRIES` times, if it raises an error that is
    `passing`.

    `host` is shown to those who watch. `pause` gives the least seconds to wait after an error; above
    `MAX_PAUSE_SECONDS` there is no further try. A read ends with its time: see `reading`.
    """
    silent = 0
    with waits.noted(host or "the server") as request:
        for number in range(1, MAX_TRIES):
            try:
                return attempt()
            except Exception as error:
                silent += is_silence(error)
                least = pause(error)
                if silent >= MAX_SILENT_TRIES or is_over() or not passing(error) or least > MAX_PAUSE_SECONDS:
                    raise
                wait = least + random.uniform(0, min(MAX_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2**number))
                request.failed(f" (try {number + 1} of {MAX_TRIES} in {wait:.0f} s: {_reason(error)})", wait)
                parallel.sleep(wait)
        return attempt()


def final_hint(error: BaseException) -> str:
    """The hint for a request that the same command can never make; empty if the next try may succeed."""
    for cause in _causes(error):
        if isinstance(cause, FileNotFoundError) or "NO_CERTIFICATE" in str(getattr(cause, "reason", "")):
            return "check the file in SSL_CERT_FILE"
        if isinstance(cause, ssl.SSLCertVerificationError):
            return "if the server is right, name its certificate in SSL_CERT_FILE"
        if type(cause) is ssl.SSLError and "MAC" not in str(cause.reason):
            return "does the server speak TLS there, without certificates of its clients?"
        if "Tunnel connection failed: 4" in str(cause):
            return f"the proxy refuses: check {http_rules.proxy_variables()}"
    return ""


def unanswered(message: str, error: BaseException) -> RemoteError:
    """The error of a request that got no answer: UnansweredError if the next try may get one."""
    final = final_hint(error)
    return RemoteError(message, final) if final else UnansweredError(message, "check the network and the URL")


class UnansweredError(RemoteError):
    """No answer came, or none that can be understood. What was asked for may have been done all the same."""


@dataclass(frozen=True)
class Pace:
    """`timeout`: seconds of silence, and of the window over which the `rate` (bytes per second) is measured.

    `end`: the monotonic time at which the read ends; 0 means no limit for the rate, infinity none for the end.
    """

    timeout: float
    rate: float
    end: float


_pace: ContextVar[Pace | None] = ContextVar("pace", default=None)


class Meter:
    """The rate of one answer, over one window of waiting after another."""

    def __init__(self) -> None:
        self._begun = False
        self._waited = 0.0
        self._bytes = 0

    def read(self, source: Callable[[], bytes]) -> bytes:
        """Return the next bytes of an answer. TimeoutError if it is too slow, or if the read has no time left."""
        self.allowed(None)
        began = time.monotonic()
        data = source()
        self.count(len(data), began)
        return data

    def allowed(self, timeout: float | None) -> float | None:
        """The seconds that the next read may take. TimeoutError if there are none left."""
        pace = _pace.get()
        if pace is None or pace.end == float("inf"):
            return timeout
        seconds = pace.end - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("the file took longer than REG_READ_DEADLINE allows")
        return seconds if timeout is None else min(timeout, seconds)

    def count(self, size: int, began: float) -> None:
        """Note what came, and since when it was waited for. TimeoutError if the answer is too slow."""
        now, pace = time.monotonic(), _pace.get()
        waits.arrived(now)
        if pace is None or not self._begun:
            self._begun = True
            return
        self._bytes += size
        self._waited += now - began
        if self._waited < pace.timeout:
            return
        if size and self._bytes < pace.rate * self._waited:
            speed = self._bytes / self._waited
            raise TimeoutError(
                f"the server sends {speed:.0f} bytes per second, the least is {pace.rate:.0f} (REG_READ_RATE)"
            )
        self._waited, self._bytes = 0.0, 0


def metered(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Pass on the blocks of an answer, within the limits of the present read (see `reading`)."""
    meter, source = Meter(), iter(blocks)
    while block := meter.read(lambda: next(source, b"")):
        parallel.check_stop()
        yield block


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
