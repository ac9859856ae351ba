"""The servers that requests wait for at present, for those who draw progress."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

SHOWN_AFTER_SECONDS = 2.0
"""Seconds without a byte after which a request is worth a word."""


@dataclass
class PendingRequest:
    """A request under way. `since`: the monotonic time of its start, or of the last byte; `note`: the failures so far."""

    host: str
    since: float
    note: str = ""
    is_shown: bool = False

    def failed(self, note: str) -> None:
        """Note why a try failed."""
        self.note = note
        if tell is not None and not self.is_shown and time.monotonic() - self.since >= SHOWN_AFTER_SECONDS:
            self.is_shown = True
            tell(str(self))

    def __str__(self) -> str:
        return f"waiting for {self.host}, {time.monotonic() - self.since:.0f} s{self.note}"


tell: Callable[[str], None] | None = None
"""Called once for a request that fails for long, if no progress display is drawn."""

_requests: dict[int, PendingRequest] = {}
_current: ContextVar[PendingRequest | None] = ContextVar("request", default=None)


@contextmanager
def noted(host: str) -> Iterator[PendingRequest]:
    """Let it be seen that this thread waits for a host."""
    request = PendingRequest(host, time.monotonic())
    thread = threading.get_ident()
    before = _requests.get(thread)
    _requests[thread] = request
    token = _current.set(request)
    try:
        yield request
    finally:
        _current.reset(token)
        if before is None:
            _requests.pop(thread, None)
        else:
            _requests[thread] = before


def arrived(now: float) -> None:
    """Note that the server sent something."""
    request = _current.get()
    if request is not None:
        request.since = now
        request.note = ""


def shown() -> str:
    """A few words on the request that has waited the longest, or that failed; empty if all is well."""
    now = time.monotonic()
    slow_requests = [
        request
        for request in list(_requests.values())
        if request.note or now - request.since >= SHOWN_AFTER_SECONDS
    ]
    if not slow_requests:
        return ""
    return str(min(slow_requests, key=lambda request: request.since))
