"""Applies a delta: old files and a delta in, the bytes of the new file out. Needs numpy; memory: a few blocks."""

from collections.abc import Iterator, Sequence
from typing import BinaryIO

from onnxreg.schema.core.errors import InputError
from onnxreg.schema.delta.delta_format import (
    BLOCK_BYTES,
    COPY,
    LITERAL,
    DeltaHeader,
    inflate,
    read_spans,
)


def apply(
    delta: BinaryIO, header: DeltaHeader, old: Sequence[BinaryIO], start: int = 0
) -> Iterator[memoryview]:
    """The bytes of the new file from `start` on, in parts of at most a block.

    `delta` is a stream behind its header; `old` are the files that the header names, in its order, open for
    random access. InputError if the delta is malformed, or an old file is shorter than it says. The caller checks
    the digest of what comes out.
    """
    from onnxreg.schema.delta import difference

    at = 0
    for span in read_spans(delta, header):
        skip = min(span.length, max(0, start - at))
        at += span.length
        if skip == span.length:
            continue
        if span.op == COPY:
            yield from _copy(old[span.source], span.offset + skip, span.length - skip)
        elif span.op == LITERAL:
            yield memoryview(inflate(span.payload, span.length))[skip:]
        else:
            before = b"".join(_copy(old[span.source], span.offset, span.length))
            yield memoryview(difference.restore(span, before))[skip:]


def _copy(file: BinaryIO, offset: int, length: int) -> Iterator[memoryview]:
    file.seek(offset)
    while length:
        data = file.read(min(length, BLOCK_BYTES))
        if not data:
            raise InputError("an old file is shorter than the delta says")
        length -= len(data)
        yield memoryview(data)
