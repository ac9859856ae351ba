"""Tensors of a model (`onnx_ir.TensorProtocol`): element type, shape, digest, values.

Bytes are little-endian and as dense as `TensorProto.raw_data`, wherever they are stored. Texts are each preceded by their
length (8 bytes).
"""

import hashlib
from collections import UserDict
from collections.abc import Mapping
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from onnxreg.converters.onnx.elements import ELEMENTS
from onnxreg.schema.core.digest import Digest

if TYPE_CHECKING:
    import onnx_ir as ir

BLOCK_BYTES = 2**20
"""Bytes of a file that are read at once: pages that are mapped would stay in memory."""
_NUMPY = frozenset(
    {f"{kind}int{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)} | {"float16", "float32", "float64"}
)


def type_of(tensor: "ir.TensorProtocol") -> str:
    """The element type: numpy's name, ml_dtypes' beyond numpy."""
    return ELEMENTS[int(tensor.dtype)].name


def dims_of(tensor: "ir.TensorProtocol") -> tuple[int, ...]:
    """The shape. Raise ValueError if an axis is negative."""
    dims: tuple[int, ...] = tuple(map(int, tensor.shape.numpy()))
    if any(dim < 0 for dim in dims):
        raise ValueError(f"tensor {(tensor.name or '')[:80]!r} has a negative dimension")
    return dims


def is_numeric(tensor: "ir.TensorProtocol") -> bool:
    """Return True if numpy alone can read the element type."""
    return type_of(tensor) in _NUMPY


def digest_of(tensor: "ir.TensorProtocol") -> Digest:
    """The SHA-256 of a tensor's bytes. External data is read block by block.

    Raise ValueError if they are not as many as its shape takes.
    """
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
        if extent := tensor.meta.get("file"):
            file, start, size = extent
            with file.open("rb") as data:
                data.seek(start)
                for at in range(0, size, BLOCK_BYTES):
                    write(data.read(min(size - at, BLOCK_BYTES)))
        else:
            tensor.tofile(SimpleNamespace(write=write))  # type: ignore[attr-defined]
    if stored != needed:
        name = (tensor.name or "")[:80]
        raise ValueError(f"the tensor {name!r} has values of {stored} bytes, its shape takes {needed}")
    return Digest(sha.hexdigest())


def tensor_of(data: Any, dtype: "ir.DataType", shape: "ir.Shape", name: str | None) -> Any:
    """A tensor over the bytes of one (a numpy array of uint8), which are not copied."""
    import onnx_ir as ir

    if dtype.bitwidth < 8:
        return ir.PackedTensor(data, dtype, shape=shape, name=name)
    return ir.Tensor(data.view(dtype.numpy()).reshape(shape.numpy()), dtype, shape=shape, name=name)


def map_external(tensor: "ir.ExternalTensor", folder: Path) -> Any:
    """The tensor of external data, mapped. onnx_ir's own refuses a file with two hard links, as those of a registry have."""
    import numpy as np

    file, start = folder / tensor.location, tensor.offset or 0
    size = (tensor.size * tensor.dtype.bitwidth + 7) // 8
    data = np.memmap(file, np.uint8, "r", start, (size,)) if size else np.empty(0, np.uint8)
    mapped = tensor_of(data, tensor.dtype, tensor.shape, tensor.name)
    mapped.meta["file"] = (file, start, size)
    return mapped


class Arrays(UserDict[str, Any]):
    """The numeric ones of some tensors as numpy arrays, each read on access."""

    def __init__(self, tensors: Mapping[str, "ir.TensorProtocol"]) -> None:
        super().__init__({name: tensor for name, tensor in tensors.items() if is_numeric(tensor)})

    def __getitem__(self, name: str) -> Any:
        return super().__getitem__(name).numpy()
