"""Shapes of the values of a graph, and the values of its small tensors, as far as they follow from the sizes of inputs.

The rules are those of the ONNX operator specification, for runs that ONNX Runtime does not refuse: if shapes must fit, they
do. A size of which nothing follows is a fresh symbol.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import zip_longest
from math import prod
from typing import Any

import numpy as np
import sympy  # type: ignore[import-untyped]  # of onnx_ir

from onnxreg.converters.prove.formula import INPUT, Formula, StoredValue, array_of, computed
from onnxreg.converters.prove.operators import ELEMENTWISE, UNARY

Size = Any
MAX_OPERATIONS = 200
"""Operations of an expression: sizes of real graphs have a few."""
MAX_FACTOR, MAX_POWER, MAX_CHOICES = 2**63, 64, 4
MAX_SPENT = 50_000
"""Operations of all expressions of a proof: exports of encoders need some hundreds."""
SPENT: ContextVar[int] = ContextVar("SPENT", default=0)
SLICE = sympy.Function("slice", integer=True, nonnegative=True)
"""The size of a slice of a size, between a start and an end."""


def of_input(name: str) -> Size:
    """The size of an input, which is at least one."""
    return sympy.Symbol(name, integer=True, positive=True)


def fresh() -> Size:
    """A size of which nothing is known."""
    return sympy.Dummy("?", integer=True, nonnegative=True)


def simple(size: Any) -> Size:
    """The one form of an expression. OverflowError for one that is larger than those of real graphs, or one too many."""
    if isinstance(size, int):
        return size
    SPENT.set(SPENT.get() + size.count_ops() + 1)
    if SPENT.get() > MAX_SPENT:
        raise OverflowError("the sizes of a graph are too many")
    is_long = size.count_ops() > MAX_OPERATIONS or any(one.exp > MAX_POWER for one in size.atoms(sympy.Pow))
    if is_long or any(abs(number) >= MAX_FACTOR for number in size.atoms(sympy.Integer)):
        raise OverflowError("a size is too large")
    expanded = sympy.expand(size)
    return int(expanded) if expanded.is_Integer else expanded


def is_positive(size: Size) -> bool:
    """Return True if a size is at least one whatever the inputs are; False may mean that this is not known."""
    return size > 0 if isinstance(size, int) else bool(size.is_positive)


def is_natural(size: Size) -> bool:
    """Return True if a size is zero or more; False may mean that this is not known."""
    return size >= 0 if isinstance(size, int) else bool(size.is_nonnegative)


def product(sizes: Iterable[Size]) -> Size:
    total: Any = 1
    for size in sizes:
        total = simple(total * size)
    return total


def divide(one: Size, other: Size) -> Size | None:
    """The quotient if it is exact, and the divisor positive, and the same or a single product; None otherwise."""
    if one == other and is_positive(other):
        return 1
    if not is_positive(other) or isinstance(other, sympy.Add):
        return None
    quotient = sympy.expand(sympy.sympify(one) / other)
    factors = [part for term in sympy.Add.make_args(quotient) for part in term.as_powers_dict().items()]
    is_exact = all(power.is_nonnegative and (base.is_integer or not power) for base, power in factors)
    return simple(quotient) if is_exact else None


def floor_of_quotient(one: Size, other: Size) -> Size | None:
    """The quotient of two positive sizes, without its fraction; None if one may be another number."""
    if not (is_positive(one) and is_positive(other)):
        return None
    exact = divide(one, other)
    return simple(sympy.floor(sympy.sympify(one) / sympy.sympify(other))) if exact is None else exact


def smaller(one: Size, other: Size) -> Size | None:
    """The smaller of two positive sizes; None if one may be another number, or both are long: SymPy compares all pairs."""
    is_long = sum(sympy.sympify(size).count_ops() for size in (one, other)) > MAX_CHOICES
    return simple(sympy.Min(one, other)) if not is_long and is_positive(one) and is_positive(other) else None


def is_part(one: Size, other: Size) -> bool:
    """Return True if the first size is the smaller one of the second and another."""
    return isinstance(one, sympy.Min) and other in one.args


def is_equal(one: Size, other: Size) -> bool | None:
    """True or False if two sizes are equal, or differ, whatever the inputs are; None otherwise."""
    difference = simple(one - other)
    if isinstance(difference, int):
        return difference == 0
    return False if is_positive(difference) or is_positive(simple(-difference)) else None


MAX_ELEMENTS = 2**16
"""Elements of a value that is computed: shapes, masks and factors."""
MAX_COMPUTED = 2**24
"""Elements of all values that are computed for one proof."""
MAX_RANK = 64
ENDLESS = 2**31 - 1
"""An end of a slice from which on it is the end of the axis."""
REFUSED = (ValueError, TypeError, LookupError, ArithmeticError)
"""Raised by a graph that ONNX Runtime refuses."""
Dims = tuple[Size, ...]


@dataclass(frozen=True)
class Inference:
    """The shape of a formula, and its value if inputs change it by their sizes at most; None of what is not known.

    An array of objects is one of int64 with an expression among its elements.
    """

    dims: Dims | None = None
    value: Any = None


class Shapes:
    """Infers shapes and values, each once, from operands upwards. `inputs` has the shapes of the graph's inputs."""

    def __init__(self, inputs: Mapping[str, Dims]) -> None:
        SPENT.set(0)
        self._inputs = inputs
        self._inferred: dict[Formula, Inference] = {}
        self._computed = 0

    def dims(self, formula: Formula | None) -> Dims | None:
        return self._of(formula).dims if formula is not None else None

    def dims_by_rule(self, formula: Formula) -> Dims | None:
        """The shape of a formula's value by the rule of its operator; None if not even its rank is known."""
        rule = _RULES.get(formula.operator)
        if rule is None:
            return None
        try:
            if formula.operator in _NEED_SHAPES:
                shapes = [self.dims(one) for one in formula.operands]
                dims = None if None in shapes else rule(self, formula, *shapes)
            else:
                dims = rule(self, formula)
        except REFUSED:
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

    def integers(self, formula: Formula, index: int) -> list[Any] | None:
        """The elements of an operand that is a vector of sizes, axes or places."""
        value = self.value(formula.operands[index]) if len(formula.operands) > index else None
        if value is None or value.dtype.kind not in "iO":
            return None
        return list(value.reshape(-1).tolist())

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
        if value is None:
            return Inference(self.dims_by_rule(formula))
        self._computed += value.size
        return Inference(value.shape, value)

    def _value(self, formula: Formula) -> Any:
        """The value by that of the operands; None if numpy gives another than ONNX Runtime, or a large one."""
        if formula.is_op("Shape"):
            dims = self.dims(formula.operands[0])
            if dims is None:
                return None
            part = dims[formula.attribute("start", 0) : formula.attribute("end", None)]
            return np.array(part, np.int64 if all(isinstance(size, int) for size in part) else object)
        compute = _COMPUTE.get(formula.operator)
        if compute is None or formula.output or self._computed > MAX_COMPUTED:
            return None
        operands = []
        for one in formula.operands:
            operands.append(self.value(one))
            if one is not None and operands[-1] is None:
                return None
        try:
            with np.errstate(all="ignore"):
                result = compute(formula, *operands)
            if result is None or result.size > MAX_ELEMENTS:
                return None
            if result.dtype == object:
                items = [simple(item) for item in result.flat]
                kind = np.int64 if all(isinstance(item, int) for item in items) else object
                result = np.array(items, kind).reshape(result.shape)
        except REFUSED:
            return None
        return result


def broadcast(shapes: Sequence[Dims]) -> Dims:
    """The shape that operands of these shapes have together."""
    columns = zip_longest(*(dims[::-1] for dims in shapes), fillvalue=1)
    return tuple(map(_together, columns))[::-1]


def _together(sizes: Sequence[Size]) -> Size:
    """The size of an axis: of sizes that are not one all are equal.

    `min(512, length)` is `length` if both fit: one of them is one only if both are.
    """
    others = list(dict.fromkeys(size for size in sizes if size != 1))
    if len(others) < 2:
        return others[0] if others else 1
    numbers = [size for size in others if isinstance(size, int)]
    longest = [one for one in others if all(one == other or is_part(other, one) for other in others)]
    return (numbers or longest or [fresh()])[0]


def _of_rank(of: Shapes, sizes: Formula | None) -> Dims | None:
    """A shape of which only the number of sizes is known."""
    dims = of.dims(sizes)
    if dims is None or len(dims) != 1 or not isinstance(dims[0], int) or dims[0] > MAX_RANK:
        return None
    return tuple(fresh() for _ in range(dims[0]))


def _broadcast(of: Shapes, formula: Formula, *shapes: Dims) -> Dims | None:
    """Before version 7 the axes of the second operand began at a given one."""
    return broadcast(shapes) if formula.attribute("broadcast") is None else None


def _product(of: Shapes, formula: Formula, *shapes: Dims) -> Dims | None:
    """MatMul, also of operands whose last two axes are exchanged; vectors are left out."""
    one, other = shapes[:2]
    if not {name for name, _ in formula.attributes} <= {"transA", "transB"} or min(map(len, shapes[:2])) < 2:
        return None
    rows, columns = (
        dims[:-3:-1] if formula.attribute(name, 0) else dims[-2:]
        for name, dims in (("transA", one), ("transB", other))
    )
    return (*broadcast([one[:-2], other[:-2]]), rows[0], columns[1])


def _gather(of: Shapes, formula: Formula, dims: Dims, index: Dims) -> Dims:
    axis = range(len(dims))[formula.attribute("axis", 0)]
    return (*dims[:axis], *index, *dims[axis + 1 :])


def _transpose(of: Shapes, formula: Formula, dims: Dims) -> Dims | None:
    axes = formula.attribute("perm", tuple(reversed(range(len(dims)))))
    return tuple(dims[axis] for axis in axes) if sorted(axes) == [*range(len(dims))] else None


def _reshape(of: Shapes, formula: Formula) -> Dims | None:
    """A zero copies the size of that axis; minus one takes what remains. A size that may be zero must be that size."""
    dims, sizes = of.dims(formula.operands[0]), of.integers(formula, 1)
    unknown = _of_rank(of, formula.operands[1])
    if sizes is None or formula.attribute("allowzero", 0):
        return unknown
    old = dict(enumerate(dims or ()))
    result = [old[at] if size in (0, old.get(at)) else size for at, size in enumerate(sizes)]
    fits = (size == -1 or is_positive(size) or size == old.get(at) for at, size in enumerate(result))
    if result.count(-1) > 1 or not all(fits):
        return unknown
    if -1 in result:
        size = None if dims is None else _quotient(dims, [one for one in result if one != -1])
        result[result.index(-1)] = fresh() if size is None else size
    return tuple(result)


def _quotient(dims: Dims, sizes: Sequence[Size]) -> Size | None:
    """The product of some sizes by that of others, without those that are in both."""
    above, below = list(dims), []
    for size in sizes:
        above.remove(size) if size in above else below.append(size)
    return divide(product(above), product(below))


def _expand(of: Shapes, formula: Formula) -> Dims | None:
    dims, sizes = of.dims(formula.operands[0]), of.integers(formula, 1)
    if sizes is None or not all(map(is_natural, sizes)):
        rank = _of_rank(of, formula.operands[1])
        return None if rank is None or dims is None else broadcast([dims, rank])
    return None if dims is None else broadcast([dims, tuple(sizes)])


def _unsqueeze(of: Shapes, formula: Formula, dims: Dims, *_: Dims) -> Dims | None:
    axes = of.integers(formula, 1)
    if axes is None:
        return None
    rank = range(len(dims) + len(axes))
    new, remaining = {rank[axis] for axis in axes}, iter(dims)
    return tuple(1 if at in new else next(remaining) for at in rank) if len(new) == len(axes) else None


def _squeeze(of: Shapes, formula: Formula, dims: Dims, *_: Dims) -> Dims | None:
    if len(formula.operands) == 1 and all(isinstance(size, int) for size in dims):
        return tuple(size for size in dims if size != 1)
    axes = of.integers(formula, 1)
    if axes is None:
        return None
    old = {range(len(dims))[axis] for axis in axes}
    return tuple(size for at, size in enumerate(dims) if at not in old)


def _concat(of: Shapes, formula: Formula, *shapes: Dims) -> Dims:
    axis = range(len(shapes[0]))[formula.attribute("axis")]
    result = [sizes[0] if len(set(sizes)) == 1 else fresh() for sizes in zip(*shapes, strict=True)]
    total: Any = 0
    for dims in shapes:
        total = simple(total + dims[axis])
    result[axis] = total
    return tuple(result)


def _slice(of: Shapes, formula: Formula, dims: Dims, *_: Dims) -> Dims | None:
    starts, ends, axes, steps = (of.integers(formula, at) for at in range(1, 5))
    if axes is None:
        return None
    result = list(dims)
    for at, axis in enumerate(axes):
        step = 1 if len(formula.operands) < 5 else steps[at] if steps else 0
        result[axis] = _part(dims[axis], starts[at], ends[at]) if starts and ends and step == 1 else fresh()
    return tuple(result)


def _part(size: Size, start: Size, end: Size) -> Size:
    """The size of a slice of an axis."""
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        return len(range(*slice(start, end).indices(size)))
    if start == 0 and isinstance(end, int) and end >= ENDLESS:
        return size
    least = smaller(size, end) if start == 0 else None
    return SLICE(size, start, end) if least is None else least


def _split(of: Shapes, formula: Formula, dims: Dims, *_: Dims) -> Dims | None:
    parts, result = of.integers(formula, 1), list(dims)
    if parts is None:
        return None
    result[formula.attribute("axis", 0)] = parts[formula.output]
    return tuple(result)


def _reduce(of: Shapes, formula: Formula, dims: Dims, *_: Dims) -> Dims | None:
    axes = of.integers(formula, 1)
    if not axes:
        return None
    gone = {range(len(dims))[axis] for axis in axes}
    if formula.attribute("keepdims", 1):
        return tuple(1 if at in gone else size for at, size in enumerate(dims))
    return tuple(size for at, size in enumerate(dims) if at not in gone)


def _full(of: Shapes, formula: Formula) -> Dims | None:
    sizes = of.integers(formula, 0)
    return tuple(sizes) if sizes is not None and all(map(is_natural, sizes)) else None


def _range(of: Shapes, formula: Formula) -> Dims | None:
    start, limit, step = (of.integers(formula, at) for at in range(3))
    is_plain = start == [0] and step == [1] and limit and is_positive(limit[0])
    return (limit[0],) if is_plain and limit else (fresh(),)


def _tile(of: Shapes, formula: Formula, dims: Dims, *_: Dims) -> Dims | None:
    times = of.integers(formula, 1)
    if times is None:
        return tuple(fresh() for _ in dims)
    return tuple(simple(size * by) for size, by in zip(dims, times, strict=True))


_LIKE_FIRST = "CumSum IsInf IsNaN LayerNormalization LogSoftmax QuantizeLinear Softmax Trilu"
_NEED_SHAPES: dict[str, Callable[..., Dims | None]] = {
    **dict.fromkeys((*ELEMENTWISE, "Mean", "Mod", "Sum"), _broadcast),
    **{f"Reduce{name}": _reduce for name in ("L1", "L2", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")},
    "Concat": _concat,
    "Flatten": lambda of, formula, dims: (
        product(dims[: formula.attribute("axis", 1)]),
        product(dims[formula.attribute("axis", 1) :]),
    ),
    "Gather": _gather,
    "GatherElements": lambda of, formula, dims, index: index,
    "MatMul": _product,
    "com.microsoft:FusedMatMul": _product,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
"""Rules of operators by the shapes of their operands."""
_RULES: dict[str, Callable[..., Dims | None]] = {
    **dict.fromkeys(
        (*UNARY, *_LIKE_FIRST.split()),
        lambda of, formula: None if formula.output else of.dims(formula.operands[0]),
    ),
    **_NEED_SHAPES,
    "ConstantOfShape": _full,
    "Expand": _expand,
    "Range": _range,
    "Reshape": _reshape,
}


def _fits(*arrays: Any) -> bool:
    """Return True if arrays have one element type, expressions being int64, and no large shape together."""
    kinds = {np.dtype(np.int64) if array.dtype == object else array.dtype for array in arrays}
    return len(kinds) == 1 and np.broadcast(*arrays).size <= MAX_ELEMENTS


def _elementwise(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda formula, one, other: np.asarray(function(one, other)) if _fits(one, other) else None


def _of_sizes(one: Any, other: Any, function: Callable[[Any, Any], Any], kind: type) -> Any:
    """The results of a function of two sizes; None if one of them is None."""
    pairs = np.broadcast(one.astype(object), other.astype(object))
    results = [function(left, right) for left, right in pairs]
    return None if None in results else np.array(results, kind).reshape(pairs.shape)


def _equal(formula: Formula, one: Any, other: Any) -> Any:
    if not _fits(one, other):
        return None
    if object in (one.dtype, other.dtype):
        return _of_sizes(one, other, is_equal, bool)
    return np.asarray(one == other)


def _divide(formula: Formula, one: Any, other: Any) -> Any:
    if not _fits(one, other):
        return None
    if object in (one.dtype, other.dtype):
        return _of_sizes(one, other, floor_of_quotient, object)
    if not np.all(other):
        return None
    if one.dtype.kind == "f":
        return np.asarray(one / other)
    return np.asarray((np.abs(one) // np.abs(other)) * np.sign(one) * np.sign(other))


def _cast(formula: Formula, source: Any) -> Any:
    kind = {6: np.int32, 7: np.int64, 9: np.bool_, "float": np.float32}.get(formula.attribute("to"))
    if source.dtype == object:
        return source if kind is np.int64 else None
    return None if kind is None else source.astype(kind)


def _take(formula: Formula, source: Any, index: Any) -> Any:
    axis = formula.attribute("axis", 0)
    if source.size // source.shape[axis] * index.size > MAX_ELEMENTS:
        return None
    return np.asarray(np.take(source, index, axis=axis))


def _filled(formula: Formula, sizes: Any, value: Any = None) -> Any:
    dims = tuple(sizes.tolist())
    if prod(dims) > MAX_ELEMENTS:
        return None
    return np.zeros(dims, np.float32) if value is None else np.full(dims, value.reshape(-1)[0], value.dtype)


def _expanded(formula: Formula, source: Any, sizes: Any) -> Any:
    dims = np.broadcast_shapes(source.shape, tuple(sizes.tolist()))
    return np.broadcast_to(source, dims).copy() if prod(dims) <= MAX_ELEMENTS else None


def _reshaped(formula: Formula, source: Any, sizes: Any) -> Any:
    dims = [size if size else source.shape[at] for at, size in enumerate(sizes.tolist())]
    return None if formula.attribute("allowzero", 0) else source.reshape(dims)


def _sliced(
    formula: Formula, source: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None
) -> Any:
    """Forward slices."""
    if steps is not None and (steps != 1).any():
        return None
    index = [slice(None)] * source.ndim
    axes = range(len(starts)) if axes is None else axes.tolist()
    for axis, start, end in zip(axes, starts.tolist(), ends.tolist(), strict=True):
        index[axis] = slice(start, end)
    return source[tuple(index)]


def _where(formula: Formula, condition: Any, one: Any, other: Any) -> Any:
    if not _fits(one, other) or np.broadcast(condition, one, other).size > MAX_ELEMENTS:
        return None
    return np.where(condition, one, other)


def _counted(formula: Formula, start: Any, limit: Any, step: Any) -> Any:
    if start.dtype.kind != "i" or not step or abs((limit - start) / step) > MAX_ELEMENTS:
        return None
    return np.arange(int(start), int(limit), int(step)).astype(start.dtype)


_COMPUTE: dict[str, Callable[..., Any]] = {
    "Add": _elementwise(np.add),
    "Cast": _cast,
    "Concat": lambda formula, *parts: np.concatenate(parts, axis=formula.attribute("axis")),
    "ConstantOfShape": _filled,
    "Div": _divide,
    "Equal": _equal,
    "Expand": _expanded,
    "Gather": _take,
    "Mul": _elementwise(np.multiply),
    "Range": _counted,
    "Reshape": _reshaped,
    "Slice": _sliced,
    "Sqrt": lambda formula, source: np.sqrt(source),
    "Squeeze": lambda formula, source, axes: np.squeeze(source, tuple(axes.reshape(-1).tolist())),
    "Sub": _elementwise(np.subtract),
    "Unsqueeze": lambda formula, source, axes: np.expand_dims(source, tuple(axes.reshape(-1).tolist())),
    "Where": _where,
}
"""Operators whose results numpy gives exactly as ONNX Runtime does: integers, and correctly rounded arithmetic."""
