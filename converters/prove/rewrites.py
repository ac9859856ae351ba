"""Rewrites that bring formulas to the same form (docs/prove.md). A rule gets a formula, and returns another or None."""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from onnxreg.converters.onnx.onnx_graph import DEFAULT_DOMAIN
from onnxreg.converters.prove.formula import Formula, Operand, array_of, constant, is_number, number, split
from onnxreg.converters.prove.operators import ELEMENTWISE, SINCE, UNARY, result_types
from onnxreg.converters.prove.shapes import RESHAPES, Shapes, is_known

MAX_DEPTH = 64  # the maximum number of operators in a row through which a Transpose is moved
Axes = tuple[int, ...]
Rule = Callable[["Rewriter", Formula], Operand]
RULES: dict[str, list[tuple[str, Rule]]] = defaultdict(list)
"""The rules for each operator, with their names, in the order in which they are tried."""


def rule(name: str, *kinds: str) -> Callable[[Rule], Rule]:
    """Register a function as the rule `name` for the operators `kinds`."""

    def enter(function: Rule) -> Rule:
        for kind in kinds:
            RULES[kind].append((name, function))
        return function

    return enter


class Rewriter:
    """Makes the formulas of a graph, and rewrites each by the rules.

    `used` counts rewrites by rule. `ranges` names the nodes that give an activation a fixed range. `transposed` caches
    transposed formulas; None means that a formula cannot be transposed. `waiting` is the stack of formulas being
    transposed.
    """

    def __init__(self, shapes: Shapes) -> None:
        self.shapes = shapes
        self.used: Counter[str] = Counter()
        self.ranges: set[str] = set()
        self.transposed: dict[tuple[Formula, Axes], Operand] = {}
        self.waiting: list[Formula] = []
        self.node = ""

    def op(self, name: str, *operands: Operand, node: str | None = None, **attributes: Any) -> Formula:
        """Make the formula of an ONNX operator, and rewrite it. `node` is a name for messages."""
        epoch, node = SINCE.get(name, 1), self.node if node is None else node
        element = next(result_types(DEFAULT_DOMAIN, name, epoch, operands), "")
        return self.rewritten(Formula(name, operands, tuple(attributes.items()), 0, element, node, epoch))

    def plus(self, value: Formula, summand: Operand) -> Formula:
        return value if summand is None else self.op("Add", value, summand)

    def rewritten(self, formula: Formula) -> Formula:
        """Return the result of the first rule that applies. If none applies, return the formula."""
        for name, rewrite in RULES.get(formula.operator, ()):
            outer, self.node = self.node, formula.node
            result = rewrite(self, formula)
            self.node = outer
            if result is not None:
                self.used[name] += 1
                formula = result
                break
        if formula.constant is None and self.shapes.value(formula) is not None:
            formula.shape_of = b""
        return formula

    def like(self, formula: Formula, *operands: Operand, **changes: Any) -> Formula:
        """Copy a formula with other operands, and rewrite it. The copy has output number 0."""
        return self.rewritten(replace(formula, operands=operands, output=0, **changes))


@rule("transposition", "Transpose")
def transposition(make: Rewriter, formula: Formula) -> Operand:
    """Transpose the operands instead of the result. Merge two transpositions, and drop them if they cancel out."""
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
        make.transposed[key] = _transpose_operands(make, source, axes)
        make.waiting.pop()
    return make.transposed.get(key)


def _transpose_operands(make: Rewriter, source: Formula, axes: Axes) -> Operand:
    """Transpose the operands of `source` instead of its result. Return None if the operator does not allow this."""
    first, *others = source.operands or (None,)
    if source.operator in UNARY:
        return make.like(source, _turn(make, first, axes), *others)
    if source.operator == "Slice":
        places = _places(make, source, axes)
        if places is None:
            return None
        return make.like(source, _turn(make, first, axes), *others[:2], places, *others[3:])
    if source.operator != "Concat" and (source.operator not in ELEMENTWISE or source.epoch < 7):
        return None
    operands = [_transposed(make, one, axes) for one in source.operands]
    if None in operands:
        return None
    if source.operator != "Concat":
        return make.like(source, *operands)
    axis = axes.index(source.attribute("axis") % len(axes))
    return make.like(source, *operands, attributes=(("axis", axis),))


def _turn(make: Rewriter, formula: Operand, axes: Axes) -> Formula:
    return make.op("Transpose", formula, perm=axes)


def _transposed(make: Rewriter, formula: Operand, axes: Axes) -> Operand:
    """Transpose an operand; leave a single number as it is. Return None if the rank does not fit `axes`."""
    dims = make.shapes.dims(formula)
    if dims is not None and len(dims) < 2 and all(size == 1 for size in dims):
        return formula
    return None if dims is None or len(dims) != len(axes) else _turn(make, formula, axes)


def _places(make: Rewriter, formula: Formula, axes: Axes) -> Operand:
    value = make.shapes.value(formula.operands[3]) if len(formula.operands) > 3 else None
    if value is None or value.dtype.kind != "i":
        return None
    places = [axes.index(axis % len(axes)) for axis in value.reshape(-1).tolist()]
    return number("axes", places, value.dtype)


SINGLE, COARSE = 2.0**-21, 2.0**-9
"""The allowed relative error of a factor: the first if it is stored as float32, the second if as float16."""
MAX_SCALE = 2.0**16
"""The largest factor to move out of a product. Its reciprocal is the smallest."""
MAX_EXPONENT = 16  # the largest `n` for which a factor `2 ** n` or `2 ** -n` is moved into a matrix


@rule("scaled-product", "MatMul")
def scaled_product(make: Rewriter, formula: Formula) -> Operand:
    """Replace `(a * s) @ (b * t)` by `(a @ b) * (s * t)`. The factors are stored numbers."""
    parts = [_unscaled(make, one) or (one, 1.0, SINGLE) for one in formula.operands]
    sources, factors, tolerances = zip(*parts, strict=True)
    if sources == formula.operands:
        return None
    return _scaled(make, make.like(formula, *sources), prod(factors), max(tolerances))


@rule("scaled-product", "Mul", "Div")
def product_scaled_again(make: Rewriter, formula: Formula) -> Operand:
    """Merge into a single factor the two numbers by which a matrix product is multiplied or divided."""
    part = _unscaled(make, formula)
    if part is None or (formula.operator == "Mul" and part[0].is_op("MatMul")):
        return None
    inner = _unscaled(make, part[0]) or part
    return _scaled(make, *part) if inner[0].is_op("MatMul") else None


def _scaled(make: Rewriter, value: Formula, factor: float, tolerance: float) -> Formula:
    """Return `value * factor`. If `value` is already a matrix product with a factor, merge the two factors into one."""
    inner = _unscaled(make, value)
    if inner is not None and inner[0].is_op("MatMul"):
        value, factor, tolerance = inner[0], factor * inner[1], max(tolerance, inner[2])
    stored = number("factor", factor, tolerance=tolerance)
    return Formula("Mul", (value, stored), (), 0, value.element, make.node, 7)


def _unscaled(make: Rewriter, formula: Operand) -> tuple[Formula, float, float] | None:
    """Split `x * number` or `x / number`. Return (x, factor, allowed relative error of the factor), or None."""
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


@rule("scaled-channels", "MatMul")
def scaled_channels(_: Rewriter, formula: Formula) -> Operand:
    """Replace `(x * s) @ w` by `x @ (s * w)` if all factors `s` are powers of two. They multiply the rows of `w`."""
    value, matrix = formula.operands
    if not (value and matrix and matrix.constant) or len(matrix.constant.dims) != 2:
        return None
    pair = split(value.operands, lambda one: one.constant is not None)
    factors = array_of(pair[0]) if pair and value.is_op("Mul") and value.epoch >= 7 else None
    if not pair or factors is None or factors.dtype.kind != "f" or factors.shape != matrix.constant.dims[:1]:
        return None
    mantissas, exponents = np.frexp(factors)
    if (mantissas != 0.5).any() or np.abs(exponents).max() > MAX_EXPONENT:
        return None
    scaled = matrix.constant.scale_rows(tuple(int(exponent) - 1 for exponent in exponents))
    return replace(formula, operands=(pair[1], constant(scaled, matrix.node)))


@rule("identity", "Identity")
def identity(_: Rewriter, formula: Formula) -> Operand:
    return formula.operands[0]


@rule("dropout", "Dropout")
def dropout(_: Rewriter, formula: Formula) -> Operand:
    source, _ratio, training = formula.first(3)
    flag = array_of(training, 1)
    is_off = training is None or (flag is not None and not flag.any())
    return source if is_off and not formula.output and formula.epoch >= 7 else None


@rule("cast", "Cast")
def cast(_: Rewriter, formula: Formula) -> Operand:
    """Drop a Cast between floating-point types. Replace any other Cast to a float type by a Cast to float32."""
    source = formula.operands[0]
    if source is not None and source.element and source.element == formula.element:
        return source
    if not formula.is_float:
        return None
    if source is not None and source.is_float:
        return source
    return None if formula.attribute("to") == "float" else replace(formula, attributes=(("to", "float"),))


@rule("constant-view", "Transpose", "Reshape", "Squeeze", "Unsqueeze")
def constant_view(make: Rewriter, formula: Formula) -> Operand:
    """Replace a Transpose or Reshape of a stored tensor by a constant with the new shape."""
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


@rule("sizes", *RESHAPES)
def known_sizes(make: Rewriter, formula: Formula) -> Operand:
    """Drop a Reshape or Expand that changes no size. Otherwise turn its known sizes into an attribute."""
    source, dims = formula.operands[0], make.shapes.by_rule(formula)
    if dims is not None and dims == make.shapes.dims(source):
        return source
    if dims is None or not all(map(is_known, dims)) or len(formula.operands) < 2:
        return None
    return replace(formula, operands=(source,), attributes=(("sizes", (dims,)),))


@rule("gemm", "Gemm")
def gemm(make: Rewriter, formula: Formula) -> Operand:
    one, other, bias = formula.first(3)
    if formula.attribute("alpha", 1.0) != 1.0 or (bias and formula.attribute("beta", 1.0) != 1.0):
        return None
    left = _turn(make, one, (1, 0)) if formula.attribute("transA", 0) else one
    right = _turn(make, other, (1, 0)) if formula.attribute("transB", 0) else other
    return make.plus(make.op("MatMul", left, right), bias)


@rule("fused-matmul", "com.microsoft:FusedMatMul")
def fused_matmul(make: Rewriter, formula: Formula) -> Operand:
    attributes: dict[str, Any] = dict(formula.attributes)
    factor, flags = attributes.pop("alpha", 1.0), [attributes.pop(name, 0) for name in ("transA", "transB")]
    operands = formula.first(2)
    for at, dims in enumerate(map(make.shapes.dims, operands)):
        if flags[at]:
            if dims is None or len(dims) < 2:
                return None
            *first, row, column = range(len(dims))
            operands[at] = _turn(make, operands[at], (*first, column, row))
    if attributes or None in operands:
        return None
    product = make.op("MatMul", *operands)
    return product if factor == 1.0 else make.op("Mul", product, number("alpha", factor))


@rule("convolution-bias", "Conv")
def convolution_bias(make: Rewriter, formula: Formula) -> Operand:
    source, weight, bias = formula.first(3)
    if not weight or not bias or weight.constant is None or bias.constant is None:
        return None
    shape = (1, bias.constant.size, *[1] * (len(weight.constant.dims) - 2))
    return make.op("Add", make.like(formula, source, weight), constant(bias.constant.reshape(shape)))


@rule("fused-activation", "com.microsoft:FusedConv", "com.microsoft:FusedGemm")
def fused_activation(make: Rewriter, formula: Formula) -> Operand:
    activation = formula.attribute("activation", b"")
    if activation not in (b"Relu", b"Sigmoid", b"Tanh") or len(formula.operands) > 3:
        return None
    inner: dict[str, Any] = {
        key: value for key, value in formula.attributes if not key.startswith("activation")
    }
    name = formula.operator.removeprefix("com.microsoft:Fused")
    return make.op(activation.decode(), make.op(name, *formula.operands, **inner))


@rule("gelu", "Gelu", "com.microsoft:Gelu", "com.microsoft:BiasGelu")
def gelu(make: Rewriter, formula: Formula) -> Operand:
    """Replace Gelu by `x * (1 + Erf(x / sqrt(2))) / 2`. With two operands, `x` is their sum."""
    if formula.attributes:
        return None
    source = make.plus(*formula.first(2))
    error = make.op("Erf", make.op("Mul", source, number("factor", 0.5**0.5)))
    product = make.op("Mul", source, make.op("Add", error, number("one", 1)))
    return make.op("Mul", product, number("half", 0.5))


@rule("gelu", "Erf")
def scaled_error(make: Rewriter, formula: Formula) -> Operand:
    """Replace a division in the operand of Erf by a multiplication."""
    part = _unscaled(make, formula.operands[0])
    return None if part is None else replace(formula, operands=(_scaled(make, *part),))


@rule("gelu", "Mul")
def scaled_gate(make: Rewriter, formula: Formula) -> Operand:
    """Move a number in the product `x * number * (1 + Erf(...))` to the end of the product."""
    for product, other in (formula.operands, formula.operands[::-1]):
        parts = split(product.operands, is_number) if product is not None and product.is_op("Mul") else None
        if parts is not None and not is_number(other) and (_is_gate(parts[1]) or _is_gate(other)):
            return make.op("Mul", make.op("Mul", parts[1], other), parts[0])
    return None


def _is_gate(formula: Operand) -> bool:
    parts = formula.operands if formula is not None and formula.is_op("Add") else ()
    return any(part and part.is_op("Erf") for part in parts)


@rule("idle-number", "Add", "Mul", "Sub", "Div", "Pow")
def idle_number(make: Rewriter, formula: Formula) -> Operand:
    """Drop `* 1` and `+ 0`. Turn a number of shape [1] into a scalar if the other operand has axes."""
    neutral = {"Add": 0.0, "Mul": 1.0}.get(formula.operator)
    for at, (one, other) in enumerate((formula.operands, formula.operands[::-1])):
        value = one.constant if one is not None else None
        if neutral is not None and is_number(one, neutral):
            return other
        if value is not None and value.dims == (1,) and formula.epoch >= 7 and make.shapes.dims(other):
            operands = [other, other]
            operands[at] = constant(value.reshape(()), formula.node)
            return make.like(formula, *operands)
    return None


@rule("negated-choice", "Where")
def negated_choice(_: Rewriter, formula: Formula) -> Operand:
    """Replace `Where(Not(c), a, b)` by `Where(c, b, a)`."""
    condition, one, other = formula.first(3)
    if condition is None or not condition.is_op("Not"):
        return None
    return replace(formula, operands=(condition.operands[0], other, one))


@rule("skip-layer-normalization", "com.microsoft:SkipLayerNormalization")
def skip_layer_normalization(make: Rewriter, formula: Formula) -> Operand:
    """Replace the fused operator by Add and LayerNormalization. The fused operator's fourth output is the sum."""
    source, skip, gamma, beta, bias = formula.first(5)
    total = make.op("Add", make.plus(source, bias), skip)
    if formula.output:
        return total if formula.output == 3 else None
    return make.op("LayerNormalization", total, gamma, beta, epsilon=formula.attribute("epsilon", 1e-12))


@rule("simplified-layer-normalization", "SimplifiedLayerNormalization")
@rule("layer-normalization", "LayerNormalization")
def layer_normalization(make: Rewriter, formula: Formula) -> Operand:
    """Expand to `x / Sqrt(mean(x * x) + epsilon) * gamma + beta`. For LayerNormalization, `x` is `input - mean`."""
    attributes: dict[str, Any] = dict(formula.attributes)
    if formula.output or attributes.get("axis", -1) != -1 or attributes.get("stash_type", 1) != 1:
        return None
    source, gamma, beta = formula.first(3)
    last, epsilon = number("axes", [-1], np.int64), number("epsilon", attributes.get("epsilon", 1e-5))
    if formula.is_op("LayerNormalization"):
        source = make.op("Sub", source, make.op("ReduceMean", source, last))
    mean = make.op("ReduceMean", make.op("Mul", source, source), last)
    root = make.op("Sqrt", make.op("Add", mean, epsilon))
    return make.plus(make.op("Mul", make.op("Div", source, root), gamma), beta)


@rule("layer-normalization", "Pow")
def square(make: Rewriter, formula: Formula) -> Operand:
    """Replace `x ** 2` by `x * x`."""
    source, exponent = formula.operands
    if source is None or not source.is_float or not is_number(exponent, 2) or formula.epoch < 7:
        return None
    return make.op("Mul", source, source)
