"""Infer the shapes of a graph's values, and the contents of small values, from the sizes of the inputs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import cache, reduce
from itertools import zip_longest
from math import prod
from typing import Any

import numpy as np
import sympy  # type: ignore[import-untyped]  # of onnx_ir

from onnxreg.converters.prove.formula import INPUT, Formula, Operand, array_of
from onnxreg.converters.prove.operators import ELEMENTWISE, REDUCTIONS, UNARY, names

Size = Any
Dims = tuple[Size, ...]
MAX_OPERATIONS = 200
MAX_FACTOR, MAX_CHOICES = 2**63, 4
MAX_SPENT = 25_000
"""The maximum number of operations in all size expressions of a graph. Exports of encoders need some hundreds."""
SPENT: ContextVar[int] = ContextVar("SPENT", default=0)
SLICE = sympy.Function("slice", integer=True, nonnegative=True)
"""A symbolic function for the size of a slice. Its arguments are the size of the axis, the start and the end."""
MAX_ELEMENTS = 2**16
MAX_COMPUTED = 2**24
MAX_RANK = 64
RESHAPES = ("Reshape", "Expand")
ENDLESS = 2**31 - 1  # the least `end` of a Slice that means the end of the axis
REFUSED = (ValueError, TypeError, LookupError, ArithmeticError)
"""The errors that a rule raises if a graph is invalid, or if a shape cannot be inferred."""


def input_size(name: str) -> Size:
    """Make the symbol for a size of an input. Such a size is at least 1."""
    return sympy.Symbol(name, integer=True, positive=True)


def fresh() -> Size:
    return sympy.Dummy("?", integer=True, nonnegative=True)


def is_known(size: Size) -> bool:
    return not sympy.sympify(size).atoms(sympy.Dummy)


def simple(size: Any) -> Size:
    """Simplify an expression. Raise OverflowError if it is too large, or if a graph has too many expressions."""
    if any(abs(number) >= MAX_FACTOR for number in sympy.sympify(size).atoms(sympy.Integer)):
        raise OverflowError("a size is too large")
    if isinstance(size, int):
        return size
    operations = size.count_ops()
    SPENT.set(SPENT.get() + operations + 1)
    if SPENT.get() > MAX_SPENT or operations > MAX_OPERATIONS:
        raise OverflowError("the sizes of a graph are too many")
    expanded = sympy.expand(size)
    return int(expanded) if expanded.is_Integer else expanded


def is_positive(*sizes: Size) -> bool:
    """Return True if all sizes are at least 1, whatever the inputs are."""
    return all(sympy.sympify(size).is_positive for size in sizes)


def product(sizes: Iterable[Size]) -> Size:
    return reduce(lambda total, size: simple(total * size), sizes, 1)


def quotient(one: Size, other: Size) -> Size | None:
    """Return the quotient of two sizes. Return None if it may not be a whole number, or if the divisor may be 0."""
    if not is_positive(other):
        return None
    exact = sympy.expand(sympy.sympify(one) / other)
    return simple(exact) if sympy.fraction(sympy.together(exact))[1] == 1 else None


def floor_of_quotient(one: Size, other: Size) -> Size:
    """Return the quotient of two sizes, rounded down. Raise ArithmeticError if a size may be 0."""
    if not is_positive(one, other):
        raise ArithmeticError("the quotient is not known")
    exact = quotient(one, other)
    return simple(sympy.floor(sympy.sympify(one) / other)) if exact is None else exact


def is_equal(one: Size, other: Size) -> bool:
    """Return True if two sizes are always equal, False if they always differ. Otherwise raise ArithmeticError."""
    answer = sympy.sympify(simple(one - other)).is_zero
    if answer is None:
        raise ArithmeticError("this depends on the inputs")
    return bool(answer)


class Shapes:
    """Infers the shapes and small values of a graph. `inputs` are the shapes of its inputs by name."""

    def __init__(self, inputs: Mapping[str, Dims]) -> None:
        SPENT.set(0)
        self.inputs = inputs
        self._of = cache(self._infer)
        self._computed = 0

    def dims(self, formula: Operand) -> Dims | None:
        """Return the shape of a formula's value; None if its rank is unknown."""
        return self._of(formula)[0] if formula is not None else None

    def value(self, formula: Operand) -> Any:
        """Return a formula's value if it is a small stored tensor or can be computed from sizes; otherwise None."""
        if formula is None or formula.constant is not None:
            return array_of(formula, MAX_ELEMENTS)
        return self._of(formula)[1]

    def integers(self, formula: Formula, index: int) -> list[Any] | None:
        """Return the elements of an operand that is a vector of integers or sizes; None if they are unknown."""
        value = self.value(formula.operands[index]) if len(formula.operands) > index else None
        if value is None or value.dtype.kind not in "iO" or value.size > MAX_RANK:
            return None
        return list(value.reshape(-1).tolist())

    def sizes(self, formula: Formula, index: int) -> Dims | None:
        """Return the shape that an operand holds, with symbols for unknown sizes; None if its length is unknown."""
        sizes = self.integers(formula, index)
        if sizes is not None and all(sympy.sympify(size).is_nonnegative for size in sizes):
            return tuple(sizes)
        shape = self.dims(formula.operands[index])
        if shape is None or len(shape) != 1 or not isinstance(shape[0], int) or shape[0] > MAX_RANK:
            return None
        return tuple(fresh() for _ in range(shape[0]))

    def by_rule(self, formula: Formula) -> Dims | None:
        """Return the shape of a formula's value by the rule of its operator; None if no rule can infer it."""
        rule, stated = _RULES.get(formula.operator), formula.attribute("sizes")
        if formula.operator in RESHAPES and stated and isinstance(stated[0], tuple):
            return stated[0]  # from `known_sizes`: a file's attribute has no nested tuple
        try:
            dims = rule(self, formula, *map(self.dims, formula.operands)) if rule else None
        except REFUSED:  # TypeError: a rule needs an unknown shape
            return None
        return dims if dims is None or len(dims) <= MAX_RANK else None

    def _infer(self, formula: Formula) -> tuple[Dims | None, Any]:
        if formula.constant is not None:
            return formula.constant.dims, None
        if formula.operator == INPUT:
            return self.inputs.get(formula.attribute("name")), None
        dims, compute = self.by_rule(formula), _COMPUTE.get(formula.operator)
        if dims is None or compute is None or formula.output or self._computed > MAX_COMPUTED:
            return dims, None
        if not all(isinstance(size, int) for size in dims) or prod(dims) > MAX_ELEMENTS:
            return dims, None
        if formula.is_op("Shape"):
            operands = [np.array(self.dims(formula.operands[0]), object)]
        else:
            operands = [self.value(one) for one in formula.operands]
        if any(value is None for one, value in zip(formula.operands, operands, strict=True) if one):
            return dims, None
        try:
            with np.errstate(all="ignore"):
                value = np.asarray(compute(formula, dims, *operands))
            if value.dtype == object:
                items = [simple(item) for item in value.flat]
                kind = np.int64 if all(isinstance(item, int) for item in items) else object
                value = np.array(items, kind).reshape(value.shape)
        except REFUSED:
            return dims, None
        self._computed += value.size
        return value.shape, value


def broadcast(shapes: Sequence[Dims]) -> Dims:
    columns = zip_longest(*(dims[::-1] for dims in shapes), fillvalue=1)
    return tuple(map(_broadcast_size, columns))[::-1]


def _broadcast_size(sizes: Sequence[Size]) -> Size:
    """Return the size to which `sizes` broadcast; a new symbol if it is unknown."""
    others = list(dict.fromkeys(size for size in sizes if size != 1)) or [1]
    for one in others:  # `min(512, length)` and `length` are 1 in the same cases
        same = (other == one or (isinstance(other, sympy.Min) and one in other.args) for other in others)
        if isinstance(one, int) or all(same):
            return one
    return fresh()


def _broadcast(of: Shapes, formula: Formula, *shapes: Dims) -> Dims | None:
    return broadcast(shapes) if formula.attribute("broadcast") is None else None


def _product(of: Shapes, formula: Formula, one: Dims, other: Dims) -> Dims | None:
    return (*broadcast([one[:-2], other[:-2]]), one[-2], other[-1]) if min(len(one), len(other)) > 1 else None


def _gather(of: Shapes, formula: Formula, dims: Dims, index: Dims) -> Dims:
    axis = range(len(dims))[formula.attribute("axis", 0)]
    return (*dims[:axis], *index, *dims[axis + 1 :])


def _transpose(of: Shapes, formula: Formula, dims: Dims) -> Dims | None:
    axes = formula.attribute("perm", tuple(reversed(range(len(dims)))))
    return tuple(dims[axis] for axis in axes) if sorted(axes) == [*range(len(dims))] else None


def _reshape(of: Shapes, formula: Formula, dims: Dims | None, _: Dims | None) -> Dims | None:
    sizes = of.integers(formula, 1)
    if sizes is None or formula.attribute("allowzero", 0):
        return of.sizes(formula, 1)
    old = dict(enumerate(dims or ()))
    result = [old[at] if size in (0, old.get(at)) else size for at, size in enumerate(sizes)]
    is_safe = all(size in (-1, old.get(at)) or is_positive(size) for at, size in enumerate(result))
    if result.count(-1) > 1 or not is_safe:
        return tuple(fresh() for _ in sizes)
    if -1 in result:
        above, below = list(dims or ()), []
        for size in result:
            above.remove(size) if size in above else below.append(size)
        below.remove(-1)
        size = None if dims is None else quotient(product(above), product(below))
        result[result.index(-1)] = fresh() if size is None else size
    return tuple(result)


def _unsqueeze(of: Shapes, formula: Formula, dims: Dims, _: Dims | None) -> Dims | None:
    axes: Any = of.integers(formula, 1)
    rank = range(len(dims) + len(axes))
    new, remaining = {rank[axis] for axis in axes}, iter(dims)
    return tuple(1 if at in new else next(remaining) for at in rank) if len(new) == len(axes) else None


def _reduce(of: Shapes, formula: Formula, dims: Dims, *_: Dims | None) -> Dims | None:
    axes = of.integers(formula, 1)
    if not axes:
        return None
    gone, stays = {range(len(dims))[axis] for axis in axes}, not formula.is_op("Squeeze")
    stays = stays and bool(formula.attribute("keepdims", 1))
    return tuple(1 if at in gone else size for at, size in enumerate(dims) if stays or at not in gone)


def _concat(of: Shapes, formula: Formula, *shapes: Dims) -> Dims:
    axis = range(len(shapes[0]))[formula.attribute("axis")]
    result = [sizes[0] if len(set(sizes)) == 1 else fresh() for sizes in zip(*shapes, strict=True)]
    result[axis] = simple(sum(dims[axis] for dims in shapes))
    return tuple(result)


def _slice(of: Shapes, formula: Formula, dims: Dims, *_: Dims | None) -> Dims | None:
    starts, ends, axes, steps = (of.integers(formula, at) for at in range(1, 5))
    result = list(dims)
    for at, axis in enumerate(_axes(formula, starts, axes)):
        step = 1 if len(formula.operands) < 5 else steps[at] if steps else 0
        result[axis] = _part(dims[axis], starts[at], ends[at]) if starts and ends and step == 1 else fresh()
    return tuple(result)


def _axes(formula: Formula, starts: Any, axes: Any) -> Any:
    """Return the axes of a Slice. Raise TypeError if they are unknown."""
    return range(len(starts)) if formula.first(5)[3] is None else axes


def _part(size: Size, start: Size, end: Size) -> Size:
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        return len(range(*slice(start, end).indices(size)))
    if start == 0 and isinstance(end, int) and end >= ENDLESS:
        return size
    # SymPy compares all pairs of operands of a minimum
    is_short = sum(sympy.sympify(one).count_ops() for one in (size, end)) <= MAX_CHOICES
    if start == 0 and is_short and is_positive(size, end):
        return simple(sympy.Min(size, end))
    return SLICE(size, start, end)


def _split(of: Shapes, formula: Formula, dims: Dims, *_: Dims | None) -> Dims | None:
    parts: Any = of.integers(formula, 1)
    result = list(dims)
    result[formula.attribute("axis", 0)] = parts[formula.output]
    return tuple(result)


def _range(of: Shapes, formula: Formula, *_: Dims | None) -> Dims:
    values = [of.integers(formula, at) for at in range(3)]
    start, limit, step = (value[0] if value else fresh() for value in values)
    if all(isinstance(one, int) for one in (start, limit, step)):
        return (len(range(start, limit, step)),)
    return (limit if start == 0 and step == 1 and is_positive(limit) else fresh(),)


def _tile(of: Shapes, formula: Formula, dims: Dims, _: Dims | None) -> Dims:
    return tuple(simple(size * by) for size, by in zip(dims, of.sizes(formula, 1) or (), strict=True))


def _flatten(of: Shapes, formula: Formula, dims: Dims) -> Dims:
    axis = formula.attribute("axis", 1)
    return product(dims[:axis]), product(dims[axis:])


_LIKE_FIRST = UNARY | names("CumSum IsInf IsNaN LayerNormalization LogSoftmax QuantizeLinear Softmax Trilu")
_RULES: dict[str, Callable[..., Dims | None]] = {
    **dict.fromkeys(_LIKE_FIRST, lambda of, formula, dims, *_: None if formula.output else dims),
    **dict.fromkeys((*ELEMENTWISE, "Mean", "Mod", "Sum"), _broadcast),
    **dict.fromkeys(REDUCTIONS, _reduce),
    "Concat": _concat,
    "ConstantOfShape": lambda of, formula, *_: of.sizes(formula, 0),
    "Expand": lambda of, formula, dims, _: broadcast([dims, of.sizes(formula, 1)]),
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherElements": lambda of, formula, dims, index: index,
    "MatMul": _product,
    "Range": _range,
    "Reshape": _reshape,
    "Shape": lambda of, formula, dims: (len(dims[_span(formula)]),),
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _reduce,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
"""For each operator, a function that infers the shape of the result. It returns None if that shape is unknown."""


def _span(formula: Formula) -> slice:
    return slice(formula.attribute("start", 0), formula.attribute("end", None))


def _has_sizes(*arrays: Any) -> bool:
    return any(array.dtype == object for array in arrays)


def _equal(formula: Formula, dims: Dims, one: Any, other: Any) -> Any:
    if not _has_sizes(one, other):
        return one == other
    return np.asarray(np.frompyfunc(is_equal, 2, 1)(one, other), bool)


def _divide(formula: Formula, dims: Dims, one: Any, other: Any) -> Any:
    if _has_sizes(one, other):
        return np.frompyfunc(floor_of_quotient, 2, 1)(one, other)
    if one.dtype.kind == "f":
        return one / other
    if not np.all(other):
        raise ZeroDivisionError
    return (np.abs(one) // np.abs(other)) * np.sign(one) * np.sign(other)


def _cast(formula: Formula, dims: Dims, source: Any) -> Any:
    kinds = {6: np.int32, 7: np.int64, 9: np.bool_, "float": np.float32}
    kind = kinds[formula.attribute("to")]
    if _has_sizes(source) and kind is not np.int64:
        raise TypeError("only int64 holds any size")
    return source if _has_sizes(source) else source.astype(kind)


def _sliced(formula: Formula, dims: Dims, one: Any, starts: Any, ends: Any, axes: Any = None, *_: Any) -> Any:
    index = [slice(None)] * one.ndim
    for axis, start, end in zip(_axes(formula, starts, axes), starts.tolist(), ends.tolist(), strict=True):
        index[axis] = slice(start, end)
    return one[tuple(index)]


_COMPUTE: dict[str, Callable[..., Any]] = {
    "Add": lambda formula, dims, one, other: one + other,
    "Cast": _cast,
    "Concat": lambda formula, dims, *parts: np.concatenate(parts, axis=formula.attribute("axis")),
    "ConstantOfShape": lambda formula, dims, _, one=None: np.full(
        dims, np.float32(0) if one is None else one
    ),
    "Div": _divide,
    "Equal": _equal,
    "Expand": lambda formula, dims, source, *_: np.broadcast_to(source, dims),
    "Gather": lambda formula, dims, source, index: np.take(source, index, axis=formula.attribute("axis", 0)),
    "Mul": lambda formula, dims, one, other: one * other,
    "Range": lambda formula, dims, start, limit, step: np.arange(start, limit, step, dtype=start.dtype),
    **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze"), lambda formula, dims, one, *_: one.reshape(dims)),
    "Shape": lambda formula, dims, sizes: sizes[_span(formula)],
    "Slice": _sliced,
    "Sqrt": lambda formula, dims, source: np.sqrt(source),
    "Sub": lambda formula, dims, one, other: one - other,
    "Where": lambda formula, dims, condition, one, other: np.where(condition, one, other),
}
"""The operators that numpy computes exactly as ONNX Runtime does."""
