"""The limits of remote reads as the environment sets them, and what is left of them for one file. Light: no network here."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from onnxreg.registry.support import environment
from onnxreg.schema.core.errors import InputError

DEFAULTS = {"REG_READ_TIMEOUT": 60.0, "REG_READ_RATE": 100.0, "REG_READ_DEADLINE": 86_400.0}
"""Seconds; bytes per second; seconds. A phone at 4 kB/s that reads 14 blocks at a time keeps the rate, and gets 345 MB a day."""
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
    """The seconds for which one file may keep its reader waiting. Reads at the same time count once, and others' work not at all."""

    def __init__(self) -> None:
        self._left = setting("REG_READ_DEADLINE") or float("inf")
        self._reads = 0
        self._since = 0.0
        self._lock = threading.Lock()

    @classmethod
    def current(cls) -> "FileBudget":
        """That of the file which this thread fetches, or a new one."""
        return _file.get() or cls()

    @contextmanager
    def spent(self) -> Iterator[float]:
        """Let a read spend of it; gives the monotonic time at which nothing is left."""
        with self._lock:
            if not self._reads:
                self._since = time.monotonic()
            self._reads += 1
            end = self._since + self._left
        try:
            yield end
        finally:
            with self._lock:
                self._reads -= 1
                if not self._reads:
                    self._left -= time.monotonic() - self._since


@contextmanager
def one_file() -> Iterator[None]:
    """Let all that is read within count as one file, also if it is opened again."""
    token = _file.set(FileBudget())
    try:
        yield
    finally:
        _file.reset(token)
