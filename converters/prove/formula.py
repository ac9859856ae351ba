"""The values of a graph as formulas: an operator, its attributes and operands, down to inputs and constants.

A constant is a stored tensor, as it is or as codes, seen through transpositions and other shapes.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxreg.converters.onnx.tensors import FLOATS, dims_of, is_numeric, type_of

INPUT, ARGUMENT, CONSTANT = "input", "argument", "constant"
"""Formulas without an operator: an input of the graph, one of a subgraph, a stored value."""
COMMUTATIVE = frozenset({"Add", "Mul", "And", "Or", "Xor", "Equal", "Max", "Min", "Sum", "Mean"})
Attributes = tuple[tuple[str, Hashable], ...]
NIBBLES = {"int4": True, "uint4": False}
"""Types of two elements in a byte, the low half first, and whether they have a sign."""


class UnprovableError(Exception):
    """The reason why a child is not shown to be its parent, in words for people."""


@dataclass(frozen=True, eq=False)
class QuantizationParameters:
    """The numbers by which codes are read: `(code - zero point) * scale`.

    `axis` is the axis of the codes along which scales run (None: one scale for all); with `block` a scale is for that
    many codes in a row of the axis.
    """

    scale: ir.TensorProtocol
    zero: Any = None
    axis: int | None = None
    block: int = 0


@dataclass(frozen=True, eq=False)
class StoredValue:
    """A constant. `views` lead from the tensor to the constant: `("transpose", axes)`, `("reshape", before, after)`, or `("cut", columns)`.

    A factor that was computed here may differ from another one by `tolerance`, relative.
    """

    tensor: ir.TensorProtocol
    dims: tuple[int, ...]
    quantization: QuantizationParameters | None = None
    views: tuple[tuple[Any, ...], ...] = ()
    tolerance: float = 0.0

    @classmethod
    def of(cls, tensor: ir.TensorProtocol) -> "StoredValue":
        return cls(tensor, dims_of(tensor))

    @property
    def element(self) -> str:
        """The element type of the values: that of the scales, of codes."""
        return type_of(self.quantization.scale if self.quantization else self.tensor)

    @property
    def is_float(self) -> bool:
        return self.element in FLOATS

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for two constants that read the same tensors in the same way."""
        codes = self.quantization
        facts = () if codes is None else (id(codes.scale), id(codes.zero), codes.axis, codes.block)
        return id(self.tensor), self.dims, self.views, facts

    @property
    def size(self) -> int:
        return prod(self.dims)

    def transpose(self, axes: tuple[int, ...]) -> "StoredValue":
        dims = tuple(self.dims[axis] for axis in axes)
        return replace(self, dims=dims, views=(*self.views, ("transpose", axes)))

    def reshape(self, dims: tuple[int, ...]) -> "StoredValue":
        return replace(self, dims=dims, views=(*self.views, ("reshape", self.dims, dims)))

    @property
    def is_padded(self) -> bool:
        """True for the rows of `MatMulNBits`, which end with whole blocks."""
        return bool(self.views) and self.views[0][0] == "cut"

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
            elif kind == "cut":
                array = np.pad(array, [(0, 0), (0, dims_of(self.tensor)[1] - shapes[0])])
            else:
                array = array.reshape(shapes[0])
        return array


@dataclass(eq=False, slots=True)
class Formula:
    """One value of a graph. Formulas are compared by `match`, never by `==`.

    `operator` has a domain in front beyond ai.onnx; `epoch` is the version since which it means the same. `output` is
    the number of the operator's output; `element` the element type, "" if unknown; `node` a name for people. `shape_of`
    is a digest of the form without constants: operands of a commutative operator are sorted by it.
    """

    operator: str
    operands: tuple["Formula | None", ...] = ()
    attributes: Attributes = ()
    output: int = 0
    element: str = ""
    node: str = ""
    epoch: int = 0
    constant: StoredValue | None = None
    shape_of: bytes = field(init=False)

    def __post_init__(self) -> None:
        while self.operands and self.operands[-1] is None:
            self.operands = self.operands[:-1]
        if self.operator in COMMUTATIVE:
            self.operands = tuple(sorted(self.operands, key=lambda one: one.shape_of if one else b""))
        self.shape_of = self._form()

    def _form(self) -> bytes:
        operands = [one.shape_of if one else b"" for one in self.operands]
        if self.constant is not None or (
            operands and self.operator not in (INPUT, ARGUMENT) and not any(operands)
        ):
            return b""
        head = repr((self.operator, self.attributes, self.output)).encode()
        return blake2b(b"\0".join([head, *operands]), digest_size=12).digest()

    @property
    def is_float(self) -> bool:
        return self.element in FLOATS

    def attribute(self, name: str, default: Any = None) -> Any:
        return dict(self.attributes).get(name, default)

    def is_op(self, operator: str, output: int = 0) -> bool:
        return self.operator == operator and self.output == output

    def __str__(self) -> str:
        return f"{self.operator} {self.node!r}" if self.node else self.operator


def constant(value: StoredValue, node: str = "") -> Formula:
    return Formula(CONSTANT, element=value.element, node=node or value.tensor.name or "", constant=value)


def number(value: Any, name: str) -> Formula:
    """A constant of one array that no tensor of the file has, such as an attribute."""
    return constant(computed(name, value))


def computed(name: str, array: Any) -> StoredValue:
    """A constant that no file stores."""
    return StoredValue.of(ir.Tensor(array, name=name))


def nibbles(tensor: ir.TensorProtocol, dims: tuple[int, ...]) -> StoredValue:
    """A stored uint8 tensor as the 4-bit codes that its bytes hold, in this shape."""
    packed = tensor.numpy().reshape(-1)
    return StoredValue.of(ir.PackedTensor(packed, ir.DataType.UINT4, shape=ir.Shape(dims), name=tensor.name))


def array_of(formula: Formula | None, most: int = 2**16) -> Any:
    """The array of a small unquantized constant; None of anything else."""
    value = formula.constant if formula is not None else None
    if value is None or value.quantization is not None or value.size > most or not is_readable(value.tensor):
        return None
    return value.array()


def is_scalar(formula: Formula | None, expected: float) -> bool:
    """Return True if a formula is a constant of one element and at most one axis: a number as its element type, or its
    codes, round it."""
    value = formula.constant if formula is not None else None
    if value is None or value.size != 1 or len(value.dims) > 1 or not is_readable(value.tensor):
        return False
    array = read_array(value.tensor).reshape(-1)
    if array.dtype.kind not in "fiu":
        return False
    exact, kind = float(array[0]), array.dtype
    if (codes := value.quantization) is not None:
        zero = 0 if codes.zero is None else int(read_array(codes.zero).reshape(-1)[0])
        scale = read_array(codes.scale).reshape(-1)
        if scale.size != 1:
            return False
        exact, kind = (exact - zero) * float(scale[0]), scale.dtype
    return bool(np.abs(exact - float(kind.type(expected))) <= abs(expected) * 2.0**-22)


def same_arrays(one: Formula | None, other: Formula | None) -> bool:
    """Return True if two formulas are one, or constants of the same type, size and elements."""
    if one is other:
        return True
    a, b = array_of(one), array_of(other)
    if a is None or b is None or a.dtype != b.dtype or a.size != b.size:
        return False
    return bool((a.reshape(-1) == b.reshape(-1)).all())


def split(operands: Iterable["Formula | None"], is_first: Any) -> tuple[Any, Any] | None:
    """The operand of two for which `is_first` is true, and the other one; None without one."""
    pair = tuple(operands)
    if len(pair) != 2 or pair[0] is None or pair[1] is None:
        return None
    if is_first(pair[0]):
        return pair
    return (pair[1], pair[0]) if is_first(pair[1]) else None


def is_readable(tensor: ir.TensorProtocol) -> bool:
    """Return True if `read_array` knows the element type."""
    return is_numeric(tensor) or type_of(tensor) in ("bool", "bfloat16", *NIBBLES)


def read_array(tensor: ir.TensorProtocol) -> Any:
    """The elements of a tensor as numpy knows them: bfloat16 as float32, 4-bit integers as int8 or uint8.

    Raises ValueError for a type without such a form, or a tensor that is shorter than its shape.
    """
    kind = type_of(tensor)
    if not is_readable(tensor):
        raise ValueError(f"elements of type {kind} cannot be compared")
    array = tensor.numpy()
    if kind == "bfloat16":
        return array.astype(np.float32)
    return array.astype(np.int8 if NIBBLES[kind] else np.uint8) if kind in NIBBLES else array


def unpack_nibbles(packed: Any) -> Any:
    """Two codes from each byte along the last axis, the low half first."""
    return np.stack([packed & 0xF, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)
