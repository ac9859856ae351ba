"""The closed list of rewrites. Each keeps the function of a graph, up to the rounding of its values.

A rule takes a formula and returns the one that replaces it, or None. Its name is in docs/prove.md, with the reason why it
is one. The rules that erase quantization are in `quantization.py`.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from onnxreg.converters.prove.formula import Formula, array_of, computed, constant, is_scalar, number, split
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


SINGLE, COARSE = 2.0**-21, 2.0**-9
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
            precision = SINGLE if array.dtype.itemsize >= 4 else COARSE
            return source, 1 / size if formula.operator == "Div" else size, precision
    return None


SQRT_TWO, HALF = 2**0.5, 0.5


@rule("identity", "Identity")
def identity(_: Rewriter, formula: Formula) -> Formula | None:
    return formula.operands[0]


@rule("dropout", "Dropout")
def dropout(_: Rewriter, formula: Formula) -> Formula | None:
    """Outside of training Dropout passes its input on."""
    training = formula.operands[2] if len(formula.operands) > 2 else None
    flag = array_of(training, 1)
    is_off = training is None or (flag is not None and not flag.any())
    return formula.operands[0] if is_off and not formula.output and formula.epoch >= 7 else None


@rule("float-cast", "Cast")
def float_cast(_: Rewriter, formula: Formula) -> Formula | None:
    """A cast from one floating-point type to another rounds."""
    source = formula.operands[0]
    return source if source is not None and source.is_float and formula.is_float else None


@rule("idle-cast", "Cast")
def idle_cast(_: Rewriter, formula: Formula) -> Formula | None:
    """A cast to the type that a value has already."""
    source = formula.operands[0]
    return source if source is not None and source.element and source.element == formula.element else None


@rule("float-target", "Cast")
def float_target(_: Rewriter, formula: Formula) -> Formula | None:
    """A cast to a floating-point type gives the same number in each, rounded."""
    if not formula.is_float or formula.attribute("to") == "float":
        return None
    return replace(formula, attributes=(("to", "float"),))


@rule("constant-view", "Transpose", "Reshape", "Squeeze", "Unsqueeze")
def constant_view(make: Rewriter, formula: Formula) -> Formula | None:
    """A stored tensor in another order or shape has the same values."""
    source = formula.operands[0].constant if formula.operands and formula.operands[0] else None
    dims = None if source is None else make.shapes.dims_by_rule(formula)
    if source is None or dims is None:
        return None
    if formula.operator == "Transpose":
        axes = formula.attribute("perm", tuple(reversed(range(len(source.dims)))))
        return constant(source.transpose(axes), formula.node)
    sizes = tuple(size for size in dims if isinstance(size, int))
    if len(sizes) < len(dims) or prod(sizes) != source.size:
        return None
    return constant(source.reshape(sizes), formula.node)


@rule("gemm", "Gemm")
def gemm(make: Rewriter, formula: Formula) -> Formula | None:
    """Gemm without factors is MatMul and Add; a transposed operand is Transpose."""
    one, other, *biases = formula.operands
    if formula.attribute("alpha", 1.0) != 1.0 or (biases and formula.attribute("beta", 1.0) != 1.0):
        return None
    factors = [
        make.op("Transpose", side, node=formula.node, attributes=(("perm", (1, 0)),))
        if formula.attribute(flag, 0)
        else side
        for side, flag in ((one, "transA"), (other, "transB"))
    ]
    product = make.op("MatMul", *factors, node=formula.node)
    return make.op("Add", product, *biases, node=formula.node) if biases else product


@rule("fused-matmul", "com.microsoft:FusedMatMul")
def fused_matmul(make: Rewriter, formula: Formula) -> Formula | None:
    """FusedMatMul is MatMul of operands whose last two axes may be exchanged, times its factor."""
    attributes: dict[str, Any] = dict(formula.attributes)
    factor, flags = attributes.pop("alpha", 1.0), [attributes.pop(name, 0) for name in ("transA", "transB")]
    operands = [
        exchange(make, one) if flag else one for one, flag in zip(formula.operands, flags, strict=True)
    ]
    if attributes or None in operands:
        return None
    product = make.op("MatMul", *operands, node=formula.node)
    alpha = number(np.array(factor, np.float32), "alpha")
    return product if factor == 1.0 else make.op("Mul", product, alpha, node=formula.node)


@rule("convolution-bias", "Conv")
def convolution_bias(make: Rewriter, formula: Formula) -> Formula | None:
    """The third operand of Conv is added to each channel."""
    bias = formula.operands[2].constant if len(formula.operands) > 2 and formula.operands[2] else None
    weight = formula.operands[1].constant if len(formula.operands) > 1 and formula.operands[1] else None
    if bias is None or weight is None:
        return None
    shape = (1, bias.size, *[1] * (len(weight.dims) - 2))
    plain = make.apply("Conv", formula.operands[:2], formula.attributes, formula.node, epoch=formula.epoch)
    return make.op("Add", plain, constant(bias.reshape(shape)), node=formula.node)


@rule("fused-activation", "com.microsoft:FusedConv", "com.microsoft:FusedGemm")
def fused_activation(make: Rewriter, formula: Formula) -> Formula | None:
    """The activation behind a fused operator is an operator of its own."""
    activation = formula.attribute("activation", b"")
    if activation not in (b"Relu", b"Sigmoid", b"Tanh") or len(formula.operands) > 3:
        return None
    inner = tuple((key, value) for key, value in formula.attributes if not key.startswith("activation"))
    name = formula.operator.removeprefix("com.microsoft:Fused")
    plain = make.op(name, *formula.operands, node=formula.node, attributes=inner)
    return make.op(activation.decode(), plain, node=formula.node)


@rule("gelu", "com.microsoft:Gelu", "com.microsoft:BiasGelu")
def fused_gelu(make: Rewriter, formula: Formula) -> Formula | None:
    """Gelu under another name, of a sum if it has two operands."""
    source = formula.operands[0]
    if formula.operator.endswith("BiasGelu"):
        source = make.op("Add", *formula.operands, node=formula.node)
    return make.op("Gelu", source, node=formula.node)


@rule("idle-product", "Mul")
def idle_product(make: Rewriter, formula: Formula) -> Formula | None:
    """A product with one, if the shape stays: one has no axes, or the value has some."""
    pair = split(formula.operands, lambda one: is_scalar(one, 1))
    return pair[1] if pair is not None and _keeps_shape(make, pair[0], pair[1]) else None


@rule("idle-sum", "Add")
def idle_sum(make: Rewriter, formula: Formula) -> Formula | None:
    """A sum with zero, if the shape stays."""
    pair = split(formula.operands, lambda one: is_scalar(one, 0))
    return pair[1] if pair is not None and _keeps_shape(make, pair[0], pair[1]) else None


def _keeps_shape(make: Rewriter, factor: Formula, value: Formula) -> bool:
    """Return True if a stored number adds no axis to the value that it is combined with."""
    dims = factor.constant.dims if factor.constant is not None else ()
    return not dims or (len(dims) == 1 and bool(make.shapes.dims(value)))


@rule("negated-choice", "Where")
def negated_choice(_: Rewriter, formula: Formula) -> Formula | None:
    """A choice by a negated condition is the other choice by the condition."""
    condition, one, other = (*formula.operands, None, None, None)[:3]
    if condition is None or not condition.is_op("Not"):
        return None
    return replace(formula, operands=(condition.operands[0], other, one))


@rule("gelu", "Mul")
def spelled_gelu(make: Rewriter, formula: Formula) -> Formula | None:
    """x * (1 + Erf(x / sqrt 2)) / 2, whatever factor is multiplied first, is Gelu."""
    for factors in _factors(formula):
        halves = [one for one in factors if is_scalar(one, HALF)]
        pair = [one for one in factors if not is_scalar(one, HALF)]
        if len(pair) != 2:
            continue
        for value, other in (pair, pair[::-1]):
            if _keeps_shape(make, halves[0], value) and _is_erf_of(make, other, value):
                return make.op("Gelu", value, node=formula.node)
    return None


def _factors(formula: Formula) -> Iterator[list[Formula]]:
    """Yield each way to see a product as one of three factors."""
    parts = [one for one in formula.operands if one is not None]
    for at, part in enumerate(parts):
        if part.is_op("Mul") and len(parts) == 2:
            yield [parts[1 - at], *(one for one in part.operands if one is not None)]


def _is_erf_of(make: Rewriter, formula: Formula, value: Formula) -> bool:
    """Return True for 1 + Erf(value / sqrt 2)."""
    pair = split(formula.operands, lambda one: is_scalar(one, 1)) if formula.is_op("Add") else None
    if pair is None or not pair[1].is_op("Erf") or not _keeps_shape(make, pair[0], value):
        return False
    return _is_scaled(make, pair[1].operands[0], value)


def _is_scaled(make: Rewriter, formula: Formula | None, value: Formula) -> bool:
    """Return True for value / sqrt 2."""
    if formula is None:
        return False
    if formula.is_op("Div"):
        source, factor = formula.operands
        is_root = factor is not None and is_scalar(factor, SQRT_TWO) and _keeps_shape(make, factor, value)
        return source is value and is_root
    pair = split(formula.operands, lambda one: one is value) if formula.is_op("Mul") else None
    return pair is not None and is_scalar(pair[1], 1 / SQRT_TWO) and _keeps_shape(make, pair[1], value)


@rule("skip-layer-normalization", "com.microsoft:SkipLayerNormalization")
def skip_layer_normalization(make: Rewriter, formula: Formula) -> Formula | None:
    """The layer normalization of a sum; the sum itself is the fourth output."""
    source, skip, gamma, *others = formula.operands
    beta, bias = [*others, None, None][:2]
    if bias is not None:
        source = make.op("Add", source, bias, node=formula.node)
    total = make.op("Add", source, skip, node=formula.node)
    if formula.output:
        return total if formula.output == 3 else None
    epsilon = (("epsilon", formula.attribute("epsilon", 1e-12)),)
    return make.op("LayerNormalization", total, gamma, beta, node=formula.node, attributes=epsilon)


@rule("simplified-layer-normalization", "SimplifiedLayerNormalization")
def simplified_layer_normalization(make: Rewriter, formula: Formula) -> Formula | None:
    """x / Sqrt(mean of x * x + epsilon) * gamma over the last axis."""
    attributes: dict[str, Any] = dict(formula.attributes)
    if formula.output or len(formula.operands) != 2:
        return None
    if attributes.get("axis", -1) != -1 or attributes.get("stash_type", 1) != 1:
        return None
    (source, gamma), node = formula.operands, formula.node
    last = number(np.array([-1]), "axes")
    epsilon = number(np.array(attributes.get("epsilon", 1e-5), np.float32), "epsilon")
    mean = make.op("ReduceMean", make.op("Mul", source, source, node=node), last, node=node)
    root = make.op("Sqrt", make.op("Add", mean, epsilon, node=node), node=node)
    return make.op("Mul", make.op("Div", source, root, node=node), gamma, node=node)


@rule("layer-normalization", "LayerNormalization")
def layer_normalization(make: Rewriter, formula: Formula) -> Formula | None:
    """(x - mean) / Sqrt(variance + epsilon) * gamma + beta over the last axis."""
    attributes: dict[str, Any] = dict(formula.attributes)
    if formula.output or attributes.get("axis", -1) != -1 or attributes.get("stash_type", 1) != 1:
        return None
    source, gamma, beta = [*formula.operands, None, None][:3]
    epsilon = number(np.array(attributes.get("epsilon", 1e-5), np.float32), "epsilon")
    node, last = formula.node, number(np.array([-1]), "axes")
    centered = make.op("Sub", source, make.op("ReduceMean", source, last, node=node), node=node)
    square = make.op("Mul", centered, centered, node=node)
    variance = make.op("ReduceMean", square, last, node=node)
    root = make.op("Sqrt", make.op("Add", variance, epsilon, node=node), node=node)
    scaled = make.op("Mul", make.op("Div", centered, root, node=node), gamma, node=node)
    return scaled if beta is None else make.op("Add", scaled, beta, node=node)


@rule("layer-normalization", "Pow")
def square(make: Rewriter, formula: Formula) -> Formula | None:
    """The square of a value is its product with itself."""
    source, exponent = formula.operands
    if source is None or exponent is None or not (source.is_float and is_scalar(exponent, 2)):
        return None
    is_square = _keeps_shape(make, exponent, source) and formula.epoch >= 7
    return make.op("Mul", source, source, node=formula.node) if is_square else None


@rule("layer-normalization", "Add")
def smallest_variance(make: Rewriter, formula: Formula) -> Formula | None:
    """A number that is added to a mean has no axes."""
    pair = split(formula.operands, lambda one: one.is_op("ReduceMean"))
    value = pair[1].constant if pair is not None else None
    if pair is None or pair[0].attributes or value is None or value.dims != (1,):
        return None
    return make.op("Add", pair[0], constant(value.reshape(()), pair[1].node), node=formula.node)
