"""Tensors: their element types, digests and bytes, and a copy of a model without large tensors.

Bytes are little-endian and packed, as in `TensorProto.raw_data`. Element types have the same numbers in ORT format as
in ONNX.
"""

import hashlib
from collections.abc import Callable
from math import prod
from os.path import samestat
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import InputError

if TYPE_CHECKING:
    import onnx_ir as ir


class Element(NamedTuple):
    """An element type: its name in numpy, its C++ name in ONNX Runtime, and its size in bits; 0 for strings."""

    name: str
    cpp: str
    bits: int


ELEMENTS = {
    1: Element("float32", "float", 32),
    2: Element("uint8", "uint8_t", 8),
    3: Element("int8", "int8_t", 8),
    4: Element("uint16", "uint16_t", 16),
    5: Element("int16", "int16_t", 16),
    6: Element("int32", "int32_t", 32),
    7: Element("int64", "int64_t", 64),
    8: Element("str", "std::string", 0),
    9: Element("bool", "bool", 8),
    10: Element("float16", "MLFloat16", 16),
    11: Element("float64", "double", 64),
    12: Element("uint32", "uint32_t", 32),
    13: Element("uint64", "uint64_t", 64),
    14: Element("complex64", "std::complex<float>", 64),
    15: Element("complex128", "std::complex<double>", 128),
    16: Element("bfloat16", "BFloat16", 16),
    17: Element("float8_e4m3fn", "Float8E4M3FN", 8),
    18: Element("float8_e4m3fnuz", "Float8E4M3FNUZ", 8),
    19: Element("float8_e5m2", "Float8E5M2", 8),
    20: Element("float8_e5m2fnuz", "Float8E5M2FNUZ", 8),
    21: Element("uint4", "UInt4x2", 4),
    22: Element("int4", "Int4x2", 4),
    23: Element("float4_e2m1fn", "Float4E2M1x2", 4),
    24: Element("float8_e8m0fnu", "Float8E8M0", 8),
    25: Element("uint2", "UInt2x4", 2),
    26: Element("int2", "Int2x4", 2),
}

FLOATS = frozenset({"float32", "float16", "float64", "bfloat16"})
QUANTIZED = frozenset(element.name for element in ELEMENTS.values() if 0 < element.bits <= 8) - {"bool"}
MAX_AXES = 64
"""The maximum number of axes of a tensor. Multiplying the sizes of a hostile tensor's axes could take hours."""
MAX_SMALL_ELEMENTS = 1024
"""The maximum number of elements of a small initializer. Type inference gets the values of small initializers only."""
BLOCK_BYTES = 2**20
_NUMPY = frozenset(range(1, 14)) - {8, 9}


def tensor_bytes(tensor: Any) -> int:
    """Return the number of bytes of an `onnx.TensorProto`; 0 for strings. Raise ValueError for over `MAX_AXES` axes."""
    if len(tensor.dims) > MAX_AXES:
        raise ValueError(f"tensor {tensor.name[:80]!r} has more than {MAX_AXES} axes")
    element = ELEMENTS.get(tensor.data_type)
    return (prod(tensor.dims) * element.bits + 7) // 8 if element else 0


def type_of(tensor: "ir.TensorProtocol") -> str:
    """Return the element type of a tensor, such as `"float32"` or `"bfloat16"`."""
    return ELEMENTS[int(tensor.dtype)].name


def dims_of(tensor: "ir.TensorProtocol") -> tuple[int, ...]:
    """Return the shape. Raise ValueError if an axis is negative, or if there are more than `MAX_AXES`."""
    dims: tuple[int, ...] = tuple(map(int, tensor.shape.numpy()))
    if any(dim < 0 for dim in dims):
        raise ValueError(f"tensor {(tensor.name or '')[:80]!r} has a negative dimension")
    if len(dims) > MAX_AXES:
        raise ValueError(f"tensor {(tensor.name or '')[:80]!r} has more than {MAX_AXES} axes")
    return dims


def is_numeric(tensor: "ir.TensorProtocol") -> bool:
    """Return True if numpy has the element type, without ml_dtypes."""
    return int(tensor.dtype) in _NUMPY


def digest_of(tensor: "ir.TensorProtocol") -> Digest:
    """Return the SHA-256 of a tensor's bytes. Raise ValueError if their number does not fit the shape."""
    sha, needed, stored = hashlib.sha256(), prod(dims_of(tensor)), 0

    def write(data: Any) -> None:
        nonlocal stored
        stored += memoryview(data).nbytes
        sha.update(data)

    if type_of(tensor) == "str":
        texts = tensor.string_data()  # type: ignore[attr-defined]
        for text in texts:
            sha.update(len(text).to_bytes(8, "little") + text)
        stored = len(texts)
    else:
        needed = (needed * tensor.dtype.bitwidth + 7) // 8
        copy_bytes(tensor, write)
    if stored != needed:
        name = (tensor.name or "")[:80]
        raise ValueError(f"the tensor {name!r} has values of {stored} bytes, its shape takes {needed}")
    return Digest(sha.hexdigest())


def copy_bytes(tensor: "ir.TensorProtocol", write: Callable[[Any], Any]) -> None:
    """Give the bytes of a tensor to `write`. If the bytes are mapped from a file, read the file in blocks.

    If the file was deleted or replaced, take the bytes from the map. Raises InputError if the file became too short.
    """
    file, start, size, state = tensor.meta.get("file", (None, 0, 0, None))
    if file and file.is_file() and samestat(file.stat(), state):
        with file.open("rb") as data:
            data.seek(start)
            for at in range(0, size, BLOCK_BYTES):
                if len(block := data.read(min(size - at, BLOCK_BYTES))) < min(size - at, BLOCK_BYTES):
                    raise InputError(f"{file.name} was cut short while it was read", "export again")
                write(block)
    else:
        tensor.tofile(SimpleNamespace(write=write))  # type: ignore[attr-defined]


def tensor_of(data: Any, dtype: "ir.DataType", shape: "ir.Shape", name: str | None) -> Any:
    import onnx_ir as ir

    if dtype.bitwidth < 8:
        return ir.PackedTensor(data, dtype, shape=shape, name=name)
    return ir.Tensor(data.view(dtype.numpy()).reshape(shape.numpy()), dtype, shape=shape, name=name)


def map_tensor(tensor: Any, file: Path, start: int, data: Any) -> Any:
    """Return a tensor whose bytes begin at `start` of a file, which is mapped as `data` (a numpy array of uint8)."""
    size = (tensor.size * tensor.dtype.bitwidth + 7) // 8
    mapped = tensor_of(data[start : start + size], tensor.dtype, tensor.shape, tensor.name)
    mapped.doc_string = tensor.doc_string
    mapped.metadata_props.update(tensor.metadata_props)
    mapped.meta["file"] = (file, start, size, file.stat())
    return mapped


def without_weights(model: Any) -> Any:
    """Copy a model (`onnx.ModelProto`). In the copy, graph inputs replace large initializers."""
    import onnx

    light = onnx.ModelProto()
    copy_but(model, light, "graph")
    copy_but(model.graph, light.graph, "initializer")
    inputs = {value.name for value in model.graph.input}
    for tensor in model.graph.initializer:
        if prod(tensor.dims) <= MAX_SMALL_ELEMENTS:
            light.graph.initializer.add().CopyFrom(tensor)
        elif tensor.name not in inputs:
            value = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            light.graph.input.append(value)
    return light


def copy_but(source: Any, target: Any, left_out: str) -> None:
    """Copy the set fields of a protobuf to another, except the field `left_out`."""
    for field, value in source.ListFields():
        if field.name == left_out:
            continue
        if isinstance(value, str | bytes | int | float):
            setattr(target, field.name, value)
        else:
            getattr(target, field.name).MergeFrom(value)
