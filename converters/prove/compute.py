"""Compute the values of small tensors, also of those whose elements are sizes that are not known before a model runs."""

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxreg.converters.prove.formula import Formula
from onnxreg.converters.prove.polynomial import floor_of_quotient, is_equal

MAX_ELEMENTS = 2**16
"""Elements of a result: shapes, masks and factors."""


def is_computable(formula: Formula) -> bool:
    return formula.operator in _COMPUTE and not formula.output


def compute(formula: Formula, operands: list[Any]) -> Any:
    """The value of an operator, given those of its operands; None if numpy gives another, or a large one.

    An array of objects is one of int64 that has polynomials. The result is one if need be.
    """
    try:
        with np.errstate(all="ignore"):
            result = _COMPUTE[formula.operator](formula, *operands)
    except (ValueError, TypeError, LookupError, ArithmeticError):
        return None
    if result is None or result.size > MAX_ELEMENTS:
        return None
    if result.dtype == object and all(isinstance(item, int) for item in result.flat):
        return result.astype(np.int64)
    return result


def _element(array: Any) -> Any:
    return np.dtype(np.int64) if array.dtype == object else array.dtype


def _elementwise(name: str) -> Callable[..., Any]:
    def compute(_: Formula, one: Any, other: Any) -> Any:
        if not _fits(one, other):
            return None
        return np.asarray(getattr(np, name)(one, other))

    return compute


def _fits(one: Any, other: Any) -> bool:
    return _element(one) == _element(other) and np.broadcast(one, other).size <= MAX_ELEMENTS


def _pairs(one: Any, other: Any, function: Callable[[Any, Any], Any], kind: type) -> Any:
    """The results of a function of two sizes; None if one of them is None."""
    pairs = np.broadcast(one.astype(object), other.astype(object))
    results = [function(left, right) for left, right in pairs]
    return None if None in results else np.array(results, kind).reshape(pairs.shape)


def _equal(_: Formula, one: Any, other: Any) -> Any:
    if not _fits(one, other):
        return None
    if object in (one.dtype, other.dtype):
        return _pairs(one, other, is_equal, bool)
    return np.asarray(one == other)


def _divide(_: Formula, one: Any, other: Any) -> Any:
    if not _fits(one, other):
        return None
    if object in (one.dtype, other.dtype):
        return _pairs(one, other, floor_of_quotient, object)
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


def _gather(formula: Formula, source: Any, index: Any) -> Any:
    axis = formula.attribute("axis", 0)
    if source.size // source.shape[axis] * index.size > MAX_ELEMENTS:
        return None
    return np.asarray(np.take(source, index, axis=axis))


def _unsqueeze(_: Formula, source: Any, axes: Any) -> Any:
    return np.expand_dims(source, tuple(axes.reshape(-1).tolist()))


def _squeeze(_: Formula, source: Any, axes: Any) -> Any:
    return np.squeeze(source, tuple(axes.reshape(-1).tolist()))


def _concat(formula: Formula, *parts: Any) -> Any:
    return np.concatenate(parts, axis=formula.attribute("axis"))


def _full(_: Formula, sizes: Any, value: Any = None) -> Any:
    dims = tuple(sizes.tolist())
    if np.prod(dims, dtype=object) > MAX_ELEMENTS:
        return None
    return np.zeros(dims, np.float32) if value is None else np.full(dims, value.reshape(-1)[0], value.dtype)


def _expand(_: Formula, source: Any, sizes: Any) -> Any:
    dims = np.broadcast_shapes(source.shape, tuple(sizes.tolist()))
    return np.broadcast_to(source, dims).copy() if np.prod(dims, dtype=object) <= MAX_ELEMENTS else None


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
    if not _fits(one, other) or np.broadcast(condition, one, other).size > MAX_ELEMENTS:
        return None
    return np.where(condition, one, other)


def _root(_: Formula, source: Any) -> Any:
    return np.sqrt(source)


def _range(_: Formula, start: Any, limit: Any, step: Any) -> Any:
    if start.dtype.kind != "i" or not step or abs((limit - start) / step) > MAX_ELEMENTS:
        return None
    return np.arange(int(start), int(limit), int(step)).astype(start.dtype)


_COMPUTE: dict[str, Callable[..., Any]] = {
    **{
        name: _elementwise(numpy)
        for name, numpy in {"Add": "add", "Sub": "subtract", "Mul": "multiply"}.items()
    },
    "Cast": _cast,
    "Concat": _concat,
    "ConstantOfShape": lambda formula, sizes, value=None: _full(formula, sizes, value),
    "Div": _divide,
    "Equal": _equal,
    "Expand": _expand,
    "Gather": _gather,
    "Range": _range,
    "Reshape": _reshape,
    "Slice": _slice,
    "Sqrt": _root,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
"""Operators whose results numpy gives exactly as ONNX Runtime does: integers, and correctly rounded arithmetic."""
