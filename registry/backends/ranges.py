"""A stream over an object that is fetched range by range, a few of them ahead and at once.

A range that fails is fetched again by whoever fetches it; those that arrived stay. So a broken connection costs one
range, and memory is bounded by `BLOCK` for each stream and `AHEAD` blocks for all streams of a store together.
"""

import io
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Any

from onnxreg.registry.stopping import submit

BLOCK = 4 * 2**20
"""Bytes of a range."""
AHEAD = 6
"""So many blocks are kept by all streams of one store together, beside the one that each of them hands out."""
DEPTH = 3
"""So many of them by one stream."""

Fetch = Callable[[int, int], bytearray]
"""The object's bytes from the first offset up to the second, exactly so many; raises RegError where it cannot."""


class ReadAhead:
    """The threads and the memory that the streams of one store share."""

    def __init__(self) -> None:
        self._slots = threading.Semaphore(AHEAD)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(AHEAD, thread_name_prefix="read-ahead")

    def begin(self, fetch: Fetch, start: int, stop: int) -> "Future[bytearray] | None":
        """Start fetching a range; None where there is no memory for it now. `end` gives the memory back."""
        return submit(self._pool, fetch, start, stop) if self._slots.acquire(blocking=False) else None

    def end(self) -> None:
        self._slots.release()


class RangedReader(io.RawIOBase):
    """The object's bytes in order, from `start` on. `first` are those that are known already."""

    def __init__(self, fetch: Fetch, first: bytearray, size: int, ahead: ReadAhead, start: int = 0) -> None:
        self._fetch = fetch
        self._size = size
        self._ahead = ahead
        self._block = memoryview(first)
        self._asked = start + len(first)
        self._coming: deque[Future[bytearray]] = deque()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        if not self._block:
            self._advance()
        target = memoryview(buffer).cast("B")
        piece = self._block[: len(target)]
        target[: len(piece)] = piece
        self._block = self._block[len(piece) :]
        self._look_ahead()
        return len(piece)

    def _advance(self) -> None:
        """Make the next range the present block; none is left at the end."""
        self._block = memoryview(b"")
        if self._coming:
            try:
                self._block = memoryview(self._coming.popleft().result())
            finally:
                self._ahead.end()
        elif self._asked < self._size:
            start, self._asked = self._asked, min(self._asked + BLOCK, self._size)
            self._block = memoryview(self._fetch(start, self._asked))

    def _look_ahead(self) -> None:
        while self._asked < self._size and len(self._coming) < DEPTH:
            stop = min(self._asked + BLOCK, self._size)
            coming = self._ahead.begin(self._fetch, self._asked, stop)
            if coming is None:
                return
            self._coming.append(coming)
            self._asked = stop

    def close(self) -> None:
        while self._coming:
            self._coming.popleft().cancel()
            self._ahead.end()
        super().close()
