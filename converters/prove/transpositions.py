"""Transpositions before arithmetic: optimizers move them behind it, or the other way round."""

import numpy as np

from onnxreg.converters.prove.formula import Formula, number
from onnxreg.converters.prove.operators import ELEMENTWISE, UNARY
from onnxreg.converters.prove.rewriter import Rewriter, rule

MAX_DEPTH = 64
"""Operators in a row before which a transposition is moved."""
Axes = tuple[int, ...]


def exchange(make: Rewriter, formula: Formula | None) -> Formula | None:
    """A matrix with its last two axes exchanged; None if its rank is not known."""
    dims = make.shapes.dims(formula)
    if dims is None or len(dims) < 2:
        return None
    rank = len(dims)
    return make.apply("Transpose", (formula,), (("perm", (*range(rank - 2), rank - 1, rank - 2)),))


@rule("transposition", "Transpose")
def transposition(make: Rewriter, formula: Formula) -> Formula | None:
    """Transposing a result is transposing its operands; two transpositions are one, or none."""
    axes, source = formula.attribute("perm"), formula.operands[0]
    if axes is None or source is None or source.output or sorted(axes) != [*range(len(axes))]:
        return None
    if axes == tuple(range(len(axes))):
        return source
    if source.operator == "Transpose":
        inner = source.attribute("perm", ())
        composed = tuple(inner[axis] for axis in axes) if len(inner) == len(axes) else None
        return None if composed is None else _turn(make, source.operands[0], composed)
    key = (source, axes)
    if key not in make.transposed and len(make.waiting) < MAX_DEPTH:
        make.waiting.append(source)
        make.transposed[key] = _before(make, source, axes)
        make.waiting.pop()
    return make.transposed.get(key)


def _before(make: Rewriter, source: Formula, axes: Axes) -> Formula | None:
    """The operator on transposed operands; None if it is not one of those that allow it."""
    first, *others = source.operands or (None,)
    attributes = source.attributes
    if source.operator in UNARY:
        operands: tuple[Formula | None, ...] = (_turn(make, first, axes), *others)
    elif source.operator == "Concat" or (source.operator in ELEMENTWISE and source.epoch >= 7):
        operands = tuple(_turned(make, one, axes) for one in source.operands)
        if None in operands:
            return None
    elif source.operator == "Slice" and (places := _places(make, source, axes)) is not None:
        operands = (_turn(make, first, axes), *others[:2], places, *others[3:])
    else:
        return None
    if source.operator == "Concat":
        attributes = (("axis", axes.index(source.attribute("axis") % len(axes))),)
    return make.apply(source.operator, operands, attributes, source.node, 0, source.element, source.epoch)


def _turn(make: Rewriter, formula: Formula | None, axes: Axes) -> Formula:
    return make.apply("Transpose", (formula,), (("perm", axes),))


def _turned(make: Rewriter, formula: Formula | None, axes: Axes) -> Formula | None:
    """An operand whose axes are in another order; one number is as it is. None if its rank is not that of the result."""
    dims = make.shapes.dims(formula)
    if dims is not None and len(dims) < 2 and all(size == 1 for size in dims):
        return formula
    return None if dims is None or len(dims) != len(axes) else _turn(make, formula, axes)


def _places(make: Rewriter, formula: Formula, axes: Axes) -> Formula | None:
    """The axes of a slice, in another order."""
    value = make.shapes.value(formula.operands[3]) if len(formula.operands) > 3 else None
    if value is None or value.dtype.kind != "i":
        return None
    places = [axes.index(axis % len(axes)) for axis in value.reshape(-1).tolist()]
    return number(np.array(places, value.dtype), "axes")
