"""The values of a graph as formulas: an operator, its attributes and operands, down to inputs and constants."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from onnxreg.converters.onnx.elements import FLOATS
from onnxreg.converters.prove.stored_value import ArrayTensor, StoredValue, is_readable, read_array

INPUT, ARGUMENT, CONSTANT = "input", "argument", "constant"
"""Formulas without an operator: an input of the graph, one of a subgraph, a stored value."""
COMMUTATIVE = frozenset({"Add", "Mul", "And", "Or", "Xor", "Equal", "Max", "Min", "Sum", "Mean"})
Attributes = tuple[tuple[str, Hashable], ...]


class UnprovableError(Exception):
    """The reason why a child is not shown to be its parent, in words for people."""


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
    return Formula(CONSTANT, element=value.element, node=node or value.tensor.name, constant=value)


def number(value: Any, name: str) -> Formula:
    """A constant of one array that no tensor of the file has, such as an attribute."""
    return constant(StoredValue.of(ArrayTensor(name, value)))


def array_of(formula: Formula | None, most: int = 2**16) -> Any:
    """The array of a small unquantized constant; None of anything else."""
    value = formula.constant if formula is not None else None
    if value is None or value.quantization is not None or value.size > most or not is_readable(value.tensor):
        return None
    return value.array()


def is_scalar(formula: Formula | None, expected: float) -> bool:
    """Return True if a formula is a constant of one element and at most one axis: a number as its element type, or its
    codes, round it."""
    import numpy as np

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
        if codes.matrix or scale.size != 1:
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
