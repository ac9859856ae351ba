"""The shape of an operator's result, from the shapes of its operands and the values of its sizes, axes and indices.

The rules are those of the ONNX operator specification, for runs that ONNX Runtime does not refuse: if shapes must fit, they
do. A size of which nothing follows is a fresh symbol.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import Any, Protocol

from onnxreg.converters.prove.formula import Formula
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

Dims = tuple[Size, ...]
MAX_RANK = 64
ENDLESS = 2**31 - 1
"""An end of a slice from which on it is the end of the axis."""


class Operands(Protocol):
    """Shapes and values of operands, None if they are not known."""

    def dims(self, formula: Formula | None) -> Dims | None: ...
    def value(self, formula: Formula | None) -> Any: ...
    def fresh(self) -> Size: ...


Rule = Callable[[Operands, Formula], Dims | None]


def result_dims(of: Operands, formula: Formula) -> Dims | None:
    """The shape of a formula's value; None if not even its rank is known.

    May raise ValueError, TypeError, LookupError or ArithmeticError for a graph that ONNX Runtime refuses.
    """
    rule = _RULES.get(formula.operator)
    dims = None if rule is None else rule(of, formula)
    return dims if dims is None or len(dims) <= MAX_RANK else None


def _first(of: Operands, formula: Formula) -> Dims | None:
    return of.dims(formula.operands[0])


def _first_output(of: Operands, formula: Formula) -> Dims | None:
    return _first(of, formula) if not formula.output else None


def _broadcast(of: Operands, formula: Formula) -> Dims | None:
    shapes = [of.dims(one) for one in formula.operands]
    if formula.attribute("broadcast") is not None:
        return None  # before version 7 the axes of the second operand began at a given one
    return broadcast(of, [dims for dims in shapes if dims is not None]) if None not in shapes else None


def broadcast(of: Operands, shapes: Sequence[Dims]) -> Dims:
    """The shape that operands of these shapes have together."""
    columns = zip_longest(*(dims[::-1] for dims in shapes), fillvalue=1)
    return tuple(_together(of, column) for column in columns)[::-1]


def _together(of: Operands, sizes: Sequence[Size]) -> Size:
    """The size of an axis: of sizes that are not one all are equal.

    `min(512, length)` is `length` if both fit: one of them is one only if both are.
    """
    others = list(dict.fromkeys(size for size in sizes if size != 1))
    if len(others) < 2:
        return others[0] if others else 1
    numbers = [size for size in others if isinstance(size, int)]
    longest = [one for one in others if all(one == other or is_part(other, one) for other in others)]
    return (numbers or longest or [of.fresh()])[0]


def _product(of: Operands, formula: Formula) -> Dims | None:
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


def _gather(of: Operands, formula: Formula) -> Dims | None:
    dims, index = _first(of, formula), of.dims(formula.operands[1])
    if dims is None or index is None:
        return None
    axis = range(len(dims))[formula.attribute("axis", 0)]
    return (*dims[:axis], *index, *dims[axis + 1 :])


def _second(of: Operands, formula: Formula) -> Dims | None:
    return of.dims(formula.operands[1])


def _transpose(of: Operands, formula: Formula) -> Dims | None:
    dims = _first(of, formula)
    if dims is None:
        return None
    axes = formula.attribute("perm", tuple(reversed(range(len(dims)))))
    return tuple(dims[axis] for axis in axes) if sorted(axes) == [*range(len(dims))] else None


def _integers(of: Operands, formula: Formula, index: int) -> list[Any] | None:
    """The elements of an operand that is a vector of sizes, axes or places."""
    value = of.value(formula.operands[index]) if len(formula.operands) > index else None
    if value is None or value.dtype.kind not in "iO":
        return None
    return list(value.reshape(-1).tolist())


def _reshape(of: Operands, formula: Formula) -> Dims | None:
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


def _of_rank(of: Operands, sizes: Formula | None) -> Dims | None:
    """A shape of which only the number of sizes is known."""
    dims = of.dims(sizes)
    if dims is None or len(dims) != 1 or not isinstance(dims[0], int) or dims[0] > MAX_RANK:
        return None
    return tuple(of.fresh() for _ in range(dims[0]))


def _flatten(of: Operands, formula: Formula) -> Dims | None:
    dims, axis = _first(of, formula), formula.attribute("axis", 1)
    return None if dims is None else (product(dims[:axis]), product(dims[axis:]))


def _expand(of: Operands, formula: Formula) -> Dims | None:
    dims, sizes = _first(of, formula), _integers(of, formula, 1)
    if dims is None:
        return None
    if sizes is not None and all(map(is_natural, sizes)):
        return broadcast(of, [dims, tuple(sizes)])
    rank = _of_rank(of, formula.operands[1])
    return None if rank is None else broadcast(of, [dims, rank])


def _unsqueeze(of: Operands, formula: Formula) -> Dims | None:
    axes, dims = _integers(of, formula, 1), _first(of, formula)
    if axes is None or dims is None:
        return None
    rank = range(len(dims) + len(axes))
    new, remaining = {rank[axis] for axis in axes}, iter(dims)
    return tuple(1 if at in new else next(remaining) for at in rank) if len(new) == len(axes) else None


def _squeeze(of: Operands, formula: Formula) -> Dims | None:
    axes, dims = _integers(of, formula, 1), _first(of, formula)
    if axes is None or dims is None:
        return None
    old = {range(len(dims))[axis] for axis in axes}
    return tuple(size for at, size in enumerate(dims) if at not in old)


def _concat(of: Operands, formula: Formula) -> Dims | None:
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


def _slice(of: Operands, formula: Formula) -> Dims | None:
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


def _split(of: Operands, formula: Formula) -> Dims | None:
    dims, parts = _first(of, formula), _integers(of, formula, 1)
    if dims is None or parts is None:
        return None
    result = list(dims)
    result[formula.attribute("axis", 0)] = parts[formula.output]
    return tuple(result)


def _reduce(of: Operands, formula: Formula) -> Dims | None:
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


def _full(of: Operands, formula: Formula) -> Dims | None:
    sizes = _integers(of, formula, 0)
    return tuple(sizes) if sizes is not None and all(map(is_natural, sizes)) else None


def _range(of: Operands, formula: Formula) -> Dims | None:
    start, limit, step = (_integers(of, formula, at) for at in range(3))
    is_plain = start == [0] and step == [1] and limit is not None and is_positive(limit[0])
    return (limit[0],) if is_plain and limit else (of.fresh(),)


def _tile(of: Operands, formula: Formula) -> Dims | None:
    dims, times = _first(of, formula), _integers(of, formula, 1)
    if dims is None:
        return None
    if times is None:
        return tuple(of.fresh() for _ in dims)
    return tuple(size * by for size, by in zip(dims, times, strict=True))


_LIKE_FIRST = """
Abs Cast Ceil Clip Cos CumSum Elu Erf Exp Floor Gelu HardSigmoid HardSwish IsInf IsNaN LayerNormalization LeakyRelu Log
LogSoftmax Neg Not QuantizeLinear Reciprocal Relu Round Sigmoid Sign Sin Softmax Softplus Sqrt Tanh Trilu
"""
_ELEMENTWISE = """
Add And Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mod Mul Or Pow Sub Sum Where Xor
"""
_RULES: dict[str, Rule] = {
    **dict.fromkeys(_LIKE_FIRST.split(), _first_output),
    **dict.fromkeys(_ELEMENTWISE.split(), _broadcast),
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
