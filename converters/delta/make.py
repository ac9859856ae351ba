"""Makes a delta: pairs the tensors of two files, cuts the new one into sections, and encodes them block by block."""

import hashlib
import zlib
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from onnxreg.converters.delta.extents import TensorExtent, map_file
from onnxreg.schema.core.digest import Descriptor
from onnxreg.schema.core.progress import count_cores
from onnxreg.schema.delta.delta_format import (
    BLOCK_BYTES,
    COPY,
    DIFFERENCE,
    FLOAT,
    LITERAL,
    MAX_SHARE,
    SPARSE,
    DeltaHeader,
    Span,
)
from onnxreg.schema.delta.difference import encode, planes

LEVEL = 5
"""zlib's level for bytes that can be compressed: 6 saves 0.6 % more and takes 1.7 times as long."""
NOISE_BITS = 7.9
"""Bits a byte: a plane with a higher entropy is stored as it is."""
MAX_COPY_BYTES = 2**31
SAMPLES = 4
SAMPLE_BYTES = 32 * 1024
"""A tensor's mode is chosen on so many slices of so many bytes."""
MAX_CANDIDATES = 32
"""Old tensors of one type and shape that a tensor without a namesake is compared with."""
MIN_COPY_BYTES = 48
"""Shorter runs of equal bytes are not worth a span."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A file on disk, its digest and size, and the tensors in it (see `read_extents`)."""

    path: Path
    descriptor: Descriptor
    tensors: Sequence[TensorExtent] = ()


class Section(NamedTuple):
    """Bytes `start` to `start + length` of the new file.

    `old` is the offset of the old bytes that they resemble, None: literal bytes. `width` is 0 if they are equal.
    """

    start: int
    length: int
    old: int | None = None
    width: int = 0
    mode: int = 0


@dataclass(frozen=True)
class FileView:
    """A file's bytes (a mapping) and its tensors, in the order of their bytes."""

    data: Any
    tensors: Sequence[TensorExtent]

    def array(self, start: int, length: int, width: int = 1) -> Any:
        """Unsigned little-endian integers over a part of the file."""
        return np.frombuffer(self.data, f"<u{width}", length // width, start)

    def bytes(self, tensor: TensorExtent) -> Any:
        return self.array(tensor.start, tensor.length)

    def gaps(self) -> list[tuple[int, int]]:
        """Start and end of the bytes before, between and after the tensors: one more than there are tensors."""
        starts = [0, *(tensor.start + tensor.length for tensor in self.tensors)]
        ends = [*(tensor.start for tensor in self.tensors), len(self.data)]
        return list(zip(starts, ends, strict=True))


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
    payload = encode(new.array(start, length, width), old.array(source, length, width), mode)
    return Span(DIFFERENCE, length, 0, source, width, mode, _deflate(planes(payload, length, width, mode)))


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


def sections(old: FileView, new: FileView) -> Iterator[Section]:
    """Cut the new file into sections, in order."""
    partners = match_tensors(old, new)
    old_gaps = dict(zip(["", *(tensor.name for tensor in old.tensors)], old.gaps(), strict=True))
    last = ""
    for tensor, (start, end) in zip([*new.tensors, None], new.gaps(), strict=True):
        yield from _gap(old, new, start, end, old_gaps.get(last))
        if tensor is not None:
            partner = partners.get(tensor.start)
            last = tensor.name if partner is None else partner.name
            yield _tensor(old, new, tensor, partner)


def match_tensors(old: FileView, new: FileView) -> dict[int, TensorExtent]:
    """The old tensor for each new one (by its offset) that has one: by name, then by bytes, then by likeness."""
    by_name = {(tensor.name, tensor.kind): tensor for tensor in old.tensors}
    partners = {
        tensor.start: by_name[tensor.name, tensor.kind]
        for tensor in new.tensors
        if (tensor.name, tensor.kind) in by_name
    }
    used = {partner.start for partner in partners.values()}
    unpaired = [tensor for tensor in new.tensors if tensor.start not in partners]
    same_bytes = {_content(old, tensor): tensor for tensor in old.tensors} if unpaired else {}
    for tensor in unpaired:
        if (equal := same_bytes.get(_content(new, tensor))) is not None:
            partners[tensor.start] = equal
            used.add(equal.start)
    spare: dict[Any, list[TensorExtent]] = defaultdict(list)
    for tensor in old.tensors:
        if tensor.start not in used:
            spare[tensor.kind].append(tensor)
    for tensor in unpaired:
        candidates = spare[tensor.kind][:MAX_CANDIDATES]
        if tensor.start not in partners and candidates:
            nearest = min(candidates, key=lambda item: _choose_mode(old, new, tensor, item)[0])
            partners[tensor.start] = nearest
            spare[tensor.kind].remove(nearest)
    return partners


def _content(view: FileView, tensor: TensorExtent) -> tuple[int, bytes]:
    return tensor.length, hashlib.sha256(view.bytes(tensor)).digest()


def _tensor(old: FileView, new: FileView, tensor: TensorExtent, partner: TensorExtent | None) -> Section:
    """The section of a tensor: the difference to its partner, unless its bytes alone are smaller."""
    if partner is None:
        return Section(tensor.start, tensor.length)
    bits, mode = _choose_mode(old, new, tensor, partner)
    if bits >= _literal_bits(new, tensor):
        return Section(tensor.start, tensor.length)
    return Section(tensor.start, tensor.length, partner.start, tensor.width, mode)


def _choose_mode(
    old: FileView, new: FileView, tensor: TensorExtent, partner: TensorExtent
) -> tuple[int, int]:
    """The bits that a sample of the difference takes in its best mode, and that mode."""
    modes = (0, SPARSE, FLOAT, FLOAT | SPARSE) if tensor.is_float and tensor.width > 1 else (0, SPARSE)
    pairs = [
        (
            new.array(tensor.start + at, size, tensor.width),
            old.array(partner.start + at, size, tensor.width),
        )
        for at, size in _slices(tensor)
    ]
    costs = [(sum(_bits(*pair, mode) for pair in pairs), mode) for mode in modes]
    return min(costs)


def _bits(new: Any, old: Any, mode: int) -> int:
    """An estimate of the bits of a deflated difference; it follows from the bytes alone, not from a zlib build."""
    return sum(_entropy(plane) for plane in planes(encode(new, old, mode), new.nbytes, new.itemsize, mode))


def _literal_bits(new: FileView, tensor: TensorExtent) -> int:
    """The bits that the same sample takes by itself."""
    return sum(_entropy(new.array(tensor.start + at, size)) for at, size in _slices(tensor))


def _slices(tensor: TensorExtent) -> list[tuple[int, int]]:
    """Offset and size of the parts of a tensor that are its sample, evenly spread."""
    if tensor.length <= SAMPLES * SAMPLE_BYTES:
        return [(0, tensor.length)]
    step = (tensor.length - SAMPLE_BYTES) // (SAMPLES - 1) // 8 * 8
    return [(index * step, SAMPLE_BYTES) for index in range(SAMPLES)]


def _entropy(data: Any) -> int:
    """The bits of some bytes at their entropy (of order 0); a prefix code spends a bit on the commonest one."""
    if not data.size:
        return 0
    counts = np.bincount(data, minlength=256)
    shares = counts[counts > 0] / data.size
    bits = float(-(shares * np.log2(shares)).sum())
    return int(data.size * (bits * 1.25 if shares.max() > 0.5 else bits))


def _gap(
    old: FileView, new: FileView, start: int, end: int, old_gap: tuple[int, int] | None
) -> Iterator[Section]:
    """The bytes between tensors. What the same place of the old file has too is copied."""
    if start == end:
        return
    first, stop = old_gap or (0, 0)
    before, after = old.array(first, stop - first), new.array(start, end - start)
    head = _common(before, after)
    tail = _common(before[head:][::-1], after[head:][::-1])
    head, tail = (count if count >= MIN_COPY_BYTES else 0 for count in (head, tail))
    if head:
        yield Section(start, head, first)
    if start + head < end - tail:
        yield Section(start + head, end - tail - start - head)
    if tail:
        yield Section(end - tail, tail, stop - tail)


def _common(left: Any, right: Any) -> int:
    """The number of equal bytes at the beginning of two arrays."""
    size = min(left.size, right.size)
    different = np.flatnonzero(left[:size] != right[:size])
    return int(different[0]) if different.size else size
