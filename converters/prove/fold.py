"""Compute what depends on no input: a tool may have stored the result."""

from collections.abc import Callable
from math import prod
from typing import Any

from onnxreg.converters.prove.formula import CONSTANT, Formula, array_of
from onnxreg.converters.prove.stored_value import ArrayTensor, StoredValue

MAX_ELEMENTS = 2**16
MAX_NODES = 256
"""Elements of a result, and nodes, that are computed: folded constants are shapes, masks and factors."""


def fold(formula: Formula) -> StoredValue | None:
    """The stored form of a formula without inputs; None if it has some, or is beyond this module."""
    array = _evaluate(formula, [MAX_NODES])
    return None if array is None else StoredValue.of(ArrayTensor(formula.node or formula.operator, array))


def _evaluate(formula: Formula, budget: list[int]) -> Any:
    import numpy as np

    budget[0] -= 1
    if formula.operator == CONSTANT:
        return array_of(formula)
    if formula.is_op("Shape") and (dims := _static_dims(formula.operands[0], MAX_NODES)) is not None:
        return np.array(dims[formula.attribute("start", 0) : formula.attribute("end", None)], np.int64)
    compute = _COMPUTE.get(formula.operator)
    if compute is None or formula.output or budget[0] < 0:
        return None
    operands = []
    for operand in formula.operands:
        array = None if operand is None else _evaluate(operand, budget)
        if operand is not None and array is None:
            return None
        operands.append(array)
    try:
        with np.errstate(all="ignore"):
            result = compute(formula, *operands)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return result if result is not None and result.size <= MAX_ELEMENTS else None


def _elementwise(name: str) -> Callable[..., Any]:
    def compute(_: Formula, one: Any, other: Any) -> Any:
        import numpy as np

        if np.broadcast(one, other).size > MAX_ELEMENTS or one.dtype != other.dtype:
            return None
        result = getattr(np, name)(one, other)
        return np.asarray(result, one.dtype if result.dtype.kind != "b" else bool)

    return compute


def _divide(_: Formula, one: Any, other: Any) -> Any:
    import numpy as np

    if one.dtype != other.dtype or np.broadcast(one, other).size > MAX_ELEMENTS or not np.all(other):
        return None
    if one.dtype.kind == "f":
        return one / other
    return (np.abs(one) // np.abs(other)) * np.sign(one) * np.sign(other)


def _cast(formula: Formula, source: Any) -> Any:
    import numpy as np

    kind = {6: np.int32, 7: np.int64, 9: np.bool_, "float": np.float32}.get(formula.attribute("to"))
    return None if kind is None else source.astype(kind)


def _gather(formula: Formula, source: Any, index: Any) -> Any:
    import numpy as np

    return np.asarray(np.take(source, index, axis=formula.attribute("axis", 0)))


def _unsqueeze(_: Formula, source: Any, axes: Any) -> Any:
    import numpy as np

    return np.expand_dims(source, tuple(axes.reshape(-1).tolist()))


def _concat(formula: Formula, *parts: Any) -> Any:
    import numpy as np

    return np.concatenate(parts, axis=formula.attribute("axis"))


def _full(_: Formula, sizes: Any, value: Any = None) -> Any:
    import numpy as np

    dims = tuple(sizes.tolist())
    if np.prod(dims, dtype=object) > MAX_ELEMENTS:
        return None
    return np.zeros(dims, np.float32) if value is None else np.full(dims, value.reshape(-1)[0], value.dtype)


def _expand(_: Formula, source: Any, sizes: Any) -> Any:
    import numpy as np

    dims = np.broadcast_shapes(source.shape, tuple(sizes.tolist()))
    return np.broadcast_to(source, dims).copy() if np.prod(dims, dtype=object) <= MAX_ELEMENTS else None


def _static_dims(formula: Formula | None, budget: int) -> tuple[int, ...] | None:
    """The sizes of a value that inputs do not change: a constant's, and those of vectors that are put together of sizes."""
    if formula is None or budget < 0:
        return None
    if formula.constant is not None:
        return formula.constant.dims
    if formula.is_op("Shape") and not formula.attributes:
        dims = _static_dims(formula.operands[0], budget - 1)
        return None if dims is None else (len(dims),)
    first = (
        _static_dims(formula.operands[0], budget - 1)
        if formula.operands and formula.operator in _SIZED
        else None
    )
    if formula.operator == "Gather" and not formula.attributes:
        index = formula.operands[1].constant if formula.operands[1] else None
        vector = formula.operands[0]
        if index is not None and vector is not None and vector.is_op("Shape"):
            return index.dims
    if formula.operator == "Unsqueeze" and first == ():
        return (1,)
    if formula.operator == "Concat":
        parts = [_static_dims(one, budget // len(formula.operands) - 1) for one in formula.operands]
        sizes = [dims[0] for dims in parts if dims is not None and len(dims) == 1]
        return (sum(sizes),) if len(sizes) == len(parts) else None
    if formula.operator == "Reshape" and first is not None:
        sizes = array_of(formula.operands[1])
        return (prod(first),) if sizes is not None and sizes.tolist() == [-1] else None
    return None


_SIZED = frozenset({"Reshape", "Unsqueeze"})


def _reshape(formula: Formula, source: Any, sizes: Any) -> Any:
    dims = [size if size else source.shape[at] for at, size in enumerate(sizes.tolist())]
    return None if formula.attribute("allowzero", 0) else source.reshape(dims)


def _slice(_: Formula, source: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    """Forward slices."""
    places = range(len(starts)) if axes is None else axes.tolist()
    if steps is not None and (steps != 1).any():
        return None
    index = [slice(None)] * source.ndim
    for axis, start, end in zip(places, starts.tolist(), ends.tolist(), strict=True):
        index[axis] = slice(start, end)
    return source[tuple(index)]


def _where(_: Formula, condition: Any, one: Any, other: Any) -> Any:
    import numpy as np

    return np.where(condition, one, other) if one.dtype == other.dtype else None


def _root(_: Formula, source: Any) -> Any:
    import numpy as np

    return np.sqrt(source)


def _range(_: Formula, start: Any, limit: Any, step: Any) -> Any:
    import numpy as np

    if start.dtype.kind != "i" or not step or abs((limit - start) / step) > MAX_ELEMENTS:
        return None
    return np.arange(int(start), int(limit), int(step)).astype(start.dtype)


_COMPUTE: dict[str, Callable[..., Any]] = {
    **{
        name: _elementwise(numpy)
        for name, numpy in {"Add": "add", "Sub": "subtract", "Mul": "multiply", "Equal": "equal"}.items()
    },
    "Cast": _cast,
    "Concat": _concat,
    "ConstantOfShape": lambda formula, sizes, value=None: _full(formula, sizes, value),
    "Div": _divide,
    "Expand": _expand,
    "Gather": _gather,
    "Range": _range,
    "Reshape": _reshape,
    "Slice": _slice,
    "Sqrt": _root,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
"""Operators whose results numpy gives exactly as ONNX Runtime does: integers, and correctly rounded arithmetic."""
