"""A request body that reports how many of its bytes were sent.

A client may read a body more than once: to sign it, and again for every try. So nothing counts before `begin`, which the
client is made to call when it starts to send; going back takes back what counted.
"""

import io
from collections.abc import Iterator
from typing import Any, BinaryIO

from onnxreg.registry.support.cancellation import check_stop
from onnxreg.schema.core.progress import Advance

BLOCK_BYTES = 2**18
"""Bytes."""


def hand_over(source: Any) -> Advance:
    """Take over the progress reports of a stream: the caller reports the bytes moved, the stream no longer does."""
    method = getattr(source, "hand_over", None)
    advance: Advance = method() if method else lambda count: None
    return advance


class Borrowed(io.RawIOBase):
    """A file that somebody else closes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


class UploadBody(Borrowed):
    """A file whose reads are reported to `advance`. Closing it leaves the file open."""

    def __init__(self, file: BinaryIO, advance: Advance) -> None:
        super().__init__(file)
        self._advance = advance
        self._sending = False
        self._counted = 0

    def begin(self) -> None:
        """Count from now on: bytes that are read are sent."""
        self._sending = True

    def read(self, size: int = -1, /) -> bytes:
        check_stop()
        data = self._file.read(size)
        if self._sending:
            self._counted += len(data)
            self._advance(len(data))
        return data

    def rewind(self) -> int:
        """Go to the beginning; returns the size in bytes."""
        size = self._file.seek(0, io.SEEK_END)
        self._file.seek(0)
        return size

    def blocks(self) -> Iterator[bytes]:
        """Yield the bytes to send from here on, in blocks larger than a client would ask for."""
        self.begin()
        while data := self.read(BLOCK_BYTES):
            yield data

    def seek(self, offset: int, whence: int = 0, /) -> int:
        if self._sending:
            self._sending = False
            self._advance(-self._counted)
            self._counted = 0
        return super().seek(offset, whence)
