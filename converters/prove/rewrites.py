"""The closed list of rewrites. Each keeps the function of a graph, up to the rounding of its values.

A rule takes a formula and returns the one that replaces it, or None. Its name is in docs/prove.md, with the reason why it
is one. The rules that erase quantization are in `quantization.py`.
"""

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from onnxreg.converters.prove.formula import Formula, array_of, constant, is_scalar, number, split
from onnxreg.converters.prove.rewriter import Rewriter, rule
from onnxreg.converters.prove.transpositions import exchange

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
    return Formula(
        "Cast", formula.operands, (("to", "float"),), 0, formula.element, formula.node, formula.epoch
    )


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
def idle_product(_: Rewriter, formula: Formula) -> Formula | None:
    """A product with one, if the shape stays: one has no axes, or the value has some."""
    pair = split(formula.operands, lambda one: is_scalar(one, 1))
    return pair[1] if pair is not None and _keeps_shape(pair[0], pair[1]) else None


@rule("idle-sum", "Add")
def idle_sum(_: Rewriter, formula: Formula) -> Formula | None:
    """A sum with zero, if the shape stays."""
    pair = split(formula.operands, lambda one: is_scalar(one, 0))
    return pair[1] if pair is not None and _keeps_shape(pair[0], pair[1]) else None


def _keeps_shape(factor: Formula | None, value: Formula) -> bool:
    """Return True if a stored number adds no axis to the value that it is combined with."""
    rank = len(factor.constant.dims) if factor is not None and factor.constant is not None else 0
    return rank == 0 or (rank == 1 and _has_axes(value))


def _has_axes(formula: Formula, depth: int = 4) -> bool:
    """Return True for arithmetic, so many operators deep, in which a constant with axes takes part."""
    if formula.operator == "MatMul":
        return any(one and one.constant and len(one.constant.dims) > 1 for one in formula.operands)
    if formula.operator not in ("Add", "Sub", "Mul", "Div"):
        return formula.constant is not None and bool(formula.constant.dims)
    return depth > 0 and any(one is not None and _has_axes(one, depth - 1) for one in formula.operands)


@rule("negated-choice", "Where")
def negated_choice(_: Rewriter, formula: Formula) -> Formula | None:
    """A choice by a negated condition is the other choice by the condition."""
    condition, one, other = (*formula.operands, None, None, None)[:3]
    if condition is None or not condition.is_op("Not"):
        return None
    operands = (condition.operands[0], other, one)
    return Formula("Where", operands, (), 0, formula.element, formula.node, formula.epoch)


@rule("gelu", "Mul")
def spelled_gelu(make: Rewriter, formula: Formula) -> Formula | None:
    """x * (1 + Erf(x / sqrt 2)) / 2, whatever factor is multiplied first, is Gelu."""
    for factors in _factors(formula):
        halves = [one for one in factors if is_scalar(one, HALF)]
        pair = [one for one in factors if not is_scalar(one, HALF)]
        if len(pair) != 2:
            continue
        for value, other in (pair, pair[::-1]):
            if _keeps_shape(halves[0], value) and _is_erf_of(other, value):
                return make.op("Gelu", value, node=formula.node)
    return None


def _factors(formula: Formula) -> Iterator[list[Formula]]:
    """Yield each way to see a product as one of three factors."""
    parts = [one for one in formula.operands if one is not None]
    for at, part in enumerate(parts):
        if part.is_op("Mul") and len(parts) == 2:
            yield [parts[1 - at], *(one for one in part.operands if one is not None)]


def _is_erf_of(formula: Formula, value: Formula) -> bool:
    """Return True for 1 + Erf(value / sqrt 2)."""
    pair = split(formula.operands, lambda one: is_scalar(one, 1)) if formula.is_op("Add") else None
    if pair is None or not pair[1].is_op("Erf") or not _keeps_shape(pair[0], value):
        return False
    return _is_scaled(pair[1].operands[0], value)


def _is_scaled(formula: Formula | None, value: Formula) -> bool:
    """Return True for value / sqrt 2."""
    if formula is None:
        return False
    if formula.is_op("Div"):
        source, factor = formula.operands
        return source is value and is_scalar(factor, SQRT_TWO) and _keeps_shape(factor, value)
    pair = split(formula.operands, lambda one: one is value) if formula.is_op("Mul") else None
    return pair is not None and is_scalar(pair[1], 1 / SQRT_TWO) and _keeps_shape(pair[1], value)


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
    last, two = number(np.array([-1]), "axes"), number(np.array(2, np.float32), "two")
    epsilon = number(np.array(attributes.get("epsilon", 1e-5), np.float32), "epsilon")
    mean = make.op("ReduceMean", make.op("Pow", source, two, node=node), last, node=node)
    root = make.op("Sqrt", make.op("Add", mean, epsilon, node=node), node=node)
    return make.op("Mul", make.op("Div", source, root, node=node), gamma, node=node)


@rule("layer-normalization", "LayerNormalization")
def layer_normalization(_: Rewriter, formula: Formula) -> Formula | None:
    """The smallest number that is added to the variance becomes an operand."""
    attributes: dict[str, Any] = dict(formula.attributes)
    if formula.output or formula.attribute("form") or attributes.get("axis", -1) != -1:
        return None
    if attributes.get("stash_type", 1) != 1:
        return None
    epsilon = number(np.float32(attributes.get("epsilon", np.float32(1e-5))).reshape(()), "epsilon")
    return _normalization(formula, *[*formula.operands, None, None][:3], epsilon)


def _normalization(formula: Formula, *operands: Formula | None) -> Formula:
    """Of the value, the factor, the addend and the smallest number."""
    form = (("form", "operands"),)
    return Formula("LayerNormalization", operands, form, 0, formula.element, formula.node, 17)


@rule("layer-normalization", "Add")
def spelled_layer_normalization(_: Rewriter, formula: Formula) -> Formula | None:
    """(x - mean) / Sqrt(variance + epsilon) * gamma + beta over the last axis."""
    scaled = split(formula.operands, lambda one: one.is_op("Mul"))
    normal = split(scaled[0].operands, lambda one: one.is_op("Div")) if scaled else None
    if scaled is None or normal is None or normal[1].constant is None or scaled[1].constant is None:
        return None
    centered, root = normal[0].operands
    source = _centered(centered)
    variance = root.operands[0] if root is not None and root.is_op("Sqrt") else None
    parts = (
        split(variance.operands, lambda one: one.is_op("ReduceMean"))
        if variance is not None and variance.is_op("Add")
        else None
    )
    if source is None or parts is None or parts[1].constant is None or parts[1].constant.size != 1:
        return None
    if len(parts[1].constant.dims) > 1:
        return None
    square = _last_mean(parts[0])
    if square is None or not _is_square(square, source):
        return None
    epsilon = constant(parts[1].constant.reshape(()))
    return _normalization(formula, source, normal[1], scaled[1], epsilon)


def _centered(formula: Formula | None) -> Formula | None:
    """x of x - mean(x)."""
    if formula is None or not formula.is_op("Sub"):
        return None
    source, mean = formula.operands
    return source if mean is not None and _last_mean(mean) is source else None


def _last_mean(formula: Formula) -> Formula | None:
    """x of the mean of x over its last axis, which is kept with size one."""
    axes = (
        array_of(formula.operands[1]) if formula.is_op("ReduceMean") and len(formula.operands) == 2 else None
    )
    if axes is None or axes.reshape(-1).tolist() != [-1] or formula.attributes:
        return None
    return formula.operands[0]


def _is_square(formula: Formula, source: Formula) -> bool:
    if formula.is_op("Pow"):
        return is_scalar(formula.operands[1], 2) and _centered(formula.operands[0]) is source
    return formula.is_op("Mul") and all(_centered(one) is source for one in formula.operands)
