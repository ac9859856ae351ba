"""Waiting for servers: the limits that the environment sets, the time that one file has, and the requests under way.

Light: no network here.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from onnxreg.registry.support import environment
from onnxreg.schema.core.errors import InputError

DEFAULTS = {"REG_READ_TIMEOUT": 60.0, "REG_READ_RATE": 100.0, "REG_READ_DEADLINE": 86_400.0}
"""Seconds; bytes per second; seconds. A phone at 4 kB/s that reads 14 blocks at a time keeps the rate, and gets 345 MB a day."""
SHOWN_AFTER_SECONDS = 2.0
"""Seconds without a byte after which a request is worth a word."""
_file: ContextVar["FileBudget | None"] = ContextVar("file", default=None)


def setting(name: str) -> float:
    """A limit as the environment says. InputError if it is not a number, or is negative."""
    text = environment.read(name) or ""
    try:
        value = float(text) if text else DEFAULTS[name]
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise InputError(f"{name} is {text[:40]!r}", "set it to a number; 0 means no limit")
    return value


class FileBudget:
    """The seconds for which one file may keep its reader waiting, in all its reads and tries."""

    def __init__(self) -> None:
        self._left = setting("REG_READ_DEADLINE") or float("inf")

    @classmethod
    def current(cls) -> "FileBudget":
        """That of the file which this thread fetches, or a new one."""
        return _file.get() or cls()

    @contextmanager
    def spent(self) -> Iterator[float]:
        """Let a read spend of it; gives the monotonic time at which nothing is left."""
        began = time.monotonic()
        try:
            yield began + self._left
        finally:
            self._left -= time.monotonic() - began


@contextmanager
def one_file() -> Iterator[None]:
    """Let all that is read within count as one file, also if it is opened again."""
    token = _file.set(FileBudget())
    try:
        yield
    finally:
        _file.reset(token)


@dataclass
class PendingRequest:
    """A request under way. `since`: the monotonic time of its start, or of the last byte; `note`: the failures so far."""

    host: str
    since: float
    note: str = ""
    is_shown: bool = False

    def failed(self, note: str, pause: float = 0.0) -> None:
        """Note why a try failed, and the seconds until the next one."""
        self.note = note
        waited = time.monotonic() - self.since + pause
        if tell is not None and not self.is_shown and waited >= SHOWN_AFTER_SECONDS:
            self.is_shown = True
            tell(str(self))

    def __str__(self) -> str:
        return f"waiting for {self.host}, {time.monotonic() - self.since:.0f} s{self.note}"


tell: Callable[[str], None] | None = None
"""Called once for a request that fails for long, if no progress display is drawn."""

_requests: dict[int, PendingRequest] = {}
"""The request of each thread, by the thread's number."""


@contextmanager
def noted(host: str) -> Iterator[PendingRequest]:
    """Let it be seen that this thread waits for a host."""
    thread = threading.get_ident()
    outer = _requests.get(thread)
    request = _requests[thread] = PendingRequest(host, time.monotonic())
    try:
        yield request
    finally:
        _requests.pop(thread)
        if outer is not None:
            _requests[thread] = outer


def arrived(now: float) -> None:
    """Note that the server sent something."""
    request = _requests.get(threading.get_ident())
    if request is not None:
        request.since, request.note = now, ""


def shown() -> str:
    """A few words on the request that has waited the longest, or that failed; empty if all is well."""
    quiet = time.monotonic() - SHOWN_AFTER_SECONDS
    slow = [request for request in list(_requests.values()) if request.note or request.since <= quiet]
    return str(min(slow, key=lambda request: request.since)) if slow else ""
