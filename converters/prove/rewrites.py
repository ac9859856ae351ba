"""Bring formulas to one form by a closed list of rewrites. Each keeps the function of a graph, up to rounding of its values.

A rule takes a formula and returns a replacement, or None. docs/prove.md has the name of each rule, and the reason why the
rule holds. The rules that erase quantization are in `quantization.py`.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from onnxreg.converters.prove.formula import (
    Attributes,
    Formula,
    array_of,
    computed,
    constant,
    is_number,
    number,
    split,
)
from onnxreg.converters.prove.operators import ELEMENTWISE, SINCE, UNARY, result_type
from onnxreg.converters.prove.shapes import Shapes

MAX_DEPTH = 64
"""The most operators in a row that a transposition moves past."""
Axes = tuple[int, ...]
Rule = Callable[["Rewriter", Formula], Formula | None]
RULES: dict[str, list[tuple[str, Rule]]] = defaultdict(list)
"""The rules for each operator, in the order of their use."""


def rule(name: str, *kinds: str) -> Callable[[Rule], Rule]:
    """Register a rule for some operators under its documented name."""

    def enter(function: Rule) -> Rule:
        for kind in kinds:
            RULES[kind].append((name, function))
        return function

    return enter


class Rewriter:
    """Makes the formulas of one graph in the form that the rules lead to.

    `used` counts rewrites, `ranges` has the static activation ranges. `transposed` has, for a formula and axes, the result
    of moving the transposition before the operator, or None; `waiting` are the formulas of unfinished moves.
    """

    def __init__(self, shapes: Shapes) -> None:
        self.shapes = shapes
        self.used: Counter[str] = Counter()
        self.ranges: set[str] = set()
        self.transposed: dict[tuple[Formula, tuple[int, ...]], Formula | None] = {}
        self.waiting: list[Formula] = []

    def op(
        self, name: str, *operands: Formula | None, node: str = "", attributes: Attributes = ()
    ) -> Formula:
        """The first output of an ONNX operator, in the newest meaning of the operator."""
        return self.apply(name, operands, attributes, node, epoch=SINCE.get(name, 1))

    def like(
        self, formula: Formula, operands: tuple[Formula | None, ...], attributes: Attributes | None = None
    ) -> Formula:
        """The same operator with other operands."""
        attributes = formula.attributes if attributes is None else attributes
        return self.apply(
            formula.operator, operands, attributes, formula.node, 0, formula.element, formula.epoch
        )

    def apply(
        self,
        operator: str,
        operands: tuple[Formula | None, ...],
        attributes: Attributes = (),
        node: str = "",
        output: int = 0,
        element: str | None = None,
        epoch: int = 1,
    ) -> Formula:
        """The formula of one output, rewritten by all rules that apply. Without `element` the operands give the element type."""
        if element is None:
            element = result_type(operator, epoch, operands) if not output else ""
        formula = Formula(operator, operands, attributes, output, element, node, epoch)
        for name, rewrite in RULES.get(operator, ()):
            result = rewrite(self, formula)
            if result is not None:
                self.used[name] += 1
                return result
        return formula


def exchange(make: Rewriter, formula: Formula | None) -> Formula | None:
    """A matrix with its last two axes exchanged; None if its rank is not known."""
    dims = make.shapes.dims(formula)
    if dims is None or len(dims) < 2:
        return None
    rank = len(dims)
    return make.apply("Transpose", (formula,), (("perm", (*range(rank - 2), rank - 1, rank - 2)),))


@rule("transposition", "Transpose")
def transposition(make: Rewriter, formula: Formula) -> Formula | None:
    """Transpose the operands instead of the result; replace two transpositions by one or, if they cancel out, none."""
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
    """Apply an operator to transposed operands; None if the operator does not allow this."""
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
    return make.like(source, operands, attributes)


def _turn(make: Rewriter, formula: Formula | None, axes: Axes) -> Formula:
    return make.apply("Transpose", (formula,), (("perm", axes),))


def _turned(make: Rewriter, formula: Formula | None, axes: Axes) -> Formula | None:
    """An operand with its axes reordered; a single number stays the same. None if its rank is not the result's."""
    dims = make.shapes.dims(formula)
    if dims is not None and len(dims) < 2 and all(size == 1 for size in dims):
        return formula
    return None if dims is None or len(dims) != len(axes) else _turn(make, formula, axes)


def _places(make: Rewriter, formula: Formula, axes: Axes) -> Formula | None:
    """The axes operand of a Slice after a transposition; None if the axes are not known."""
    value = make.shapes.value(formula.operands[3]) if len(formula.operands) > 3 else None
    if value is None or value.dtype.kind != "i":
        return None
    places = [axes.index(axis % len(axes)) for axis in value.reshape(-1).tolist()]
    return number(np.array(places, value.dtype), "axes")


SINGLE, COARSE = 2.0**-21, 2.0**-9
"""Relative error of a factor that an optimizer computed in float32, and of a factor stored with 16 bits."""
MAX_SCALE = 2.0**16
"""The largest factor that is moved out of a product (also its reciprocal): more may overflow where the parent does not."""


@rule("scaled-product", "MatMul")
def scaled_product(make: Rewriter, formula: Formula) -> Formula | None:
    """Replace a product of scaled matrices by the scaled product of the matrices."""
    sources, factors, tolerances = zip(
        *(_unscaled(make, one) or (one, 1.0, SINGLE) for one in formula.operands), strict=True
    )
    if sources == formula.operands:
        return None
    return _scaled(make, make.like(formula, sources), prod(factors), max(tolerances), formula.node)


@rule("scaled-product", "Mul", "Div")
def product_scaled_again(make: Rewriter, formula: Formula) -> Formula | None:
    """Merge two factors of a matrix product into one, and turn a divisor into a factor. A single stored factor stays."""
    part = _unscaled(make, formula)
    if part is None or (formula.operator == "Mul" and part[0].is_op("MatMul")):
        return None
    inner = _unscaled(make, part[0]) or (part[0], 1.0, SINGLE)
    return _scaled(make, *part, formula.node) if inner[0].is_op("MatMul") else None


def _scaled(make: Rewriter, product: Formula, factor: float, tolerance: float, node: str) -> Formula:
    inner = _unscaled(make, product)
    if inner is not None and inner[0].is_op("MatMul"):
        product, factor, tolerance = inner[0], factor * inner[1], max(tolerance, inner[2])
    return _times(product, factor, tolerance, node)


def _times(value: Formula, factor: float, tolerance: float, node: str) -> Formula:
    stored = replace(computed("factor", np.array(factor, np.float32)), tolerance=tolerance)
    return Formula("Mul", (value, constant(stored)), (), 0, value.element, node, 7)


def _unscaled(make: Rewriter, formula: Formula | None) -> tuple[Formula, float, float] | None:
    """The value that a stored number scales, the number, and its relative precision; None for any other formula."""
    if formula is None or not (formula.is_op("Mul") or formula.is_op("Div")) or formula.epoch < 7:
        return None
    pairs = [formula.operands] if formula.operator == "Div" else [formula.operands, formula.operands[::-1]]
    for source, scale in (pair for pair in pairs if len(pair) == 2):
        array = make.shapes.value(scale)
        if source is None or array is None or array.size != 1 or array.ndim > 1 or array.dtype.kind != "f":
            continue
        if array.ndim and not make.shapes.dims(source):
            continue  # the number may add an axis
        size = float(array.reshape(-1)[0])
        if 1 / MAX_SCALE <= abs(size) <= MAX_SCALE and source.constant is None:
            precision = SINGLE if array.dtype.itemsize >= 4 else COARSE
            return source, 1 / size if formula.operator == "Div" else size, precision
    return None


@rule("identity", "Identity")
def identity(_: Rewriter, formula: Formula) -> Formula | None:
    return formula.operands[0]


@rule("dropout", "Dropout")
def dropout(_: Rewriter, formula: Formula) -> Formula | None:
    """Replace a Dropout that does not train by its input."""
    training = formula.operands[2] if len(formula.operands) > 2 else None
    flag = array_of(training, 1)
    is_off = training is None or (flag is not None and not flag.any())
    return formula.operands[0] if is_off and not formula.output and formula.epoch >= 7 else None


@rule("cast", "Cast")
def cast(_: Rewriter, formula: Formula) -> Formula | None:
    """Drop a cast to the value's own type or between floating-point types; let any other cast to floating point give float32."""
    source = formula.operands[0]
    if source is not None and source.element and source.element == formula.element:
        return source
    if not formula.is_float:
        return None
    if source is not None and source.is_float:
        return source
    return None if formula.attribute("to") == "float" else replace(formula, attributes=(("to", "float"),))


@rule("constant-view", "Transpose", "Reshape", "Squeeze", "Unsqueeze")
def constant_view(make: Rewriter, formula: Formula) -> Formula | None:
    """Replace a stored tensor that is transposed or reshaped by a constant with a view."""
    source = formula.operands[0].constant if formula.operands and formula.operands[0] else None
    dims = None if source is None else make.shapes.by_rule(formula)
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
    """Replace Gemm without factors by MatMul and Add, and each transposed operand by a Transpose."""
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
    """Replace FusedMatMul by MatMul, with the last two axes of an operand exchanged if need be, times the factor."""
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
    """Replace the third operand of Conv by an Add to each channel."""
    bias = formula.operands[2].constant if len(formula.operands) > 2 and formula.operands[2] else None
    weight = formula.operands[1].constant if len(formula.operands) > 1 and formula.operands[1] else None
    if bias is None or weight is None:
        return None
    shape = (1, bias.size, *[1] * (len(weight.dims) - 2))
    return make.op(
        "Add", make.like(formula, formula.operands[:2]), constant(bias.reshape(shape)), node=formula.node
    )


@rule("fused-activation", "com.microsoft:FusedConv", "com.microsoft:FusedGemm")
def fused_activation(make: Rewriter, formula: Formula) -> Formula | None:
    """Turn the activation of a fused operator into an operator of its own."""
    activation = formula.attribute("activation", b"")
    if activation not in (b"Relu", b"Sigmoid", b"Tanh") or len(formula.operands) > 3:
        return None
    inner = tuple((key, value) for key, value in formula.attributes if not key.startswith("activation"))
    name = formula.operator.removeprefix("com.microsoft:Fused")
    plain = make.op(name, *formula.operands, node=formula.node, attributes=inner)
    return make.op(activation.decode(), plain, node=formula.node)


@rule("gelu", "Gelu", "com.microsoft:Gelu", "com.microsoft:BiasGelu")
def gelu(make: Rewriter, formula: Formula) -> Formula | None:
    """Replace Gelu by x * (1 + Erf(x / sqrt 2)) / 2; with two operands, x is their sum."""
    if formula.attributes:
        return None
    node, bias = formula.node, formula.operator.endswith("BiasGelu")
    source = make.op("Add", *formula.operands, node=node) if bias else formula.operands[0]
    factor, one, half = (number(np.array(value, np.float32), "factor") for value in (0.5**0.5, 1, 0.5))
    error = make.op("Erf", make.op("Mul", source, factor, node=node), node=node)
    product = make.op("Mul", source, make.op("Add", error, one, node=node), node=node)
    return make.op("Mul", product, half, node=node)


@rule("gelu", "Erf")
def scaled_error(make: Rewriter, formula: Formula) -> Formula | None:
    """Replace a divisor of Erf's operand by a factor, which is rounded."""
    part = _unscaled(make, formula.operands[0])
    return None if part is None else replace(formula, operands=(_times(*part, formula.node),))


@rule("gelu", "Mul")
def scaled_gate(make: Rewriter, formula: Formula) -> Formula | None:
    """Move the number in a product with 1 + Erf(...) to the end."""
    for product, other in (formula.operands, formula.operands[::-1]):
        parts = split(product.operands, is_number) if product is not None and product.is_op("Mul") else None
        if parts is not None and not is_number(other) and (_is_gate(parts[1]) or _is_gate(other)):
            return make.op(
                "Mul", make.op("Mul", parts[1], other, node=formula.node), parts[0], node=formula.node
            )
    return None


def _is_gate(formula: Formula | None) -> bool:
    return (
        formula is not None
        and formula.is_op("Add")
        and any(part and part.is_op("Erf") for part in formula.operands)
    )


@rule("idle-number", "Add", "Mul", "Sub", "Div", "Pow")
def idle_number(make: Rewriter, formula: Formula) -> Formula | None:
    """Drop a factor of one and a summand of zero; reduce a stored number of shape [1] to a scalar if the other value has axes."""
    neutral = {"Add": 0.0, "Mul": 1.0}.get(formula.operator)
    for at, (one, other) in enumerate((formula.operands, formula.operands[::-1])):
        value = one.constant if one is not None else None
        if neutral is not None and is_number(one, neutral):
            return other
        if value is not None and value.dims == (1,) and formula.epoch >= 7 and make.shapes.dims(other):
            operands = [other, other]
            operands[at] = constant(value.reshape(()), formula.node)
            return make.like(formula, tuple(operands))
    return None


@rule("negated-choice", "Where")
def negated_choice(_: Rewriter, formula: Formula) -> Formula | None:
    """Replace a choice by a negated condition by the swapped choice by the condition."""
    condition, one, other = (*formula.operands, None, None, None)[:3]
    if condition is None or not condition.is_op("Not"):
        return None
    return replace(formula, operands=(condition.operands[0], other, one))


@rule("skip-layer-normalization", "com.microsoft:SkipLayerNormalization")
def skip_layer_normalization(make: Rewriter, formula: Formula) -> Formula | None:
    """Replace a fused normalization by the layer normalization of a sum; the sum itself is the fourth output."""
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
@rule("layer-normalization", "LayerNormalization")
def layer_normalization(make: Rewriter, formula: Formula) -> Formula | None:
    """Spell out as x / Sqrt(mean of x * x + epsilon) * gamma + beta, last axis; unless simplified, x first loses its mean."""
    attributes: dict[str, Any] = dict(formula.attributes)
    if formula.output or attributes.get("axis", -1) != -1 or attributes.get("stash_type", 1) != 1:
        return None
    source, gamma, beta = [*formula.operands, None, None][:3]
    op, last = partial(make.op, node=formula.node), number(np.array([-1]), "axes")
    epsilon = number(np.array(attributes.get("epsilon", 1e-5), np.float32), "epsilon")
    if formula.is_op("LayerNormalization"):
        source = op("Sub", source, op("ReduceMean", source, last))
    root = op("Sqrt", op("Add", op("ReduceMean", op("Mul", source, source), last), epsilon))
    scaled = op("Mul", op("Div", source, root), gamma)
    return scaled if beta is None else op("Add", scaled, beta)


@rule("layer-normalization", "Pow")
def square(make: Rewriter, formula: Formula) -> Formula | None:
    """Replace the square of a value by the product of the value with itself."""
    source, exponent = formula.operands
    if source is None or not source.is_float or not is_number(exponent, 2) or formula.epoch < 7:
        return None
    return make.op("Mul", source, source, node=formula.node)
