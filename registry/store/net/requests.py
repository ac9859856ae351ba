"""Requests to servers: the errors of a failed one, retries, the pace that an answer must keep, and streams that go on.

A read has limits of silence, of its rate, and of its time. A file that is read in blocks has one deadline for all of
them: see `waits.FileBudget`. A server that sends a byte a second never lets a socket time out. So the bytes of each
block of an answer are counted (`Meter`): only the time that is spent waiting for the server counts, and only once its
answer has begun.
"""

import io
import random
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from email.message import Message
from typing import Any, BinaryIO, NamedTuple, TypeVar, cast

from onnxreg.registry.store.net import http_rules, waits
from onnxreg.registry.store.net.waits import DEFAULTS, FileBudget, setting
from onnxreg.registry.support import parallel
from onnxreg.schema.core.errors import RemoteError, why

MAX_TRIES = 8
MAX_SILENT_TRIES = 2
"""Tries of them that may end because the server was silent or too slow."""
FIRST_WAIT_SECONDS, MAX_WAIT_SECONDS = 0.1, 5.0
"""Before try n + 1 a random time up to FIRST_WAIT_SECONDS * 2**n passes, never more than MAX_WAIT_SECONDS."""
MAX_PAUSE_SECONDS = 300
"""The longest pause that a server may ask for; if it asks for a longer one, the error says until when."""
PASSING_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
READ_BYTES = 2**16
Result = TypeVar("Result")
_read_end: ContextVar[float | None] = ContextVar("read_end", default=None)
"""The monotonic time at which the present read ends."""


class RefusedError(RemoteError):
    """The server answered, and refused. `reason` is a code of the service's own, if there is one."""

    def __init__(
        self, message: str, status: int, hint: str, headers: Message | None = None, reason: str = ""
    ) -> None:
        self.headers = headers or Message()
        self.pause = http_rules.pause_seconds(self.headers)
        super().__init__(message, http_rules.later(self.pause) if status in PASSING_STATUS else hint)
        self.status = status
        self.reason = reason


class UnansweredError(RemoteError):
    """No answer came, or none that can be understood. What was asked for may have been done all the same."""


def unanswered(message: str, error: BaseException) -> RemoteError:
    """The error of a request that got no answer: UnansweredError if the next try may get one."""
    final = final_hint(error)
    return RemoteError(message, final) if final else UnansweredError(message, "check the network and the URL")


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


def is_passing(error: Exception) -> bool:
    """True if a request that failed so may succeed the next time."""
    return isinstance(error, UnansweredError) or (
        isinstance(error, RefusedError) and error.status in PASSING_STATUS
    )


def retrying(
    attempt: Callable[[], Result],
    passing: Callable[[Exception], bool] = is_passing,
    host: str = "",
    pause: Callable[[Exception], float] = lambda error: getattr(error, "pause", 0.0),
) -> Result:
    """Return the result of `attempt`, called again, up to `MAX_TRIES` times, if it raises an error that is `passing`.

    `host` is shown to those who watch. `pause` gives the least seconds to wait after an error; above
    `MAX_PAUSE_SECONDS` there is no further try. A read ends with its time: see `reading`.
    """
    silent = 0
    with waits.noted(host or "the server") as request:
        for number in range(1, MAX_TRIES):
            try:
                return attempt()
            except Exception as error:
                *_, cause = causes = list(_causes(error))
                silent += any(isinstance(item, TimeoutError) for item in causes)
                least = pause(error)
                if silent >= MAX_SILENT_TRIES or is_over() or not passing(error) or least > MAX_PAUSE_SECONDS:
                    raise
                wait = least + random.uniform(0, min(MAX_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2**number))
                reason = why(cause)[:60] if isinstance(cause, OSError) else type(error).__name__
                request.failed(f" (try {number + 1} of {MAX_TRIES} in {wait:.0f} s: {reason})", wait)
                parallel.sleep(wait)
        return attempt()


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and those that led to it."""
    cause: BaseException | None = error
    for _ in range(10):
        if cause is None:
            return
        yield cause
        reason = getattr(cause, "reason", None)
        cause = reason if isinstance(reason, BaseException) else cause.__cause__ or cause.__context__


@contextmanager
def reading(budget: FileBudget | None = None) -> Iterator[None]:
    """Hold what is read within to the limits; `budget` is that of the file. A read within a read is part of it."""
    if _read_end.get() is not None:
        yield
        return
    with (budget or FileBudget.current()).spent() as end:
        token = _read_end.set(end)
        try:
            yield
        finally:
            _read_end.reset(token)


def timeout() -> float | None:
    """The seconds of silence after which a server counts as gone; None for no limit."""
    return setting("REG_READ_TIMEOUT") or None


def is_over() -> bool:
    """True if the present read has no time left."""
    end = _read_end.get()
    return end is not None and end <= time.monotonic()


class Meter:
    """The rate of one answer, over one window of waiting after another."""

    def __init__(self) -> None:
        self._window = setting("REG_READ_TIMEOUT") or DEFAULTS["REG_READ_TIMEOUT"]
        self._rate = setting("REG_READ_RATE")
        self._has_begun = False
        self._waited, self._bytes = 0.0, 0

    def read(self, source: Callable[[], bytes]) -> bytes:
        """Return the next bytes of an answer. TimeoutError if it is too slow, or if the read has no time left."""
        if is_over():
            raise TimeoutError("the file took longer than REG_READ_DEADLINE allows")
        began = time.monotonic()
        data = source()
        now = time.monotonic()
        waits.arrived(now)
        if not self._has_begun:
            self._has_begun = True
            return data
        self._bytes += len(data)
        self._waited += now - began
        if self._waited >= self._window:
            if data and self._bytes < self._rate * self._waited:
                speed = self._bytes / self._waited
                raise TimeoutError(
                    f"the server sends {speed:.0f} bytes per second, the least is {self._rate:.0f} (REG_READ_RATE)"
                )
            self._waited, self._bytes = 0.0, 0
        return data


def metered(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Pass on the blocks of an answer, within the limits of the present read (see `reading`)."""
    meter, source = Meter(), iter(blocks)
    while block := meter.read(lambda: next(source, b"")):
        parallel.check_stop()
        yield block


class ObjectAnswer(NamedTuple):
    """An answer with an object from an offset on. `tag` identifies its content; empty if that is not known."""

    blocks: Iterator[bytes]
    tag: str
    close: Callable[[], object] = lambda: None


class ObjectStream(io.RawIOBase):
    """An object from an offset on. If the connection breaks, the rest of that very object is requested.

    Args:
        begin: requests the object from an offset on; with a tag that is not empty, of the object with that tag.
        ask: calls a function, again after a passing failure.
    """

    def __init__(
        self,
        begin: Callable[[int, str], ObjectAnswer],
        ask: Callable[[Callable[[], bytes]], bytes],
        start: int,
    ) -> None:
        self._begin, self._ask, self._offset = begin, ask, start
        self._budget = FileBudget.current()
        self._answer: ObjectAnswer | None = None
        self._meter = Meter()
        self._tag, self._block = "", memoryview(b"")

    def opened(self) -> BinaryIO:
        """Request the object. RefusedError if it is absent."""
        self._advance(lambda answer: b"")
        return cast(BinaryIO, io.BufferedReader(self, READ_BYTES))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        if not self._block:
            next_block = self._advance(lambda answer: self._meter.read(lambda: next(answer.blocks, b"")))
            self._block = memoryview(next_block)
        count = min(len(buffer), len(self._block))
        buffer[:count] = self._block[:count]
        self._block = self._block[count:]
        self._offset += count
        return count

    def _advance(self, read: Callable[[ObjectAnswer], bytes]) -> bytes:
        def attempt() -> bytes:
            try:
                if self._answer is None:
                    self._answer, self._meter = self._begin(self._offset, self._tag), Meter()
                    self._tag = self._answer.tag
                return read(self._answer)
            except BaseException:
                self._drop()
                raise

        with reading(self._budget):
            return self._ask(attempt)

    def _drop(self) -> None:
        if self._answer is not None:
            self._answer.close()
        self._answer = None

    def close(self) -> None:
        self._drop()
        super().close()
