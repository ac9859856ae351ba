"""Answers to requests for a part of an object."""

from dataclasses import dataclass
from typing import Any

from onnxreg.registry.store.protocol import CHUNK_BYTES
from onnxreg.registry.support.parallel import check_stop


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
