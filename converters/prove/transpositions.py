"""Transpositions and factors before products: optimizers move them behind, or the other way round."""

from dataclasses import replace

import numpy as np

from onnxreg.converters.prove.formula import Formula, computed, constant, number
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


SINGLE, HALF = 2.0**-21, 2.0**-9
"""Relative: a factor that optimizers computed of others in float32, and of such that are stored with 16 bits."""
MAX_SCALE = 2.0**16
"""A larger factor of an operand, or its reciprocal, may overflow where the parent does not."""


@rule("scaled-product", "MatMul")
def scaled_product(make: Rewriter, formula: Formula) -> Formula | None:
    """A product of scaled matrices is their product, scaled."""
    parts = [_unscaled(make, one) for one in formula.operands]
    if all(part is None for part in parts):
        return None
    factor, tolerance, operands = 1.0, SINGLE, []
    for part, operand in zip(parts, formula.operands, strict=True):
        operands.append(operand if part is None else part[0])
        factor *= 1.0 if part is None else part[1]
        tolerance = max(tolerance, SINGLE if part is None else part[2])
    product = make.apply("MatMul", tuple(operands), (), formula.node, element=formula.element)
    return _scaled(make, product, factor, tolerance, formula.node)


@rule("scaled-product", "Mul", "Div")
def product_scaled_again(make: Rewriter, formula: Formula) -> Formula | None:
    """Two factors of a product are one, and a divisor is a factor. One factor that is stored stays as it is."""
    part = _unscaled(make, formula)
    inner = _unscaled(make, part[0]) if part is not None else None
    if part is None or not (part[0].is_op("MatMul") or (inner is not None and inner[0].is_op("MatMul"))):
        return None
    if inner is None and formula.operator == "Mul":
        return None
    dims = make.shapes.dims(part[0])
    if dims is None or not dims:
        return None
    product, factor, tolerance = (part[0], 1.0, SINGLE) if inner is None else inner
    return _scaled(make, product, factor * part[1], max(tolerance, part[2]), formula.node)


def _scaled(make: Rewriter, product: Formula, factor: float, tolerance: float, node: str) -> Formula:
    inner = _unscaled(make, product)
    if inner is not None and inner[0].is_op("MatMul"):
        product, factor, tolerance = inner[0], factor * inner[1], max(tolerance, inner[2])
    value = replace(computed("factor", np.array(factor, np.float32)), tolerance=tolerance)
    return Formula("Mul", (product, constant(value)), (), 0, product.element, node, 7)


def _unscaled(make: Rewriter, formula: Formula | None) -> tuple[Formula, float, float] | None:
    """The value that one stored number scales, that number, and how precise it is; None if there is none."""
    if formula is None or not (formula.is_op("Mul") or formula.is_op("Div")) or formula.epoch < 7:
        return None
    pairs = [formula.operands] if formula.operator == "Div" else [formula.operands, formula.operands[::-1]]
    for source, scale in (pair for pair in pairs if len(pair) == 2):
        array = make.shapes.value(scale)
        if source is None or array is None or array.size != 1 or array.ndim > 1 or array.dtype.kind != "f":
            continue
        size = float(array.reshape(-1)[0])
        if 1 / MAX_SCALE <= abs(size) <= MAX_SCALE and source.constant is None:
            precision = SINGLE if array.dtype.itemsize >= 4 else HALF
            return source, 1 / size if formula.operator == "Div" else size, precision
    return None
