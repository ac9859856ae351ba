"""A stream over an object that is fetched range by range, a few of them ahead and at once.

A range that fails is fetched again by its fetcher; those that arrived stay. So a broken connection costs one
range, and memory is bounded by `RANGE_BYTES` for each stream and `MAX_BLOCKS_AHEAD` blocks for all streams of a store together.

Some servers read a whole object for each range of it. Their answers tell (see `Waits`), and then each stream requests
all that is left at once, and reads one range after the other from that answer.
"""

import io
import mmap
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from onnxreg.registry.store.protocol import CHUNK_BYTES
from onnxreg.registry.support.parallel import check_stop, submit

RANGE_BYTES = 4 * 2**20
"""Bytes of a range."""
MAX_BLOCKS_AHEAD = 6
"""Blocks that all streams of one store keep together, in addition to the one that each of them hands out."""
MAX_BLOCKS_PER_STREAM = 3
"""Blocks that one stream keeps ahead."""

LONG_WAIT_SECONDS = 0.05
LONG_WAIT_RATIO = 4
"""A wait for an answer is long above both: so many seconds, and so many times the shortest wait plus the transfer."""
MAX_LONG_WAITS = 3
"""After so many long waits in a row the server is one that reads whole objects."""

Fetch = Callable[[int, memoryview, int], None]
"""Fills memory with the object's bytes from an offset on; raises RegError if it cannot. The third argument is the end of
the bytes that are read next, one after the other: a request for all of them may be made.
"""


@dataclass(frozen=True)
class Block:
    """The memory of one range, which begins at a page, and how many of its first bytes are the object's."""

    memory: memoryview
    size: int


class Waits:
    """The waits for the answers of one server, from a request to its first byte.

    A server that seeks answers a range as soon as a small object, however far away it is. One that reads the whole
    object first lets every range wait much longer, also compared with the transfer of its bytes.
    """

    def __init__(self) -> None:
        self._shortest = float("inf")
        self._long = 0

    @property
    def are_long(self) -> bool:
        return self._long >= MAX_LONG_WAITS

    def note(self, wait: float, transfer: float) -> None:
        """Note the seconds until an answer began, and those in which its bytes came."""
        self._shortest = min(self._shortest, wait)
        is_long = wait > max(LONG_WAIT_SECONDS, LONG_WAIT_RATIO * (self._shortest + transfer))
        if not self.are_long:
            self._long = self._long + 1 if is_long else 0


EMPTY_BLOCK = Block(memoryview(b""), 0)


class ReadAhead:
    """The threads and the memory that the streams of one store share."""

    def __init__(self) -> None:
        self._slots = threading.Semaphore(MAX_BLOCKS_AHEAD)
        self._free: list[memoryview] = []
        self.waits = Waits()

    def memory(self) -> memoryview:
        """Memory for one range; used pages first, since fresh pages cost time."""
        try:
            return self._free.pop()
        except IndexError:
            return memoryview(mmap.mmap(-1, RANGE_BYTES))

    def give_back(self, memory: memoryview) -> None:
        """Let another range have the memory, to which nobody writes any more."""
        if len(self._free) < MAX_BLOCKS_AHEAD:
            self._free.append(memory)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(MAX_BLOCKS_AHEAD, thread_name_prefix="read-ahead")

    def fetch(self, fetch: Fetch, start: int, size: int, stop: int) -> Block:
        memory = self.memory()
        fetch(start, memory[:size], stop)
        return Block(memory, size)

    def begin(self, fetch: Fetch, start: int, size: int, stop: int) -> "Future[Block] | None":
        """Start fetching a range; None if there may be no more of them now. `end` allows the next one."""
        if not self._slots.acquire(blocking=False):
            return None
        return submit(self._pool, self.fetch, fetch, start, size, stop)

    def end(self) -> None:
        self._slots.release()


class RangedReader(io.RawIOBase):
    """The object's bytes in order, from `start` on. `first` are those that are known already; `end` is called at the end."""

    def __init__(
        self,
        fetch: Fetch,
        first: Block,
        size: int,
        ahead: ReadAhead,
        start: int = 0,
        end: Callable[[], None] = lambda: None,
    ) -> None:
        self._fetch = fetch
        self._end = end
        self._size = size
        self._ahead = ahead
        self._block = first
        self._at = 0
        self._asked = start + first.size
        self._coming: deque[Future[Block]] = deque()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        target = memoryview(buffer).cast("B")
        piece = self.take(len(target))
        target[: len(piece)] = piece
        return len(piece)

    def take(self, limit: int) -> memoryview:
        """The next bytes, at most `limit`, without a copy: valid until the next call. Empty at the end."""
        if self._at == self._block.size:
            self._advance()
        piece = self._block.memory[self._at : min(self._at + limit, self._block.size)]
        self._at += len(piece)
        self._look_ahead()
        return piece

    def _advance(self) -> None:
        """Make the next range the present block; none is left at the end."""
        if self._block is not EMPTY_BLOCK:
            self._ahead.give_back(self._block.memory)
        self._block, self._at = EMPTY_BLOCK, 0
        if self._coming:
            try:
                self._block = self._coming.popleft().result()
            finally:
                self._ahead.end()
        elif self._asked < self._size:
            self._block = self._ahead.fetch(self._fetch, *self._next())
            self._asked += self._block.size

    def _next(self) -> tuple[int, int, int]:
        """The start and size of the next range, and the end of the request that it may be a part of."""
        size = min(RANGE_BYTES, self._size - self._asked)
        return self._asked, size, self._size if self._ahead.waits.are_long else self._asked + size

    def _look_ahead(self) -> None:
        """Begin the next ranges; only one of a request for all that is left, whose bytes come in order."""
        while self._asked < self._size:
            if len(self._coming) >= (1 if self._ahead.waits.are_long else MAX_BLOCKS_PER_STREAM):
                return
            start, size, stop = self._next()
            coming = self._ahead.begin(self._fetch, start, size, stop)
            if coming is None:
                return
            self._coming.append(coming)
            self._asked += size

    def close(self) -> None:
        while self._coming:
            self._coming.popleft().cancel()
            self._ahead.end()
        self._end()
        super().close()


@dataclass(frozen=True, slots=True)
class ByteRange:
    """A part of an object: how many bytes came, the object's ETag, and the bytes that the whole object has.

    `wait` and `transfer` are the seconds until the answer began, and until it was read; None if that was not measured.
    """

    count: int
    tag: str
    size: int
    wait: float | None = None
    transfer: float = 0.0


@dataclass
class OpenAnswer:
    """An answer whose bytes from the offset `at` on are read later; `head` says what was read first."""

    body: Any = None
    at: int = 0
    head: ByteRange | None = None

    def read(self, start: int, memory: memoryview) -> ByteRange | None:
        """Fill the memory, if these are the bytes that come next; else return None. After a failure none are next."""
        head, body = self.head, self.body
        if head is None or self.at != start:
            return None
        self.head = None
        fill(memory, body)
        self.head = head
        self.at += len(memory)
        return ByteRange(len(memory), head.tag, head.size)

    def hold(self, body: Any, at: int, head: ByteRange) -> None:
        """Read another answer from now on."""
        self.close()
        self.body, self.at, self.head = body, at, head

    def close(self) -> None:
        self.head = None
        if self.body is not None:
            self.body.close()
            self.body = None


@dataclass(frozen=True, slots=True)
class RangeRequest:
    """A request for an object's bytes from `start` on, as many as there is memory for; with a `tag`, of that very object.

    `doing` completes 'while ...'. With an `answer`, these bytes are read from it if they come next there; else it gets
    the bytes after them, up to `stop`, of one request for all.
    """

    doing: str
    key: str
    start: int
    memory: memoryview
    tag: str = ""
    stop: int = 0
    answer: OpenAnswer | None = None

    @property
    def end(self) -> int:
        return max(self.stop, self.start + len(self.memory))

    def read_on(self) -> ByteRange | None:
        """Read from the open answer; None without one, or if other bytes come next."""
        return None if self.answer is None else self.answer.read(self.start, self.memory)


def fill(memory: memoryview, stream: Any) -> None:
    """Fill the memory exactly; ConnectionError if fewer bytes come."""
    end = 0
    while end < len(memory) and (count := stream.readinto(memory[end : end + CHUNK_BYTES])):
        check_stop()
        end += count
    if end != len(memory):
        raise ConnectionError(f"{end:,} of {len(memory):,} bytes arrived")
