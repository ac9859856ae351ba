"""Make a delta: find and pair the tensors of two files, cut the new file into sections, encode the sections in blocks."""

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
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from onnxreg.converters.onnx.tensors import ELEMENTS, FLOATS, dims_of, type_of
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
    DeltaHeader,
    Span,
)
from onnxreg.schema.delta.difference import encode, planes

MIN_TENSOR_BYTES = 256
"""The size in bytes of the smallest tensor that is matched. A smaller one is treated like the bytes around it."""
GRAPH, INITIALIZER, RAW_DATA = 7, 5, 9
"""The numbers of fields in onnx.proto: `ModelProto.graph`, `GraphProto.initializer` and `TensorProto.raw_data`."""
# fmt: off
_SAFETENSORS = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8",
}
# fmt: on
_WIDTHS = {item.name: item.bits // 8 for item in ELEMENTS.values() if item.bits in (8, 16, 32, 64)}
LEVEL, DIFFERENCES = 5, zlib.Z_RLE
"""zlib's level (6 saves 0.6 % more, in 1.7 times the time), and its strategy for differences: only runs are searched for."""
NOISE_BITS = 7.9
"""The entropy, in bits per byte, above which a part of the data is stored uncompressed."""
MAX_COPY_BYTES = 2**31
SAMPLES = 4
SAMPLE_BYTES = 32 * 1024
"""The size in bytes of a slice. A tensor's mode is chosen by a sample of the tensor: `SAMPLES` slices."""
MAX_CANDIDATES = 32
"""The most old tensors to compare with a new tensor that has no match by name or bytes; they have its type and shape."""
MIN_COPY_BYTES = 48
"""The length in bytes of the shortest run that is copied; for a shorter one, a span costs too much."""


@dataclass(frozen=True, slots=True)
class TensorExtent:
    """A tensor at bytes `start` to `start + length` of a file, with the type `dtype` (numpy's name) and the shape `dims`."""

    name: str
    dtype: str
    dims: tuple[int, ...]
    start: int
    length: int

    @property
    def width(self) -> int:
        """The number of bytes of an element; 1 if elements share bytes."""
        width = _WIDTHS.get(self.dtype, 1)
        return width if self.length % width == 0 else 1

    @property
    def kind(self) -> tuple[str, tuple[int, ...], int]:
        """The type, the shape and the length in bytes. Only tensors of an equal kind are compared."""
        return (self.dtype, self.dims, self.length)


@dataclass(frozen=True)
class ModelFile:
    """A file on disk, its digest and size, and the tensors in it in the order of their offsets (see `read_extents`)."""

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
        """Return start and end of the gaps: the bytes before, between and after the tensors."""
        starts = [0, *(tensor.start + tensor.length for tensor in self.tensors)]
        ends = [*(tensor.start for tensor in self.tensors), len(self._data)]
        return list(zip(starts, ends, strict=True))


class Section(NamedTuple):
    """A part of the new file: the bytes `start` to `start + length`.

    `old` is the offset of similar old bytes (None: literal bytes). `width` (0 for equal bytes) and `mode` are as in `Span`.
    """

    start: int
    length: int
    old: int | None = None
    width: int = 0
    mode: int = 0


def make_delta(old: ModelFile, new: ModelFile, sink: BinaryIO) -> int | None:
    """Write the delta from one file to another; return its size in bytes, or None if the files are not alike.

    The same two files give the same spans and modes and, if the build of zlib is the same, the same bytes. If the result is
    None, `sink` holds a part of a delta. Only a few blocks are in memory at a time.
    """
    limit = new.descriptor.size * MAX_SHARE
    size = sink.write(DeltaHeader.of(new.descriptor, old.descriptor).to_bytes())
    for span in _merge(_encode_all(old, new)):
        size += sink.write(span.encode())
        if size >= limit:
            return None
    return size if size < limit else None


def _encode_all(old: ModelFile, new: ModelFile) -> Iterator[Span]:
    """Yield the spans of the new file. Threads encode the blocks, because zlib and numpy release the interpreter lock."""
    workers, blocks = count_cores(), _blocks(sections(old, new))
    with ThreadPoolExecutor(workers) as pool:
        while batch := list(islice(blocks, 4 * workers)):
            yield from pool.map(lambda section: _encode(old, new, section), batch)


def _blocks(items: Iterable[Section]) -> Iterator[Section]:
    """Cut sections into blocks of at most `BLOCK_BYTES` bytes."""
    for section in items:
        for at in range(0, section.length, BLOCK_BYTES):
            old = None if section.old is None else section.old + at
            length = min(BLOCK_BYTES, section.length - at)
            yield section._replace(start=section.start + at, length=length, old=old)


def _encode(old: ModelFile, new: ModelFile, section: Section) -> Span:
    """Encode a section as one span. If the old and the new bytes are equal, the span is a copy, whatever the mode."""
    start, length, source, width, mode = section
    data = new.array(start, length)
    if source is None:
        return Span(LITERAL, length, payload=_deflate([data]))
    if width == 0 or np.array_equal(data, old.array(source, length)):
        return Span(COPY, length, 0, source)
    payload = encode(new.array(start, length, width), old.array(source, length, width), mode)
    parts = planes(payload, length, width, mode)
    return Span(DIFFERENCE, length, 0, source, width, mode, _deflate(parts, DIFFERENCES))


def _deflate(parts: Sequence[Any], strategy: int = zlib.Z_DEFAULT_STRATEGY) -> bytes:
    """Compress parts to raw deflate data (RFC 1951). Noise is stored uncompressed, since compressing it takes long."""
    out = []
    for index, part in enumerate(parts):
        level = 0 if _entropy(part)[0] > NOISE_BITS else LEVEL
        deflater = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS, 9, strategy)
        out += [deflater.compress(part)]
        out += [deflater.flush(zlib.Z_FINISH if index == len(parts) - 1 else zlib.Z_SYNC_FLUSH)]
    return b"".join(out)


def _merge(spans: Iterable[Span]) -> Iterator[Span]:
    """Join adjacent copies to one span."""
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


def sections(old: ModelFile, new: ModelFile) -> Iterator[Section]:
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


def match_tensors(old: ModelFile, new: ModelFile) -> dict[int, TensorExtent]:
    """Match new tensors to old ones by name, else by equal bytes, else by likeness. Keys are the offsets of new tensors."""

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


def _tensor(old: ModelFile, new: ModelFile, tensor: TensorExtent, partner: TensorExtent | None) -> Section:
    """Make the section of a tensor: the difference to the old tensor `partner`, or literal bytes if they are smaller."""
    if partner is not None:
        bits, mode = _choose_mode(old, new, tensor, partner)
        if bits < sum(_bits(new.array(tensor.start + at, size)) for at, size in _slices(tensor)):
            return Section(tensor.start, tensor.length, partner.start, tensor.width, mode)
    return Section(tensor.start, tensor.length)


def _choose_mode(
    old: ModelFile, new: ModelFile, tensor: TensorExtent, partner: TensorExtent
) -> tuple[int, int]:
    """Choose the mode in which a sample of a tensor's difference is smallest; return the estimated bits, and the mode.

    Both depend on the bytes alone, not on the build of zlib.
    """
    width, costs = tensor.width, dict.fromkeys((0, SPARSE), 0)
    if tensor.dtype in FLOATS and width > 1:
        costs |= dict.fromkeys((FLOAT, FLOAT | SPARSE), 0)
    for at, size in _slices(tensor):
        sides = new.array(tensor.start + at, size, width), old.array(partner.start + at, size, width)
        for mode in costs:
            costs[mode] += sum(map(_bits, planes(encode(*sides, mode), size // width * width, width, mode)))
    return min((bits, mode) for mode, bits in costs.items())


def _slices(tensor: TensorExtent) -> list[tuple[int, int]]:
    """Return the offset and the size of each slice in a tensor's sample. The slices are evenly spread."""
    if tensor.length <= SAMPLES * SAMPLE_BYTES:
        return [(0, tensor.length)]
    step = (tensor.length - SAMPLE_BYTES) // (SAMPLES - 1) // 8 * 8
    return [(index * step, SAMPLE_BYTES) for index in range(SAMPLES)]


def _bits(data: Any) -> int:
    """Estimate from the entropy how many bits compressed data takes. A prefix code takes at least one bit for each byte."""
    bits, most = _entropy(data) if data.size else (0.0, 0.0)
    return int(data.size * (bits * 1.25 if most > 0.5 else bits))


def _entropy(data: Any) -> tuple[float, float]:
    """Return the entropy (of order 0) in bits per byte, and the share of the commonest byte."""
    counts = np.bincount(data, minlength=256)
    shares = counts[counts > 0] / data.size
    return float(-(shares * np.log2(shares)).sum()), float(shares.max())


def _gap(
    old: ModelFile, new: ModelFile, start: int, end: int, old_gap: tuple[int, int] | None
) -> Iterator[Section]:
    """Cut the bytes between two tensors into sections. A beginning or an end that equals the old gap's is copied."""
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
    """Return the number of equal bytes at the beginning of two arrays."""
    size = min(left.size, right.size)
    different = np.flatnonzero(left[:size] != right[:size])
    return int(different[0]) if different.size else size


def map_file(path: Path) -> memoryview:
    """Map the bytes of a file into memory, until nothing refers to them. An empty file cannot be mapped."""
    with path.open("rb") as file:
        is_empty = not path.stat().st_size
        return memoryview(b"" if is_empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def read_extents(files: Mapping[str, Path]) -> dict[str, list[TensorExtent]]:
    """Find the tensors in files of one version; return them by the file's path, in the order of their offsets.

    `files` maps paths in the version to files on disk. A file of an unknown kind, or one that cannot be read, gets no
    tensors: its delta then has copies and literals only. Small, overlapping and impossible tensors are left out.
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
            if extent.length >= MIN_TENSOR_BYTES and end <= extent.start and stop <= size:
                disjoint[path].append(extent)
                end = stop
    return disjoint


def _onnx(path: str, file: Path) -> Iterator[tuple[str, TensorExtent]]:
    """Yield each initializer of the main graph that has raw or external data, after the path of the file that has its bytes.

    The package onnx gives no offsets, and keeps all that it parses in memory. So this function walks the fields of the file,
    and onnx parses each tensor without its bytes. An external tensor need not state its length.
    """
    import onnx

    data = map_file(file)
    graphs = [extent[1:] for extent in _fields(data, 0, len(data), GRAPH)]
    for _, start, stop in (extent for graph in graphs for extent in _fields(data, *graph, INITIALIZER)):
        key, first, last = next(_fields(data, start, stop, RAW_DATA), (stop, stop, stop))
        tensor = onnx.TensorProto.FromString(bytes(data[start:key]) + bytes(data[last:stop]))
        element, dims = ELEMENTS.get(tensor.data_type), tuple(tensor.dims)
        location, size = path, last - first
        if tensor.data_location == tensor.EXTERNAL:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            first, size = (int(entries.get(key) or 0) for key in ("offset", "length"))
            location = str(PurePosixPath(path).parent / entries.get("location", ""))
            size = size or (prod(dims) * (element.bits if element else 0) + 7) // 8
        dtype = element.name if element else "unknown"
        yield location, TensorExtent(tensor.name, dtype, dims, first, size)


def _fields(data: Any, at: int, end: int, number: int) -> Iterator[tuple[int, int, int]]:
    """Yield each field of a protobuf message with this `number`: the offset of the field, start and end of its value.

    Raises ValueError for a field that ends after the message, KeyError for a wire type that onnx does not use.
    """

    def varint(at: int) -> tuple[int, int]:
        last = next(last for last in range(at, at + 10) if data[last] < 0x80)
        return sum((data[byte] & 0x7F) << 7 * (byte - at) for byte in range(at, last + 1)), last + 1

    while at < end:
        key, start = varint(at)
        if key & 7 == 0:
            stop = varint(start)[1]
        elif key & 7 == 2:
            size, start = varint(start)
            stop = start + size
        else:
            stop = start + {1: 8, 5: 4}[key & 7]
        if stop > end:
            raise ValueError("a field ends after its message")
        if key >> 3 == number:
            yield at, start, stop
        at = stop


def _ort(path: str, file: Path) -> Iterator[tuple[str, TensorExtent]]:
    """Yield the tensors of an ORT-format file. The file is mapped, so the address of an array gives the tensor's offset."""
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
    """Yield the tensors of a safetensors file, which has 8 bytes with the header's length, a JSON header, and the data."""
    data = map_file(file)
    size = int.from_bytes(data[:8], "little")
    header = json.loads(bytes(data[8 : 8 + size]))
    header.pop("__metadata__", None)
    for name, item in header.items():
        start, stop = convert(item["data_offsets"], tuple[Count, Count])
        dtype, dims = _SAFETENSORS.get(item["dtype"], "unknown"), convert(item["shape"], tuple[Count, ...])
        yield path, TensorExtent(name, dtype, dims, 8 + size + start, stop - start)
