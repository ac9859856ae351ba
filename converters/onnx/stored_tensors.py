"""The tensors that a model file stores: name, type, shape, and their bytes, read one tensor at a time.

Bytes are little-endian and as dense as `TensorProto.raw_data`, wherever they are: in the file, in typed fields, in external
data. Texts are each preceded by their length (8 bytes).
"""

from collections.abc import Iterable, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any, Protocol

from onnxreg.converters.onnx import ort_file
from onnxreg.converters.onnx.elements import ELEMENTS
from onnxreg.converters.onnx.external_data import extent
from onnxreg.converters.onnx.onnx_graph import load_onnx
from onnxreg.schema.core.digest import Digest

BLOCK_BYTES = 2**20
"""Bytes of a file that are read at once."""
_NUMERIC = frozenset(
    {
        "int8",
        "uint8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "float16",
        "float32",
        "float64",
    }
)


class StoredTensor(Protocol):
    """A tensor in a model file. `dtype` is numpy's name, `dims` the shape."""

    name: str
    dtype: str
    dims: tuple[int, ...]

    def blocks(self) -> Iterator[Any]:
        """Its bytes in order."""

    def array(self) -> Any:
        """A read-only numpy array of a numeric tensor (`is_numeric`), mapped from its file."""


def is_numeric(tensor: StoredTensor) -> bool:
    """Return True if numpy alone can read the element type."""
    return tensor.dtype in _NUMERIC


def digest_of(tensor: StoredTensor) -> Digest:
    """The SHA-256 of a tensor's bytes."""
    import hashlib

    sha = hashlib.sha256()
    for block in tensor.blocks():
        sha.update(block)
    return Digest(sha.hexdigest())


def read_tensors(path: Path) -> dict[str, StoredTensor]:
    """The initializers of an ONNX or ORT-format file's main graph, by name."""
    if path.suffix == ".ort":
        with ort_file.reading(path):
            graph = ort_file.load_ort(path).Model().Graph()
            return _by_name(OrtTensor(tensor, path) for tensor in ort_file.tensors(graph))
    return _by_name(OnnxTensor(tensor, path) for tensor in load_onnx(path).graph.initializer)


class Arrays(Mapping[str, Any]):
    """The numeric ones of some tensors as numpy arrays, each read on access."""

    def __init__(self, tensors: Mapping[str, StoredTensor]) -> None:
        self._tensors = {name: tensor for name, tensor in tensors.items() if is_numeric(tensor)}

    def __len__(self) -> int:
        return len(self._tensors)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __getitem__(self, name: str) -> Any:
        return self._tensors[name].array()


class OnnxTensor:
    """A `TensorProto` of the model at `path`."""

    def __init__(self, proto: Any, path: Path) -> None:
        self.name = str(proto.name)
        self.dtype = _element_name(proto.data_type)
        self.dims = tuple(proto.dims)
        if any(dim < 0 for dim in self.dims):
            raise ValueError(f"tensor {self.name[:80]!r} has a negative dimension")
        self._proto = proto
        self._path = path

    def blocks(self) -> Iterator[Any]:
        import onnx.numpy_helper

        proto = self._proto
        if proto.data_location == proto.EXTERNAL:
            file, start, length = extent(proto, self._path)
            size = self._size()
            if size and length not in (0, size):
                raise ValueError(
                    f"tensor {self.name[:80]!r} needs {size} bytes of {file.name}, it names {length}"
                )
            yield from _read(file, start, length or size)
        elif proto.HasField("raw_data"):
            yield proto.raw_data
        elif self.dtype == "str":
            yield from _texts(proto.string_data)
        else:
            yield onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(proto)).raw_data

    def array(self) -> Any:
        import numpy as np
        import onnx.numpy_helper

        proto, kind = self._proto, np.dtype(self.dtype).newbyteorder("<")
        if proto.data_location == proto.EXTERNAL:
            if not prod(self.dims):
                return np.empty(self.dims, kind)
            file, start, _ = extent(proto, self._path)
            return np.memmap(file, kind, "r", start, self.dims)
        if proto.HasField("raw_data"):
            return np.frombuffer(proto.raw_data, kind).reshape(self.dims)
        return onnx.numpy_helper.to_array(proto)

    def _size(self) -> int:
        element = ELEMENTS.get(self._proto.data_type)
        return (prod(self.dims) * element.bits + 7) // 8 if element else 0


class OrtTensor:
    """An `fbs.Tensor` of the file at `path`, made and its blocks read inside `ort_file.reading`."""

    def __init__(self, table: Any, path: Path) -> None:
        self.name = ort_file.text(table.Name())
        self.dtype = _element_name(table.DataType())
        self.dims = tuple(table.Dims(index) for index in range(table.DimsLength()))
        self._table = table
        self._path = path

    def blocks(self) -> Iterator[Any]:
        if self.dtype == "str":
            yield from _texts(
                self._table.StringData(index) for index in range(self._table.StringDataLength())
            )
        elif not self._table.RawDataIsNone():
            yield self._table.RawDataAsNumpy()

    def array(self) -> Any:
        import numpy as np

        with ort_file.reading(self._path):
            data = self._table.RawDataAsNumpy().view(np.dtype(self.dtype).newbyteorder("<"))
            return data.reshape(self.dims)


def _by_name(tensors: Iterable[StoredTensor]) -> dict[str, StoredTensor]:
    return {tensor.name: tensor for tensor in tensors}


def _element_name(number: int) -> str:
    return ELEMENTS[number].name if number in ELEMENTS else f"type {number}"


def _texts(items: Iterable[bytes]) -> Iterator[bytes]:
    for item in items:
        yield len(item).to_bytes(8, "little")
        yield item


def _read(path: Path, start: int, length: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(start)
        while length > 0:
            block = file.read(min(length, BLOCK_BYTES))
            if not block:
                raise ValueError(f"{path.name} ends before the tensor does")
            length -= len(block)
            yield block
