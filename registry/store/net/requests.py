"""Requests to servers: the errors of a failed one, retries, time limits, and streams that go on after a broken connection.

A server may be silent for `REG_READ_TIMEOUT` seconds. It has `REG_READ_DEADLINE` seconds for one file, in all its reads and
tries (`reading`): a server that sends a byte a second never lets a socket time out.
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

from onnxreg.registry.store.net import http_rules
from onnxreg.registry.support import environment, parallel
from onnxreg.schema.core.errors import InputError, RemoteError

LIMITS = {"REG_READ_TIMEOUT": 60.0, "REG_READ_DEADLINE": 86_400.0}
MAX_TRIES = 8
MAX_SILENT_TRIES = 2
"""Tries of them that may end because the server was silent."""
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
    if is_final(error):
        return RemoteError(
            message, f"check the certificate (SSL_CERT_FILE) and {http_rules.proxy_variables()}"
        )
    return UnansweredError(message, "check the network and the URL")


def is_final(error: BaseException) -> bool:
    """True for a request that the same command can never make: of TLS and certificates, or refused by a proxy."""
    return any(
        isinstance(cause, FileNotFoundError | ssl.SSLCertVerificationError)
        or (type(cause) is ssl.SSLError and "MAC" not in str(cause.reason))
        or "Tunnel connection failed: 4" in str(cause)
        for cause in _causes(error)
    )


def is_passing(error: Exception) -> bool:
    """True if a request that failed so may succeed the next time."""
    return isinstance(error, UnansweredError) or (
        isinstance(error, RefusedError) and error.status in PASSING_STATUS
    )


def retrying(
    attempt: Callable[[], Result],
    passing: Callable[[Exception], bool] = is_passing,
    pause: Callable[[Exception], float] = lambda error: getattr(error, "pause", 0.0),
) -> Result:
    """Return the result of `attempt`, called again, up to `MAX_TRIES` times, if it raises an error that is `passing`.

    `pause` gives the least seconds to wait after an error; above `MAX_PAUSE_SECONDS` there is no further try. A read ends
    with its time: see `reading`.
    """
    silent = 0
    for number in range(1, MAX_TRIES):
        try:
            return attempt()
        except Exception as error:
            silent += any(isinstance(cause, TimeoutError) for cause in _causes(error))
            least = pause(error)
            if silent >= MAX_SILENT_TRIES or _is_over() or not passing(error) or least > MAX_PAUSE_SECONDS:
                raise
            wait = min(MAX_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2**number)
            parallel.sleep(least + random.uniform(0, wait))
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


def setting(name: str) -> float:
    """A limit as the environment says, in seconds; infinite for 0. InputError if it is not a number, or is negative."""
    text = environment.read(name) or ""
    try:
        value = float(text) if text else LIMITS[name]
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise InputError(f"{name} is {text[:40]!r}", "set it to a number; 0 means no limit")
    return value or float("inf")


def timeout() -> float | None:
    """The seconds of silence after which a server counts as gone; None for no limit."""
    limit = setting("REG_READ_TIMEOUT")
    return limit if limit < float("inf") else None


def deadline() -> float:
    """The monotonic time at which a read that begins now must be over. A read within a read is part of it."""
    end = _read_end.get()
    return time.monotonic() + setting("REG_READ_DEADLINE") if end is None else end


@contextmanager
def reading(end: float | None = None) -> Iterator[None]:
    """Hold what is read within, such as one file in all its tries, to a deadline."""
    token = _read_end.set(deadline() if end is None else end)
    try:
        yield
    finally:
        _read_end.reset(token)


def _is_over() -> bool:
    return (_read_end.get() or float("inf")) <= time.monotonic()


def metered(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Pass on the blocks of an answer. TimeoutError if the present read has no time left (see `reading`)."""
    for block in blocks:
        parallel.check_stop()
        if _is_over():
            raise TimeoutError("the file took longer than REG_READ_DEADLINE allows")
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
        self._end = deadline()
        self._answer: ObjectAnswer | None = None
        self._tag, self._block = "", memoryview(b"")

    def opened(self) -> BinaryIO:
        """Request the object. RefusedError if it is absent."""
        self._advance(lambda answer: b"")
        return cast(BinaryIO, io.BufferedReader(self, READ_BYTES))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        if not self._block:
            self._block = memoryview(self._advance(lambda answer: next(metered(answer.blocks), b"")))
        count = min(len(buffer), len(self._block))
        buffer[:count] = self._block[:count]
        self._block = self._block[count:]
        self._offset += count
        return count

    def _advance(self, read: Callable[[ObjectAnswer], bytes]) -> bytes:
        def attempt() -> bytes:
            try:
                if self._answer is None:
                    self._answer = self._begin(self._offset, self._tag)
                    self._tag = self._answer.tag
                return read(self._answer)
            except BaseException:
                self._drop()
                raise

        with reading(self._end):
            return self._ask(attempt)

    def _drop(self) -> None:
        if self._answer is not None:
            self._answer.close()
        self._answer = None

    def close(self) -> None:
        self._drop()
        super().close()
