"""Make a delta: pair the tensors of two files, cut the new file into spans, and encode each span."""

import hashlib
import json
import mmap
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from math import prod
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import numpy as np

from onnxreg.converters.onnx.tensors import ELEMENTS, FLOATS, MAX_AXES, dims_of, tensor_bytes, type_of
from onnxreg.converters.onnx.wire import GRAPH, INITIALIZER, RAW_DATA, fields
from onnxreg.schema.core.canonical import Count, Descriptor, convert
from onnxreg.schema.core.units import count_cores
from onnxreg.schema.delta.delta_format import (
    BLOCK_BYTES,
    COPY,
    DIFFERENCE,
    FLOAT,
    LITERAL,
    MAX_SHARE,
    SPARSE,
    WIDTHS,
    DeltaHeader,
    Span,
)
from onnxreg.schema.delta.difference import encode, planes

MIN_TENSOR_BYTES = 256
SAFETENSORS_FLOATS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
LEVEL, DIFFERENCES = 5, zlib.Z_RLE
"""The zlib level (6 saves 0.6 % more in 1.7 times the time), and the zlib strategy for differences."""
NOISE_BITS = 7.9  # data with more entropy than this, in bits per byte, is stored uncompressed
MAX_COPY_BYTES = 2**31
SAMPLES = 4
SAMPLE_BYTES = 32 * 1024  # the bytes of a slice; `SAMPLES` slices of a tensor decide how it is encoded
MAX_CANDIDATES = 32
"""The maximum number of old tensors with which a new tensor is compared, if no old tensor has its name or its bytes."""
MIN_COPY_BYTES = 48


@dataclass(frozen=True, slots=True)
class TensorExtent:
    """A tensor at bytes `start` to `start + length` of a file. `dtype` is numpy's name, such as `"float32"`."""

    name: str
    dtype: str
    dims: tuple[int, ...]
    start: int
    length: int

    @property
    def width(self) -> int:
        """The bytes of an element; 1 if elements share a byte."""
        width, excess = divmod(self.length, prod(self.dims) or 1)
        return width if width in WIDTHS and not excess else 1

    @property
    def kind(self) -> tuple[str, tuple[int, ...], int]:
        return (self.dtype, self.dims, self.length)


@dataclass(frozen=True)
class ModelFile:
    """A file on disk, with the tensors in it in the order of their offsets."""

    path: Path
    descriptor: Descriptor
    tensors: Sequence[TensorExtent] = ()

    @cached_property
    def _data(self) -> memoryview:
        return map_file(self.path)

    def array(self, start: int, length: int, width: int = 1) -> Any:
        """Return a part of the file as unsigned little-endian integers of `width` bytes."""
        return np.frombuffer(self._data, f"<u{width}", length // width, start)

    def gaps(self) -> list[tuple[int, int]]:
        """Return (start, end) of each gap: the bytes before, between and after the tensors."""
        starts = [0, *(tensor.start + tensor.length for tensor in self.tensors)]
        ends = [*(tensor.start for tensor in self.tensors), len(self._data)]
        return list(zip(starts, ends, strict=True))


def make_delta(old: ModelFile, new: ModelFile, sink: BinaryIO) -> int | None:
    """Write the delta from one file to another. Return its size; None if it exceeds `MAX_SHARE` of the new file."""
    limit = new.descriptor.size * MAX_SHARE
    size = sink.write(DeltaHeader.of(new.descriptor, old.descriptor).to_bytes())
    for span in _merge(_encode_all(old, new)):
        size += sink.write(span.encode())
        if size >= limit:
            return None
    return size if size < limit else None


def _encode_all(old: ModelFile, new: ModelFile) -> Iterator[Span]:
    workers, blocks = count_cores(), _blocks(plan_spans(old, new))
    with ThreadPoolExecutor(workers) as pool:
        while batch := list(islice(blocks, 4 * workers)):
            yield from pool.map(lambda block: _encode(old, new, *block), batch)


def _blocks(spans: Iterable[Span]) -> Iterator[tuple[int, Span]]:
    """Cut spans into blocks of at most `BLOCK_BYTES` bytes. Yield each block with its offset in the new file."""
    start = 0
    for span in spans:
        for at in range(0, span.length, BLOCK_BYTES):
            length = min(BLOCK_BYTES, span.length - at)
            offset = 0 if span.op == LITERAL else span.offset + at
            yield start + at, span._replace(length=length, offset=offset)
        start += span.length


def _encode(old: ModelFile, new: ModelFile, start: int, span: Span) -> Span:
    if span.op == COPY:
        return span
    if span.op == LITERAL:
        return span._replace(payload=_deflate([new.array(start, span.length)]))
    after, before = new.array(start, span.length, span.width), old.array(span.offset, span.length, span.width)
    if np.array_equal(after, before):
        return Span(COPY, span.length, offset=span.offset)
    parts = planes(encode(after, before, span.mode), span.length, span.width, span.mode)
    return span._replace(payload=_deflate(parts, DIFFERENCES))


def _deflate(parts: Sequence[Any], strategy: int = zlib.Z_DEFAULT_STRATEGY) -> bytes:
    """Compress parts to raw deflate data (RFC 1951). Parts that look like noise are stored uncompressed."""
    out = []
    for index, part in enumerate(parts):
        level = 0 if _entropy(part)[0] > NOISE_BITS else LEVEL
        deflater = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS, 9, strategy)
        out += [deflater.compress(part)]
        out += [deflater.flush(zlib.Z_FINISH if index == len(parts) - 1 else zlib.Z_SYNC_FLUSH)]
    return b"".join(out)


def _merge(spans: Iterable[Span]) -> Iterator[Span]:
    last = Span(LITERAL, 0)
    for span in spans:
        is_next = last.op == span.op == COPY and last.offset + last.length == span.offset
        if is_next and last.length < MAX_COPY_BYTES:
            last = last._replace(length=last.length + span.length)
            continue
        if last.length:
            yield last
        last = span
    if last.length:
        yield last


def plan_spans(old: ModelFile, new: ModelFile) -> Iterator[Span]:
    partners = match_tensors(old, new)
    old_gaps = dict(zip(["", *(tensor.name for tensor in old.tensors)], old.gaps(), strict=True))
    last = ""
    for tensor, (start, end) in zip([*new.tensors, None], new.gaps(), strict=True):
        yield from _gap(old, new, start, end, old_gaps.get(last))
        if tensor is not None:
            partner = partners.get(tensor.start)
            last = tensor.name if partner is None else partner.name
            yield _tensor(old, new, tensor, partner)


def match_tensors(old: ModelFile, new: ModelFile) -> dict[int, TensorExtent]:
    """Match new tensors to old ones by name, then by equal bytes, then by likeness. Keys are offsets of new tensors."""

    def content(view: ModelFile, tensor: TensorExtent) -> tuple[int, bytes]:
        return tensor.length, hashlib.sha256(view.array(tensor.start, tensor.length)).digest()

    by_name = {(tensor.name, tensor.kind): tensor for tensor in old.tensors}
    matches = {tensor.start: by_name.get((tensor.name, tensor.kind)) for tensor in new.tensors}
    unpaired = [tensor for tensor in new.tensors if matches[tensor.start] is None]
    same_bytes = {content(old, tensor): tensor for tensor in old.tensors} if unpaired else {}
    matches |= {tensor.start: same_bytes.get(content(new, tensor)) for tensor in unpaired}
    partners = {start: partner for start, partner in matches.items() if partner is not None}
    used = {partner.start for partner in partners.values()}
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


def _tensor(old: ModelFile, new: ModelFile, tensor: TensorExtent, partner: TensorExtent | None) -> Span:
    """Make the span of a tensor: the difference to `partner`, or the new bytes if they need fewer bits."""
    if partner is not None:
        bits, mode = _choose_mode(old, new, tensor, partner)
        if bits < sum(_bits(new.array(tensor.start + at, size)) for at, size in _slices(tensor)):
            return Span(DIFFERENCE, tensor.length, 0, partner.start, tensor.width, mode)
    return Span(LITERAL, tensor.length)


def _choose_mode(
    old: ModelFile, new: ModelFile, tensor: TensorExtent, partner: TensorExtent
) -> tuple[int, int]:
    """Return (bits, mode): the mode that encodes samples of the difference in the fewest bits."""
    width, costs = tensor.width, dict.fromkeys((0, SPARSE), 0)
    if tensor.dtype in FLOATS and width > 1:
        costs |= dict.fromkeys((FLOAT, FLOAT | SPARSE), 0)
    for at, size in _slices(tensor):
        sides = new.array(tensor.start + at, size, width), old.array(partner.start + at, size, width)
        for mode in costs:
            costs[mode] += sum(map(_bits, planes(encode(*sides, mode), size // width * width, width, mode)))
    return min((bits, mode) for mode, bits in costs.items())


def _slices(tensor: TensorExtent) -> list[tuple[int, int]]:
    if tensor.length <= SAMPLES * SAMPLE_BYTES:
        return [(0, tensor.length)]
    step = (tensor.length - SAMPLE_BYTES) // (SAMPLES - 1) // 8 * 8
    return [(index * step, SAMPLE_BYTES) for index in range(SAMPLES)]


def _bits(data: Any) -> int:
    """Estimate the bits of data after compression. The estimate does not depend on the build of zlib."""
    bits, most = _entropy(data) if data.size else (0.0, 0.0)
    return int(
        data.size * (bits * 1.25 if most > 0.5 else bits)
    )  # a prefix code needs a bit or more for each byte


def _entropy(data: Any) -> tuple[float, float]:
    counts = np.bincount(data, minlength=256)
    shares = counts[counts > 0] / data.size
    return float(-(shares * np.log2(shares)).sum()), float(shares.max())


def _gap(
    old: ModelFile, new: ModelFile, start: int, end: int, old_gap: tuple[int, int] | None
) -> Iterator[Span]:
    """Yield the spans of a gap between tensors. A common beginning or end of the old and new gap becomes a copy."""
    first, stop = old_gap or (0, 0)
    before, after = old.array(first, stop - first), new.array(start, end - start)
    head = _common(before, after)
    tail = _common(before[head:][::-1], after[head:][::-1])
    head, tail = (count if count >= MIN_COPY_BYTES else 0 for count in (head, tail))
    if head:
        yield Span(COPY, head, offset=first)
    if start + head < end - tail:
        yield Span(LITERAL, end - tail - start - head)
    if tail:
        yield Span(COPY, tail, offset=stop - tail)


def _common(left: Any, right: Any) -> int:
    size = min(left.size, right.size)
    different = np.flatnonzero(left[:size] != right[:size])
    return int(different[0]) if different.size else size


def map_file(path: Path) -> memoryview:
    if not path.stat().st_size:
        return memoryview(b"")  # an empty file cannot be mapped
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def read_extents(files: Mapping[str, Path]) -> dict[str, list[TensorExtent]]:
    """Return the tensors in files of one version, by path, in the order of their offsets.

    `files` maps paths in the version to files. Unreadable files, small tensors and overlapping tensors are left out.
    """
    readers = {".onnx": _onnx, ".ort": _ort, ".safetensors": _safetensors}
    extents_of: dict[str, list[TensorExtent]] = {path: [] for path in files}
    for path, file in files.items():
        reader = readers.get(PurePosixPath(path).suffix)
        with suppress(Exception):  # any error of a parser: the file has no tensors
            for target, extent in list(reader(path, file)) if reader else ():
                extents_of.get(target, []).append(extent)
    disjoint: dict[str, list[TensorExtent]] = {path: [] for path in files}
    for path, extents in extents_of.items():
        end, size = 0, files[path].stat().st_size
        for extent in sorted(extents, key=lambda item: (item.start, item.name)):
            stop = extent.start + extent.length
            is_usual = extent.length >= MIN_TENSOR_BYTES and len(extent.dims) <= MAX_AXES
            if is_usual and end <= extent.start and stop <= size:
                disjoint[path].append(extent)
                end = stop
    return disjoint


def _onnx(path: str, file: Path) -> Iterator[tuple[str, TensorExtent]]:
    """Yield the initializers of the main graph, each with the path of the file that has its bytes."""
    import onnx

    data = map_file(file)  # onnx gives no offsets
    graphs = [extent[1:] for extent in fields(data, 0, len(data), GRAPH)]
    for _, start, stop in (extent for graph in graphs for extent in fields(data, *graph, INITIALIZER)):
        key, first, last = next(fields(data, start, stop, RAW_DATA), (stop, stop, stop))
        tensor = onnx.TensorProto.FromString(bytes(data[start:key]) + bytes(data[last:stop]))
        element, dims = ELEMENTS.get(tensor.data_type), tuple(tensor.dims)
        location, size = path, last - first
        if tensor.data_location == tensor.EXTERNAL:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            first, size = (int(entries.get(key) or 0) for key in ("offset", "length"))
            location = str(PurePosixPath(path).parent / entries.get("location", ""))
            size = size or tensor_bytes(tensor)  # a tensor need not state its length
        dtype = element.name if element else "unknown"
        yield location, TensorExtent(tensor.name, dtype, dims, first, size)


def _ort(path: str, file: Path) -> Iterator[tuple[str, TensorExtent]]:
    from onnxreg.converters.onnx.facts import stored_tensors
    from onnxreg.converters.onnx.ort_file import read_ort

    for name, tensor in stored_tensors(read_ort(file).graph).items():
        array = tensor.numpy_packed() if hasattr(tensor, "numpy_packed") else tensor.numpy()
        if array.size and type_of(tensor) != "str":
            owner: Any = array.base
            while not isinstance(owner, mmap.mmap | bytes):
                owner = owner.obj if isinstance(owner, memoryview) else owner.base
            start = array.ctypes.data - np.frombuffer(owner, np.uint8).ctypes.data
            yield path, TensorExtent(name, type_of(tensor), dims_of(tensor), start, array.nbytes)


def _safetensors(path: str, file: Path) -> Iterator[tuple[str, TensorExtent]]:
    data = map_file(file)
    size = int.from_bytes(data[:8], "little")
    header = json.loads(bytes(data[8 : 8 + size]))
    header.pop("__metadata__", None)
    for name, item in header.items():
        start, stop = convert(item["data_offsets"], tuple[Count, Count])
        dtype, dims = str(item["dtype"]), convert(item["shape"], tuple[Count, ...])
        dtype = SAFETENSORS_FLOATS.get(dtype, dtype)
        yield path, TensorExtent(name, dtype, dims, 8 + size + start, stop - start)
