"""Formulas: each value of a graph as an operator with operands, down to inputs and stored constants."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxreg.converters.onnx.tensors import FLOATS, dims_of, is_numeric, type_of

INPUT, CONSTANT = "input", "constant"
COMMUTATIVE = frozenset({"Add", "Mul", "And", "Or", "Xor", "Equal", "Max", "Min", "Sum", "Mean"})
Attributes = tuple[tuple[str, Hashable], ...]
READ_AS = {"bfloat16": np.float32, "int4": np.int8, "uint4": np.uint8}


class UnprovableError(Exception):
    """It cannot be proven that the child is the parent with rounded weights. The message has the reason."""


@dataclass(frozen=True)
class StoredValue:
    """A constant of a graph. If `scale` is set, the tensor has codes, and a value is `(code - zero) * scale`.

    If `axis` is None, the tensor has one scale. Otherwise, each index along `axis` has a scale, or each block of
    `block` indices. `views` are numpy calls that turn the tensor into the constant: `("reshape", (2, 3), (6,))`
    reshapes to (2, 3), and `stored_form` back to (6,). `tolerance` is the allowed relative error of a computed factor.
    """

    tensor: ir.TensorProtocol
    dims: tuple[int, ...]
    scale: Any = None
    zero: Any = None
    axis: int | None = None
    block: int = 0
    views: tuple[tuple[str, tuple[Any, ...], tuple[Any, ...]], ...] = ()
    tolerance: float = 0.0

    @property
    def element(self) -> str:
        return type_of(self.scale if self.is_coded else self.tensor)

    @property
    def is_coded(self) -> bool:
        return self.scale is not None

    @property
    def is_float(self) -> bool:
        return self.element in FLOATS

    @property
    def size(self) -> int:
        return prod(self.dims)

    def transpose(self, axes: tuple[int, ...]) -> "StoredValue":
        view = ("transpose", axes, tuple(map(axes.index, range(len(axes)))))
        return replace(self, dims=tuple(self.dims[axis] for axis in axes), views=(*self.views, view))

    def reshape(self, dims: tuple[int, ...]) -> "StoredValue":
        return replace(self, dims=dims, views=(*self.views, ("reshape", dims, self.dims)))

    def scale_rows(self, exponents: tuple[int, ...]) -> "StoredValue":
        """Return this matrix with row `i` multiplied by `2 ** exponents[i]`."""
        forth, back = (tuple((sign * exponent,) for exponent in exponents) for sign in (1, -1))
        return replace(self, views=(*self.views, ("ldexp", forth, back)))

    def array(self) -> Any:
        """Return the values in the constant's shape; bfloat16 values as float32. The constant must not be quantized."""
        array = read_array(self.tensor)
        for function, forth, _ in self.views:
            array = getattr(np, function)(array, forth)
        return array

    def stored_form(self, array: Any) -> Any:
        """Reverse the views: turn an array in the constant's shape into the shape of the stored tensor."""
        for function, _, back in reversed(self.views):
            array = getattr(np, function)(array, back)
        return array


@dataclass(eq=False, slots=True)
class Formula:
    """A value of a graph: output number `output` of an operator, with operands and attributes.

    `operator` is `"Add"` or `"com.microsoft:Gelu"`. `epoch` is the oldest operator version with the same meaning.
    `element` is the element type, "" if unknown. `node` is a name for messages. `shape_of` is a digest of the formula
    without constants. Operands of commutative operators are sorted by this digest.
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
        operands = [one.shape_of if one else b"" for one in self.operands]
        head = repr((self.operator, self.attributes, self.output)).encode()
        is_stored = self.constant is not None or (operands and not any(operands))
        self.shape_of = b"" if is_stored else blake2b(b"\0".join([head, *operands]), digest_size=12).digest()

    @property
    def is_float(self) -> bool:
        return self.element in FLOATS

    def attribute(self, name: str, default: Any = None) -> Any:
        return dict(self.attributes).get(name, default)

    def first(self, count: int) -> list[Any]:
        """Return the operands, padded with None to `count`. Raise ValueError if there are more operands."""
        if len(self.operands) > count:
            raise ValueError(f"{self} has {len(self.operands)} operands")
        return [*self.operands, *[None] * (count - len(self.operands))]

    def is_op(self, operator: str, output: int = 0) -> bool:
        return self.operator == operator and self.output == output

    def __str__(self) -> str:
        return f"{self.operator} {self.node!r}" if self.node else self.operator


Operand = Formula | None


def constant(value: StoredValue, node: str = "") -> Formula:
    return Formula(CONSTANT, element=value.element, node=node or value.tensor.name or "", constant=value)


def stored(tensor: ir.TensorProtocol, node: str = "") -> Formula:
    return constant(StoredValue(tensor, dims_of(tensor)), node)


def computed(name: str, array: Any) -> StoredValue:
    return StoredValue(ir.Tensor(array, name=name), array.shape)


def number(name: str, value: Any, kind: Any = np.float32, tolerance: float = 0.0) -> Formula:
    """Make a formula for a number that no file stores, such as an attribute."""
    return constant(replace(computed(name, np.asarray(value, kind)), tolerance=tolerance))


def array_of(formula: Operand, most: int = 2**16) -> Any:
    """Return a constant's array. Return None if the value is computed, or if it has more than `most` elements."""
    value = formula.constant if formula is not None else None
    if value is None or value.size > most or not is_readable(value.tensor):
        return None
    if not value.is_coded:
        return value.array()
    if value.size != 1 or value.block:
        return None
    scale = read_array(value.scale).reshape(value.dims)
    zero = 0 if value.zero is None else int(read_array(value.zero).reshape(-1)[0])
    return ((value.array().astype(np.float64) - zero) * scale).astype(scale.dtype)


def is_number(formula: Operand, expected: float | None = None) -> bool:
    """Return True if a formula is a stored scalar that equals `expected` up to rounding. None allows any scalar."""
    value = formula.constant if formula is not None else None
    if value is None or value.dims or expected is None:
        return value is not None and not value.dims
    array = array_of(formula)
    if array is None or array.dtype.kind not in "fiu":
        return False
    return bool(np.abs(float(array) - float(array.dtype.type(expected))) <= abs(expected) * 2.0**-22)


def split(operands: Iterable[Operand], is_first: Callable[[Formula], bool]) -> tuple[Formula, Formula] | None:
    one, other = (*operands, None, None)[:2]
    pairs = ((one, other), (other, one)) if one and other else ()
    return next((pair for pair in pairs if is_first(pair[0])), None)


def is_readable(tensor: ir.TensorProtocol) -> bool:
    return is_numeric(tensor) or type_of(tensor) in ("bool", *READ_AS)


def read_array(tensor: ir.TensorProtocol) -> Any:
    """Read a tensor. bfloat16 becomes float32, 4-bit integers become 8-bit. Raise ValueError for other types."""
    kind = type_of(tensor)
    if not is_readable(tensor):
        raise ValueError(f"elements of type {kind} cannot be compared")
    array = tensor.numpy()
    return array.astype(READ_AS.get(kind, array.dtype), copy=False)
