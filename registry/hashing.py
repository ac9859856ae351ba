"""Hash while you copy: bytes are read once on their way in and once on their way out."""

import hashlib
from collections.abc import Callable
from typing import BinaryIO, Protocol

from onnxreg.registry.storage import CHUNK
from onnxreg.schema.digest import Digest
from onnxreg.schema.errors import IntegrityError


class Sink(Protocol):
    def write(self, data: memoryview, /) -> object: ...


class Hasher(Protocol):
    def update(self, data: memoryview, /) -> None: ...

    def hexdigest(self) -> str: ...


def pump(
    source: BinaryIO,
    sink: Sink | None,
    tick: Callable[[int], None] | None = None,
    hasher: Hasher | None = None,
) -> tuple[Digest, int]:
    """Move a stream's bytes into a sink (None: nowhere), hashing them as they pass.

    `tick` is told the bytes moved since the last call; a `hasher` has seen the bytes before these. Returns digest and
    size. Memory: one block of 1 MiB.
    """
    hasher = hasher or hashlib.sha256()
    block = bytearray(CHUNK)
    view = memoryview(block)
    total = 0
    readinto = getattr(source, "readinto", None)
    while True:
        if readinto is not None:
            count = readinto(block)
        else:
            data = source.read(CHUNK)
            count = len(data)
            view[:count] = data
        if not count:
            return Digest(hasher.hexdigest()), total
        piece = view[:count]
        hasher.update(piece)
        if sink is not None:
            sink.write(piece)
        total += count
        if tick is not None:
            tick(count)


def check(found: Digest, expected: Digest, what: str) -> None:
    """IntegrityError where some bytes are not the ones that their name says."""
    if found != expected:
        raise IntegrityError(
            f"{what} is damaged: its bytes have the digest {found.short}..., not {expected.short}...",
            "fetch a good copy: reg verify --repair --from REMOTE",
        )
