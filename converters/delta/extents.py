"""The place of each tensor in a model file: ONNX, external data, ORT format, safetensors."""

import json
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path, PurePosixPath
from typing import Any

from onnxreg.converters.onnx.tensors import ELEMENTS, FLOATS
from onnxreg.schema.core.canonical import Count, convert
from onnxreg.schema.core.errors import RegError

MIN_TENSOR_BYTES = 256
"""Smaller tensors are treated as the text around them."""
# fmt: off
_SAFETENSORS = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8",
}
# fmt: on
_WIDTHS = {
    element.name: element.bits // 8 for element in ELEMENTS.values() if element.bits in (8, 16, 32, 64)
}


@dataclass(frozen=True, slots=True)
class TensorExtent:
    """The bytes `start` to `start + length` of a file: a tensor of numpy's `dtype` and shape `dims`."""

    name: str
    dtype: str
    dims: tuple[int, ...]
    start: int
    length: int

    @property
    def width(self) -> int:
        """Bytes of an element; 1 if elements share bytes."""
        width = _WIDTHS.get(self.dtype, 1)
        return width if self.length % width == 0 else 1

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS

    @property
    def kind(self) -> tuple[str, tuple[int, ...], int]:
        """Two tensors are comparable if this is equal."""
        return (self.dtype, self.dims, self.length)


def _onnx(path: str, file: Path, data: Any) -> Iterator[tuple[str, TensorExtent]]:
    """The initializers of the main graph with raw or external data, each with the path of the file that has its bytes.

    onnx gives no offsets: the bytes are searched for, in the order of the file. An external tensor need not state its
    length.
    """
    from onnxreg.converters.onnx.onnx_graph import load_onnx

    at = 0
    for tensor in load_onnx(file).graph.initializer:
        element, dims = ELEMENTS.get(tensor.data_type), tuple(tensor.dims)
        dtype = element.name if element else "unknown"
        if tensor.data_location == tensor.EXTERNAL:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            offset, length = (int(entries.get(key) or 0) for key in ("offset", "length"))
            location = str(PurePosixPath(path).parent / entries.get("location", ""))
            length = length or (prod(dims) * (element.bits if element else 0) + 7) // 8
            yield location, TensorExtent(tensor.name, dtype, dims, offset, length)
        elif len(raw := tensor.raw_data) >= MIN_TENSOR_BYTES:
            field = _raw_data_field(len(raw))
            start = data.find(field + raw[:MIN_TENSOR_BYTES], at)
            while start >= 0 and data.find(raw, start + len(field), start + len(field) + len(raw)) < 0:
                start = data.find(field + raw[:MIN_TENSOR_BYTES], start + 1)
            if start >= 0:
                start += len(field)
                at = start + len(raw)
                yield path, TensorExtent(tensor.name, dtype, dims, start, len(raw))


def _raw_data_field(size: int) -> bytes:
    """The bytes that protobuf writes before `size` bytes of `raw_data`: few others begin so."""
    key = bytearray([9 << 3 | 2])
    while size > 0x7F:
        key.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*key, size])


@contextmanager
def map_file(path: Path) -> Iterator[Any]:
    """The bytes of a file, mapped into memory; empty bytes for an empty file."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data


def read_extents(files: dict[str, Path]) -> dict[str, list[TensorExtent]]:
    """The tensors in each of some files of one version, by path, in the order of their bytes.

    `files` maps paths in the version to files on disk. A file of an unknown kind, or one that cannot be read, has
    none: its delta is then made of copies and literals.
    """
    extents: dict[str, list[TensorExtent]] = {path: [] for path in files}
    for path, file in files.items():
        try:
            for target, extent in _extents(path, file):
                if target in extents:
                    extents[target].append(extent)
        except (RegError, ValueError, KeyError, TypeError, ImportError, RecursionError):
            extents[path] = []
    return {path: _disjoint(items, files[path].stat().st_size) for path, items in extents.items()}


def _extents(path: str, file: Path) -> Iterator[tuple[str, TensorExtent]]:
    """The tensors that a file describes, each with the path of the file that has its bytes."""
    suffix = PurePosixPath(path).suffix
    if suffix == ".onnx":
        with map_file(file) as data:
            yield from _onnx(path, file, data)
    elif suffix in (".ort", ".safetensors"):
        yield from ((path, extent) for extent in (_ort if suffix == ".ort" else _safetensors)(file))


def _ort(file: Path) -> Iterator[TensorExtent]:
    """The tensors of an ORT-format file: the bindings give arrays over the mapped file."""
    import numpy as np

    from onnxreg.converters.onnx.ort_file import read_ort
    from onnxreg.converters.onnx.semantic import stored_tensors
    from onnxreg.converters.onnx.tensors import dims_of, type_of

    for name, tensor in stored_tensors(read_ort(file).graph).items():
        array = tensor.numpy_packed() if hasattr(tensor, "numpy_packed") else tensor.numpy()
        if array.size and type_of(tensor) != "str":
            start = array.ctypes.data - np.frombuffer(_owner(array), np.uint8).ctypes.data
            yield TensorExtent(name, type_of(tensor), dims_of(tensor), start, array.nbytes)


def _owner(array: Any) -> Any:
    """The buffer that an array is a view of."""
    owner = array.base
    while not isinstance(owner, mmap.mmap | bytes):
        owner = owner.obj if isinstance(owner, memoryview) else owner.base
    return owner


def _safetensors(file: Path) -> Iterator[TensorExtent]:
    """The tensors of a safetensors file: 8 bytes of length, a JSON header, then the data."""
    with map_file(file) as data:
        size = int.from_bytes(data[:8], "little")
        header = json.loads(bytes(data[8 : 8 + size]))
    header.pop("__metadata__", None)
    for name, item in header.items():
        start, stop = convert(item["data_offsets"], tuple[Count, Count])
        dtype, dims = _SAFETENSORS.get(item["dtype"], "unknown"), convert(item["shape"], tuple[Count, ...])
        yield TensorExtent(name, dtype, dims, 8 + size + start, stop - start)


def _disjoint(extents: list[TensorExtent], size: int) -> list[TensorExtent]:
    """The extents in order, without small, overlapping and impossible ones."""
    disjoint: list[TensorExtent] = []
    end = 0
    for extent in sorted(extents, key=lambda item: (item.start, item.name)):
        if extent.length >= MIN_TENSOR_BYTES and end <= extent.start and extent.start + extent.length <= size:
            disjoint.append(extent)
            end = extent.start + extent.length
    return disjoint
