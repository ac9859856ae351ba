"""Encodes a delta: the sections of a new file become spans, block by block, on all cores, in order."""

import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from onnxreg.converters.delta.extents import TensorExtent, map_file
from onnxreg.converters.delta.match import FileView, Section, sections
from onnxreg.schema.core.digest import Descriptor
from onnxreg.schema.core.progress import count_cores
from onnxreg.schema.delta import difference
from onnxreg.schema.delta.delta_format import (
    BLOCK_BYTES,
    COPY,
    DIFFERENCE,
    LITERAL,
    MAX_SHARE,
    DeltaHeader,
    Span,
)

LEVEL = 5
"""zlib's level for bytes that can be compressed: 6 saves 0.6 % more and takes 1.7 times as long."""
NOISE_BITS = 7.9
"""Bits a byte: a plane with a higher entropy is stored as it is."""
MAX_COPY_BYTES = 2**31


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A file on disk, its digest and size, and the tensors in it (see `read_extents`)."""

    path: Path
    descriptor: Descriptor
    tensors: Sequence[TensorExtent] = ()


def make_delta(old: ModelFile, new: ModelFile, sink: BinaryIO) -> int | None:
    """Write the delta from one file to another; its size in bytes, None if the two are not alike.

    The same two files give the same spans and modes, and with one build of zlib the same bytes. If None is returned,
    the sink has a part of a delta. Memory: a few blocks.
    """
    limit = new.descriptor.size * MAX_SHARE
    size = sink.write(DeltaHeader.of(new.descriptor, old.descriptor).to_bytes())
    with map_file(old.path) as old_data, map_file(new.path) as new_data:
        before, after = FileView(old_data, old.tensors), FileView(new_data, new.tensors)
        try:
            for span in _merge(_encode_all(before, after)):
                size += sink.write(span.encode())
                if size >= limit:
                    return None
        finally:
            del before, after
    return size if size < limit else None


def _encode_all(old: FileView, new: FileView) -> Iterator[Span]:
    """The spans of the new file. Threads encode the blocks, because zlib and numpy release the interpreter."""
    workers = count_cores()
    waiting: deque[Future[Span]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for section in _blocks(sections(old, new)):
                waiting.append(pool.submit(_encode, old, new, section))
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _blocks(items: Iterable[Section]) -> Iterator[Section]:
    """Sections of at most a block each."""
    for section in items:
        for at in range(0, section.length, BLOCK_BYTES):
            old = None if section.old is None else section.old + at
            length = min(BLOCK_BYTES, section.length - at)
            yield section._replace(start=section.start + at, length=length, old=old)


def _encode(old: FileView, new: FileView, section: Section) -> Span:
    """One span: a copy if the bytes are equal, whatever was planned."""
    start, length, source, width, mode = section
    data = new.array(start, length)
    if source is None:
        return Span(LITERAL, length, payload=_deflate([data]))
    if width == 0 or np.array_equal(data, old.array(source, length)):
        return Span(COPY, length, 0, source)
    payload = difference.encode(new.array(start, length, width), old.array(source, length, width), mode)
    return Span(
        DIFFERENCE, length, 0, source, width, mode, _deflate(difference.planes(payload, length, width, mode))
    )


def _deflate(parts: Sequence[Any]) -> bytes:
    """Raw deflated data (RFC 1951) of the parts one after another. Noise is stored: compressing it takes long."""
    out = []
    for index, part in enumerate(parts):
        level = 0 if _is_noise(part) else LEVEL
        deflater = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS, 9)
        out += [deflater.compress(part)]
        out += [deflater.flush(zlib.Z_FINISH if index == len(parts) - 1 else zlib.Z_SYNC_FLUSH)]
    return b"".join(out)


def _is_noise(part: Any) -> bool:
    counts = np.bincount(part, minlength=256)
    shares = counts[counts > 0] / part.size
    return float(-(shares * np.log2(shares)).sum()) > NOISE_BITS


def _merge(spans: Iterable[Span]) -> Iterator[Span]:
    """The spans with copies that follow each other joined."""
    last: Span | None = None
    for span in spans:
        if last is not None:
            if (
                last.op == span.op == COPY
                and last.offset + last.length == span.offset
                and last.length < MAX_COPY_BYTES
            ):
                last = last._replace(length=last.length + span.length)
                continue
            yield last
        last = span
    if last is not None:
        yield last
