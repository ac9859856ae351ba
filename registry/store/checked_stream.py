"""A stream that verifies the digest of its bytes before it reports the end."""

import hashlib
import io
from collections.abc import Sequence
from typing import Any, BinaryIO

from onnxreg.registry.store import hash_stream
from onnxreg.registry.store.protocol import Piece
from onnxreg.registry.store.upload_body import hand_over
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.progress import Advance


class CheckedStream(io.RawIOBase):
    """The source's bytes, hashed as they pass. Reading at the end raises IntegrityError if the digest differs.

    `pieces` are their stated parts, which are not checked here.
    """

    def __init__(self, source: BinaryIO, expected: Digest, pieces: Sequence[Piece] = ()) -> None:
        self._source: Any = source
        self._expected = expected
        self.pieces = pieces
        self._hasher = hashlib.sha256()
        self.size = 0

    def readable(self) -> bool:
        return True

    def hand_over(self) -> Advance:
        return hand_over(self._source)

    def readinto(self, buffer: Any, /) -> int:
        if hasattr(self._source, "readinto"):
            count: int = self._source.readinto(buffer)
        else:
            data = self._source.read(len(buffer))
            count = len(data)
            buffer[:count] = data
        if not count:
            actual = Digest(self._hasher.hexdigest())
            hash_stream.check(actual, self._expected, f"blob {self._expected}")
        self._hasher.update(memoryview(buffer)[:count])
        self.size += count
        return count
