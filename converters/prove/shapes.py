"""Shapes of the values of a graph, and the values of its small tensors, as far as they follow from the sizes of inputs.

The rules are those of the ONNX operator specification, for runs that ONNX Runtime does not refuse: if shapes must fit, they
do. A size of which nothing follows is a fresh symbol.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, zip_longest
from typing import Any

import numpy as np

from onnxreg.converters.prove.compute import MAX_ELEMENTS, compute, is_computable
from onnxreg.converters.prove.formula import INPUT, Formula, StoredValue, array_of, computed, is_readable
from onnxreg.converters.prove.operators import ELEMENTWISE, UNARY
from onnxreg.converters.prove.polynomial import (
    Size,
    Symbol,
    divide,
    is_natural,
    is_part,
    is_positive,
    of_symbol,
    product,
    smaller,
)

MAX_COMPUTED = 2**24
"""Elements of all values that are computed for one proof."""
Dims = tuple[Size, ...]
Rule = Callable[["Shapes", Formula], Dims | None]
MAX_RANK = 64
ENDLESS = 2**31 - 1
"""An end of a slice from which on it is the end of the axis."""
_LIKE_FIRST = "CumSum IsInf IsNaN LayerNormalization LogSoftmax QuantizeLinear Softmax Trilu"


@dataclass(frozen=True)
class Inference:
    """The shape of a formula, and its value if inputs change it by their sizes at most; None of what is not known.

    An array of objects is one of int64 with a `Polynomial` among its elements.
    """

    dims: Dims | None = None
    value: Any = None


class Shapes:
    """Infers shapes and values, each once, from operands upwards. `inputs` has the shapes of the graph's inputs."""

    def __init__(self, inputs: Mapping[str, Dims]) -> None:
        self._inputs = inputs
        self._inferred: dict[Formula, Inference] = {}
        self._numbers = count()
        self._computed = 0

    def dims(self, formula: Formula | None) -> Dims | None:
        return self._of(formula).dims if formula is not None else None

    def dims_by_rule(self, formula: Formula) -> Dims | None:
        """The shape of a formula's value by the rule of its operator; None if not even its rank is known."""
        rule = _RULES.get(formula.operator)
        try:
            dims = None if rule is None else rule(self, formula)
        except (ValueError, TypeError, LookupError, ArithmeticError):  # a graph that ONNX Runtime refuses
            return None
        return dims if dims is None or len(dims) <= MAX_RANK else None

    def value(self, formula: Formula | None) -> Any:
        """The array of a formula that depends on sizes at most; None of any other, and of a large one."""
        if formula is None or formula.constant is not None:
            return array_of(formula, MAX_ELEMENTS)
        return self._of(formula).value

    def fold(self, formula: Formula) -> StoredValue | None:
        """The stored form of a formula that depends on no input; None of any other."""
        value = self.value(formula)
        if value is None or value.dtype == object:
            return None
        return computed(formula.node or formula.operator, value)

    def fresh(self) -> Size:
        """A size of which nothing is known."""
        return of_symbol(Symbol(f"?{next(self._numbers)}"))

    def _of(self, formula: Formula) -> Inference:
        waiting = [formula]
        while waiting:
            one = waiting[-1]
            missing = [part for part in one.operands if part is not None and part not in self._inferred]
            if one in self._inferred or not missing:
                waiting.pop()
            if one not in self._inferred and not missing:
                self._inferred[one] = self._infer(one)
            waiting += missing
        return self._inferred[formula]

    def _infer(self, formula: Formula) -> Inference:
        if formula.constant is not None:
            return Inference(formula.constant.dims)
        if formula.operator == INPUT:
            return Inference(self._inputs.get(formula.attribute("name")))
        value = self._value(formula)
        if value is not None:
            self._computed += value.size
            return Inference(value.shape, value)
        return Inference(self.dims_by_rule(formula))

    def _value(self, formula: Formula) -> Any:
        if formula.is_op("Shape"):
            dims = self.dims(formula.operands[0])
            if dims is None:
                return None
            part = dims[formula.attribute("start", 0) : formula.attribute("end", None)]
            return np.array(part, np.int64 if all(isinstance(size, int) for size in part) else object)
        if not is_computable(formula) or self._computed > MAX_COMPUTED:
            return None
        if not all(one is None or self._has_value(one) for one in formula.operands):
            return None
        operands = [self.value(one) for one in formula.operands]
        missing = any(
            array is None and one is not None for array, one in zip(operands, formula.operands, strict=True)
        )
        return None if missing else compute(formula, operands)

    def _has_value(self, formula: Formula) -> bool:
        value = formula.constant
        if value is None:
            return self._inferred[formula].value is not None
        return value.quantization is None and value.size <= MAX_ELEMENTS and is_readable(value.tensor)


def _first(of: Shapes, formula: Formula) -> Dims | None:
    return of.dims(formula.operands[0])


def _first_output(of: Shapes, formula: Formula) -> Dims | None:
    return _first(of, formula) if not formula.output else None


def _broadcast(of: Shapes, formula: Formula) -> Dims | None:
    shapes = [of.dims(one) for one in formula.operands]
    if formula.attribute("broadcast") is not None:
        return None  # before version 7 the axes of the second operand began at a given one
    return broadcast(of, [dims for dims in shapes if dims is not None]) if None not in shapes else None


def broadcast(of: Shapes, shapes: Sequence[Dims]) -> Dims:
    """The shape that operands of these shapes have together."""
    columns = zip_longest(*(dims[::-1] for dims in shapes), fillvalue=1)
    return tuple(_together(of, column) for column in columns)[::-1]


def _together(of: Shapes, sizes: Sequence[Size]) -> Size:
    """The size of an axis: of sizes that are not one all are equal.

    `min(512, length)` is `length` if both fit: one of them is one only if both are.
    """
    others = list(dict.fromkeys(size for size in sizes if size != 1))
    if len(others) < 2:
        return others[0] if others else 1
    numbers = [size for size in others if isinstance(size, int)]
    longest = [one for one in others if all(one == other or is_part(other, one) for other in others)]
    return (numbers or longest or [of.fresh()])[0]


def _product(of: Shapes, formula: Formula) -> Dims | None:
    """MatMul, also of operands whose last two axes are exchanged; vectors are left out."""
    if not {name for name, _ in formula.attributes} <= {"transA", "transB"}:
        return None
    one, other = (of.dims(operand) for operand in formula.operands[:2])
    if one is None or other is None or min(len(one), len(other)) < 2:
        return None
    pairs = [
        dims[:-3:-1] if formula.attribute(name, 0) else dims[-2:]
        for name, dims in (("transA", one), ("transB", other))
    ]
    return (*broadcast(of, [one[:-2], other[:-2]]), pairs[0][0], pairs[1][1])


def _gather(of: Shapes, formula: Formula) -> Dims | None:
    dims, index = _first(of, formula), of.dims(formula.operands[1])
    if dims is None or index is None:
        return None
    axis = range(len(dims))[formula.attribute("axis", 0)]
    return (*dims[:axis], *index, *dims[axis + 1 :])


def _second(of: Shapes, formula: Formula) -> Dims | None:
    return of.dims(formula.operands[1])


def _transpose(of: Shapes, formula: Formula) -> Dims | None:
    dims = _first(of, formula)
    if dims is None:
        return None
    axes = formula.attribute("perm", tuple(reversed(range(len(dims)))))
    return tuple(dims[axis] for axis in axes) if sorted(axes) == [*range(len(dims))] else None


def _integers(of: Shapes, formula: Formula, index: int) -> list[Any] | None:
    """The elements of an operand that is a vector of sizes, axes or places."""
    value = of.value(formula.operands[index]) if len(formula.operands) > index else None
    if value is None or value.dtype.kind not in "iO":
        return None
    return list(value.reshape(-1).tolist())


def _reshape(of: Shapes, formula: Formula) -> Dims | None:
    """A zero copies the size of that axis; minus one takes what remains. A size that may be zero must be that size."""
    dims, sizes = _first(of, formula), _integers(of, formula, 1)
    if sizes is None or formula.attribute("allowzero", 0):
        return _of_rank(of, formula.operands[1])
    old = dict(enumerate(dims or ()))
    result = [old[at] if size in (0, old.get(at)) else size for at, size in enumerate(sizes)]
    if result.count(-1) > 1 or not all(
        size == -1 or is_positive(size) or size == old.get(at) for at, size in enumerate(result)
    ):
        return _of_rank(of, formula.operands[1])
    if -1 in result:
        size = None if dims is None else divide(product(dims), product(one for one in result if one != -1))
        result[result.index(-1)] = of.fresh() if size is None else size
    return tuple(result)


def _of_rank(of: Shapes, sizes: Formula | None) -> Dims | None:
    """A shape of which only the number of sizes is known."""
    dims = of.dims(sizes)
    if dims is None or len(dims) != 1 or not isinstance(dims[0], int) or dims[0] > MAX_RANK:
        return None
    return tuple(of.fresh() for _ in range(dims[0]))


def _flatten(of: Shapes, formula: Formula) -> Dims | None:
    dims, axis = _first(of, formula), formula.attribute("axis", 1)
    return None if dims is None else (product(dims[:axis]), product(dims[axis:]))


def _expand(of: Shapes, formula: Formula) -> Dims | None:
    dims, sizes = _first(of, formula), _integers(of, formula, 1)
    if dims is None:
        return None
    if sizes is not None and all(map(is_natural, sizes)):
        return broadcast(of, [dims, tuple(sizes)])
    rank = _of_rank(of, formula.operands[1])
    return None if rank is None else broadcast(of, [dims, rank])


def _unsqueeze(of: Shapes, formula: Formula) -> Dims | None:
    axes, dims = _integers(of, formula, 1), _first(of, formula)
    if axes is None or dims is None:
        return None
    rank = range(len(dims) + len(axes))
    new, remaining = {rank[axis] for axis in axes}, iter(dims)
    return tuple(1 if at in new else next(remaining) for at in rank) if len(new) == len(axes) else None


def _squeeze(of: Shapes, formula: Formula) -> Dims | None:
    axes, dims = _integers(of, formula, 1), _first(of, formula)
    if dims is not None and len(formula.operands) == 1 and all(isinstance(size, int) for size in dims):
        return tuple(size for size in dims if size != 1)
    if axes is None or dims is None:
        return None
    old = {range(len(dims))[axis] for axis in axes}
    return tuple(size for at, size in enumerate(dims) if at not in old)


def _concat(of: Shapes, formula: Formula) -> Dims | None:
    shapes = [of.dims(one) for one in formula.operands]
    stated = [dims for dims in shapes if dims is not None]
    if len(stated) < len(shapes):
        return None
    axis = range(len(stated[0]))[formula.attribute("axis")]
    result = [sizes[0] if len(set(sizes)) == 1 else of.fresh() for sizes in zip(*stated, strict=True)]
    result[axis] = _sum(dims[axis] for dims in stated)
    return tuple(result)


def _sum(sizes: Iterable[Size]) -> Size:
    total: Size = 0
    for size in sizes:
        total = size + total
    return total


def _slice(of: Shapes, formula: Formula) -> Dims | None:
    dims, starts, ends = _first(of, formula), _integers(of, formula, 1), _integers(of, formula, 2)
    axes, steps = _integers(of, formula, 3), _integers(of, formula, 4)
    if dims is None or axes is None:
        return None
    result = list(dims)
    for at, axis in enumerate(axes):
        step = 1 if len(formula.operands) < 5 else steps[at] if steps else 0
        size = _part(dims[axis], starts[at], ends[at]) if starts and ends and step == 1 else None
        result[axis] = of.fresh() if size is None else size
    return tuple(result)


def _part(size: Size, start: Size, end: Size) -> Size:
    """The size of a slice of an axis."""
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        return len(range(*slice(start, end).indices(size)))
    least = smaller(size, end) if start == 0 else None
    if start == 0 and isinstance(end, int) and end >= ENDLESS:
        return size
    return of_symbol(Symbol(f"slice({size}, {start}, {end})")) if least is None else least


def _split(of: Shapes, formula: Formula) -> Dims | None:
    dims, parts = _first(of, formula), _integers(of, formula, 1)
    if dims is None or parts is None:
        return None
    result = list(dims)
    result[formula.attribute("axis", 0)] = parts[formula.output]
    return tuple(result)


def _reduce(of: Shapes, formula: Formula) -> Dims | None:
    dims = _first(of, formula)
    if dims is None or len(formula.operands) < 2:
        return None
    axes = _integers(of, formula, 1)
    if not axes:
        return None
    gone = {range(len(dims))[axis] for axis in axes}
    if formula.attribute("keepdims", 1):
        return tuple(1 if at in gone else size for at, size in enumerate(dims))
    return tuple(size for at, size in enumerate(dims) if at not in gone)


def _full(of: Shapes, formula: Formula) -> Dims | None:
    sizes = _integers(of, formula, 0)
    return tuple(sizes) if sizes is not None and all(map(is_natural, sizes)) else None


def _range(of: Shapes, formula: Formula) -> Dims | None:
    start, limit, step = (_integers(of, formula, at) for at in range(3))
    is_plain = start == [0] and step == [1] and limit is not None and is_positive(limit[0])
    return (limit[0],) if is_plain and limit else (of.fresh(),)


def _tile(of: Shapes, formula: Formula) -> Dims | None:
    dims, times = _first(of, formula), _integers(of, formula, 1)
    if dims is None:
        return None
    if times is None:
        return tuple(of.fresh() for _ in dims)
    return tuple(size * by for size, by in zip(dims, times, strict=True))


_RULES: dict[str, Rule] = {
    **dict.fromkeys((*UNARY, *_LIKE_FIRST.split()), _first_output),
    **dict.fromkeys((*ELEMENTWISE, "Mean", "Mod", "Sum"), _broadcast),
    **{f"Reduce{name}": _reduce for name in ("L1", "L2", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")},
    "Concat": _concat,
    "ConstantOfShape": _full,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherElements": _second,
    "MatMul": _product,
    "com.microsoft:FusedMatMul": _product,
    "Range": _range,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
