"""Writing large files past the page cache, if system and file system can (Linux: O_DIRECT, see open(2)).

The cache would take a copy of every byte, and make the writer wait for the disk at the end instead of meanwhile.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from onnxreg.registry.store.streams import Sink

ALIGNMENT_BYTES = 4096
"""Offset, length and memory address of direct writes are multiples of it; the rest is written as usual."""

MIN_DIRECT_BYTES = 2**20
"""Files with fewer bytes are better left to the cache, which writes many of them at once."""


@contextmanager
def past_cache(file: BinaryIO, offset: int) -> Iterator[Sink]:
    """A sink for the file's bytes from an offset on. Afterwards the file is written in the usual way again."""
    file.seek(offset)
    if not hasattr(os, "O_DIRECT"):
        yield file
        return
    file.flush()
    sink = _Direct(file.fileno(), offset)
    try:
        yield sink
    finally:
        sink.switch(False)


class _Direct:
    def __init__(self, descriptor: int, offset: int) -> None:
        self._descriptor = descriptor
        self._offset = offset
        self._able = True
        self._on = False

    def write(self, data: memoryview, /) -> None:
        while data:
            fits = self._offset % ALIGNMENT_BYTES == 0 and len(data) % ALIGNMENT_BYTES == 0
            self.switch(fits and self._able)
            try:
                count = os.pwrite(self._descriptor, data, self._offset)
            except OSError as error:
                if not self._on or error.errno != errno.EINVAL:
                    raise
                self._able, count = False, 0
            self._offset += count
            data = data[count:]

    def switch(self, on: bool) -> None:
        """Turn direct I/O on or off; nothing happens if the file system has none."""
        import fcntl

        if on == self._on:
            return
        flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL) & ~os.O_DIRECT
        try:
            fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags | (os.O_DIRECT if on else 0))
            self._on = on
        except OSError:
            self._able = False
