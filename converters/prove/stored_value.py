"""A constant of a graph: a stored tensor, as it is or as codes, seen through transpositions and other shapes."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from onnxreg.converters.onnx.elements import FLOATS
from onnxreg.converters.onnx.stored_tensors import StoredTensor, is_numeric

NIBBLES = {"int4": True, "uint4": False}
"""Types of two elements in a byte, the low half first, and whether they have a sign."""


class ArrayTensor:
    """A tensor that no file stores: a constant that was computed, or an attribute that is a number."""

    def __init__(self, name: str, array: Any) -> None:
        self.name = name
        self.dtype = str(array.dtype)
        self.dims = tuple(array.shape)
        self._array = array

    def blocks(self) -> Iterator[Any]:
        yield self._array.tobytes()

    def array(self) -> Any:
        return self._array


class NibbleTensor:
    """A stored uint8 tensor as the 4-bit codes that its bytes hold: twice as many along the last axis."""

    def __init__(self, tensor: StoredTensor) -> None:
        self.name = tensor.name
        self.dtype = "uint4"
        self.dims = (*tensor.dims[:-1], 2 * tensor.dims[-1])
        self.blocks = tensor.blocks

    def array(self) -> Any:
        raise ValueError("4-bit codes are not an array of numpy: use read_array")


@dataclass(frozen=True, eq=False)
class QuantizationParameters:
    """The numbers by which codes are read: `(code - zero point) * scale`.

    `axis` is the axis of the codes along which scales run (None: one scale for all); with `block` a scale is for that
    many codes in a row of the axis. `matrix` is K of the `[K, N]` matrix that the packed codes `[N, blocks, bytes]` of
    `MatMulNBits` are, with `bits` each.
    """

    scale: StoredTensor
    zero: StoredTensor | None = None
    axis: int | None = None
    block: int = 0
    matrix: int = 0
    bits: int = 8


@dataclass(frozen=True, eq=False)
class StoredValue:
    """A constant. `views` lead from the tensor to the constant: `("transpose", axes)` or `("reshape", before, after)`."""

    tensor: StoredTensor
    dims: tuple[int, ...]
    quantization: QuantizationParameters | None = None
    views: tuple[tuple[Any, ...], ...] = ()

    @classmethod
    def of(cls, tensor: StoredTensor) -> "StoredValue":
        return cls(tensor, tuple(tensor.dims))

    @property
    def element(self) -> str:
        """The element type of the values: that of the scales, of codes."""
        return self.quantization.scale.dtype if self.quantization else self.tensor.dtype

    @property
    def is_float(self) -> bool:
        return self.element in FLOATS

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for two constants that read the same tensors in the same way."""
        codes = self.quantization
        facts = () if codes is None else (codes.axis, codes.block, codes.matrix, codes.bits)
        tensors = () if codes is None else (id(codes.scale), id(codes.zero))
        return id(self.tensor), self.dims, self.views, tensors, facts

    @property
    def size(self) -> int:
        return prod(self.dims)

    def transpose(self, axes: tuple[int, ...]) -> "StoredValue":
        dims = tuple(self.dims[axis] for axis in axes)
        return replace(self, dims=dims, views=(*self.views, ("transpose", axes)))

    def reshape(self, dims: tuple[int, ...]) -> "StoredValue":
        return replace(self, dims=dims, views=(*self.views, ("reshape", self.dims, dims)))

    def array(self) -> Any:
        """The values of an unquantized constant, in its shape. bfloat16 comes as float32."""
        array = read_array(self.tensor)
        for kind, *shapes in self.views:
            array = array.transpose(shapes[0]) if kind == "transpose" else array.reshape(shapes[1])
        return array

    def stored_form(self, array: Any) -> Any:
        """An array in the shape of this constant, as the tensor itself stores it."""
        for kind, *shapes in reversed(self.views):
            if kind == "transpose":
                axes = shapes[0]
                array = array.transpose(sorted(range(len(axes)), key=axes.__getitem__))
            else:
                array = array.reshape(shapes[0])
        return array


def is_readable(tensor: StoredTensor) -> bool:
    """Return True if `read_array` knows the element type."""
    return is_numeric(tensor) or tensor.dtype in ("bool", "bfloat16", *NIBBLES)


def read_array(tensor: StoredTensor) -> Any:
    """The elements of a tensor as numpy knows them: bfloat16 as float32, 4-bit integers as int8 or uint8.

    Raises ValueError for a type without such a form, or a tensor that is shorter than its shape.
    """
    import numpy as np

    if is_numeric(tensor):
        return tensor.array()
    data = np.frombuffer(b"".join(bytes(block) for block in tensor.blocks()), np.uint8)
    if tensor.dtype == "bool":
        return data.view(np.bool_).reshape(tensor.dims)
    if tensor.dtype == "bfloat16":
        return (data.view("<u2").astype(np.uint32) << 16).view(np.float32).reshape(tensor.dims)
    if tensor.dtype in NIBBLES:
        codes = unpack_nibbles(data)[: prod(tensor.dims)].reshape(tensor.dims)
        return ((codes ^ 8).astype(np.int8) - 8) if NIBBLES[tensor.dtype] else codes
    raise ValueError(f"elements of type {tensor.dtype} cannot be compared")


def unpack_nibbles(packed: Any) -> Any:
    """Two codes from each byte along the last axis, the low half first."""
    import numpy as np

    return np.stack([packed & 0xF, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)
