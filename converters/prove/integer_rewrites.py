"""The rewrites that erase quantization: codes become the values that they encode.

Those of operators that compute on codes are in `quantized_operators.py`.
"""

from math import prod

import numpy as np

from onnxreg.converters.prove.formula import (
    Formula,
    QuantizationParameters,
    StoredValue,
    array_of,
    constant,
    nibbles,
    number,
    same_arrays,
    split,
    unpack_nibbles,
)
from onnxreg.converters.prove.rewriter import Rewriter, rule

MICROSOFT = "com.microsoft:"
MOVES = frozenset(
    {
        "Expand",
        "Flatten",
        "Gather",
        "GatherElements",
        "MaxPool",
        "Reshape",
        "Slice",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
    }
)
"""Operators that move the elements of their first operand, or choose the largest of some."""


@rule("quantized-constant", "DequantizeLinear", f"{MICROSOFT}DequantizeLinear")
def quantized_constant(_: Rewriter, formula: Formula) -> Formula | None:
    """Stored codes with their scale and zero point are a stored weight."""
    codes, scale, zero = _three(formula)
    if codes is None or codes.constant is None or scale is None:
        return None
    axis, block = formula.attribute("axis", 1), formula.attribute("block_size", 0)
    return coded(codes, scale, zero, axis, formula.node, block)


def coded(
    codes: Formula | None, scale: Formula | None, zero: Formula | None, axis: int, node: str, block: int = 0
) -> Formula | None:
    """A constant of codes; None unless all parts are stored as they are, and fit each other."""
    parts = [one.constant if one is not None else None for one in (codes, scale, zero)]
    values, steps, middle = parts
    if values is None or steps is None or (zero is not None and middle is None):
        return None
    if any(one is not None and one.quantization for one in parts) or steps.views or (middle and middle.views):
        return None
    if (
        values.element not in _CODES
        or not steps.is_float
        or (middle and middle.dims != steps.dims and middle.size != 1)
    ):
        return None
    quantization = _quantization(values, steps, middle, axis, block)
    if quantization is None:
        return None
    return constant(StoredValue(values.tensor, values.dims, quantization, values.views), node)


_CODES = frozenset({"int4", "uint4", "int8", "uint8", "int16", "uint16", "int32"})


def _quantization(
    values: StoredValue, steps: StoredValue, middle: StoredValue | None, axis: int, block: int
) -> QuantizationParameters | None:
    zero = middle.tensor if middle else None
    if steps.size == 1 and not block:
        return QuantizationParameters(steps.tensor, zero)
    rank = len(values.dims)
    if not -rank <= axis < rank or values.views:
        return None
    axis %= rank
    if block:
        block = min(block, values.dims[axis])
        spread = tuple(-(-size // block) if at == axis else size for at, size in enumerate(values.dims))
        fits = steps.dims == spread and values.dims[axis] % block == 0
        return QuantizationParameters(steps.tensor, zero, axis, block) if fits else None
    return QuantizationParameters(steps.tensor, zero, axis) if steps.size == values.dims[axis] else None


@rule("activation-range", "DequantizeLinear", f"{MICROSOFT}DequantizeLinear")
def activation_range(make: Rewriter, formula: Formula) -> Formula | None:
    """A value that is quantized and dequantized by one scale is that value, rounded, in a fixed range."""
    inner, scale, zero = _three(formula)
    if inner is None or scale is None or not _is_positive(scale):
        return None
    if inner.operator.removeprefix(MICROSOFT) != "QuantizeLinear" or inner.output:
        return None
    source, other_scale, other_zero = _three(inner)
    if not same_arrays(scale, other_scale) or not _same_zero(zero, other_zero):
        return None
    if formula.attribute("block_size", 0) or inner.attribute("block_size", 0):
        return None
    make.ranges.add(inner.node)
    return source


@rule("quantized-move", "DequantizeLinear", f"{MICROSOFT}DequantizeLinear")
def quantized_move(make: Rewriter, formula: Formula) -> Formula | None:
    """Moving codes, or taking the largest of some, and then dequantizing, is the same in the other order."""
    inner, scale, zero = _three(formula)
    if inner is None or inner.operator not in MOVES or inner.output or not _is_positive(scale):
        return None
    source = make.apply(
        formula.operator,
        (inner.operands[0], scale, zero),
        formula.attributes,
        formula.node,
        epoch=formula.epoch,
    )
    if source.operator == formula.operator:
        return None
    return make.apply(
        inner.operator, (source, *inner.operands[1:]), inner.attributes, inner.node, epoch=inner.epoch
    )


def _three(formula: Formula) -> tuple[Formula | None, Formula | None, Formula | None]:
    first, second, third, *_ = (*formula.operands, None, None, None)
    return first, second, third


def _is_positive(scale: Formula | None) -> bool:
    """Return True for one stored scale above zero."""
    array = array_of(scale, 1)
    return array is not None and array.size == 1 and bool(0 < float(array.reshape(-1)[0]) < float("inf"))


def _same_zero(one: Formula | None, other: Formula | None) -> bool:
    return same_arrays(one, other) and (one is None) == (other is None)


@rule("dynamic-product", "Mul")
def dynamic_product(make: Rewriter, formula: Formula) -> Formula | None:
    """A product of codes, times both scales, is the product of the values.

    Codes are stored, or DynamicQuantizeLinear makes them of a value while the model runs: its range is that of the value.
    """
    pair = split(formula.operands, _is_integer_product)
    if pair is None:
        return None
    product, scales = pair[0].operands[0], pair[1]
    left, right, left_zero, right_zero = (*product.operands, None, None)[:4]
    source = _source(left, left_zero)
    if not scales.is_op("Mul"):
        return None
    if source is None:
        return _constant_product(make, product, scales)
    steps = split(
        scales.operands,
        lambda one: one is not None and one.is_op("DynamicQuantizeLinear", 1) and one.operands[0] is source,
    )
    if steps is None:
        return None
    weight = _second(right, right_zero, steps[1], product.operator)
    if weight is None:
        return None
    name = product.operator.removesuffix("Integer")
    epoch = 11 if name == "Conv" else 1
    return make.apply(name, (source, weight), product.attributes, product.node, epoch=epoch)


def _constant_product(make: Rewriter, product: Formula, scales: Formula) -> Formula | None:
    """The same if the codes of both factors are stored, the scale of the first before that of the second."""
    left, right, left_zero, right_zero = (*product.operands, None, None)[:4]
    first, second = scales.operands if len(scales.operands) == 2 else (None, None)
    if product.operator != "MatMulInteger" or first is None or second is None or left is None:
        return None
    if first.constant is None or first.constant.size != 1 or left.constant is None:
        return None
    if len(first.constant.dims) > len(left.constant.dims) - 1:
        return None
    one = coded(left, first, left_zero, -1, left.node)
    other = _second(right, right_zero, second, product.operator)
    if one is None or other is None:
        return None
    return make.apply("MatMul", (one, other), (), product.node)


def _is_integer_product(formula: Formula | None) -> bool:
    """Return True for the product of codes, cast to floating point."""
    inner = (
        formula.operands[0]
        if formula is not None and formula.is_op("Cast") and formula.attribute("to") == "float"
        else None
    )
    return inner is not None and inner.operator in ("MatMulInteger", "ConvInteger")


def _source(codes: Formula | None, zero: Formula | None) -> Formula | None:
    """The value that DynamicQuantizeLinear quantized to these codes and this zero point."""
    if codes is None or zero is None:
        return None
    if not (codes.is_op("DynamicQuantizeLinear") and zero.is_op("DynamicQuantizeLinear", 2)):
        return None
    return codes.operands[0] if codes.operands[0] is zero.operands[0] else None


def _second(codes: Formula | None, zero: Formula | None, scale: Formula, operator: str) -> Formula | None:
    source = _source(codes, zero)
    if source is not None:
        is_own = scale.is_op("DynamicQuantizeLinear", 1) and scale.operands[0] is source
        return source if is_own else None
    dims = scale.constant.dims if scale.constant is not None else ()
    axes = len(codes.constant.dims) if codes is not None and codes.constant is not None else 0
    if len(dims) > axes - (operator == "MatMulInteger"):
        return None  # the product with the scale has an axis more
    if operator == "ConvInteger":
        return coded(codes, scale, zero, 0, codes.node if codes else "") if prod(dims) == 1 else None
    if len(dims) > 1 and prod(dims) != 1:
        return None
    return coded(codes, scale, zero, -1, codes.node if codes else "")


@rule("dynamic-product", f"{MICROSOFT}MatMulIntegerToFloat")
def fused_dynamic_product(make: Rewriter, formula: Formula) -> Formula | None:
    """The same as one operator, with a bias."""
    left, right, left_scale, right_scale, left_zero, right_zero, bias = (*formula.operands, *[None] * 7)[:7]
    source = _source(left, left_zero)
    if source is None or left_scale is None or right_scale is None:
        return None
    if not (left_scale.is_op("DynamicQuantizeLinear", 1) and left_scale.operands[0] is source):
        return None
    return _biased(make, formula, source, _second(right, right_zero, right_scale, "MatMulInteger"), bias)


@rule("dynamic-product", f"{MICROSOFT}DynamicQuantizeMatMul")
def dynamic_matmul(make: Rewriter, formula: Formula) -> Formula | None:
    """The same as one operator that quantizes its first operand itself."""
    source, right, scale, zero, bias = (*formula.operands, *[None] * 5)[:5]
    if source is None or scale is None:
        return None
    return _biased(make, formula, source, _second(right, zero, scale, "MatMulInteger"), bias)


def _biased(
    make: Rewriter, formula: Formula, source: Formula, weight: Formula | None, bias: Formula | None
) -> Formula | None:
    if weight is None or (bias is not None and (bias.constant is None or len(bias.constant.dims) != 1)):
        return None
    product = make.apply("MatMul", (source, weight), (), formula.node)
    return product if bias is None else make.apply("Add", (product, bias), (), formula.node, epoch=7)


@rule("quantized-rows", "Mul")
def quantized_rows(make: Rewriter, formula: Formula) -> Formula | None:
    """Rows of codes times the rows of their scales are the rows of the values."""
    pair = split(formula.operands, lambda one: one.is_op("Cast") and one.attribute("to") == "float")
    if pair is None:
        return None
    codes, scales = pair[0].operands[0], pair[1]
    if codes is None or not (codes.is_op("Gather") and scales.is_op("Gather")):
        return None
    if codes.attributes or scales.attributes or codes.operands[1] is not scales.operands[1]:
        return None
    table, steps = (one.operands[0].constant if one.operands[0] else None for one in (codes, scales))
    if (
        table is None
        or steps is None
        or table.views
        or steps.views
        or table.quantization
        or steps.quantization
    ):
        return None
    if table.element != "int8" or len(table.dims) != 2 or steps.dims != (table.dims[0], 1):
        return None
    rows = StoredValue(table.tensor, table.dims, QuantizationParameters(steps.tensor, None, 0))
    return make.apply("Gather", (constant(rows, codes.node), codes.operands[1]), (), formula.node)


@rule("weights-by-blocks", f"{MICROSOFT}MatMulNBits")
def weights_by_blocks(make: Rewriter, formula: Formula) -> Formula | None:
    """MatMulNBits is MatMul by the matrix that its blocks of codes encode."""
    source, packed, scales, zeros, order, bias = (*formula.operands, *[None] * 6)[:6]
    if packed is None or scales is None or order is not None:
        return None
    values, steps, middle = (one.constant if one is not None else None for one in (packed, scales, zeros))
    rows, columns, bits = formula.attribute("K", 0), formula.attribute("N", 0), formula.attribute("bits", 4)
    size = formula.attribute("block_size", 0)
    if (
        values is None
        or steps is None
        or (zeros is not None and middle is None)
        or size < 16
        or bits not in (4, 8)
    ):
        return None
    if any(one and (one.views or one.quantization) for one in (values, steps, middle)):
        return None
    blocks = -(-rows // size)
    if (
        values.element != "uint8"
        or values.dims != (columns, blocks, size * bits // 8)
        or steps.size != columns * blocks
    ):
        return None
    if middle and (middle.size != columns * (-(-blocks * bits // 8)) or middle.element != "uint8"):
        return None
    quantization = QuantizationParameters(
        steps.tensor, middle.tensor if middle else None, None, size, rows, bits
    )
    weight = constant(StoredValue(values.tensor, (rows, columns), quantization), packed.node)
    product = make.apply("MatMul", (source, weight), (), formula.node)
    return product if bias is None else make.apply("Add", (product, bias), (), formula.node, epoch=7)


@rule("rows-by-blocks", f"{MICROSOFT}GatherBlockQuantized")
def rows_by_blocks(make: Rewriter, formula: Formula) -> Formula | None:
    """GatherBlockQuantized is Gather from the table that its blocks of codes encode."""
    codes, index, scales, zeros = (*formula.operands, *[None] * 4)[:4]
    axis, size = formula.attribute("quantize_axis", 1), formula.attribute("block_size", 128)
    is_native = codes is not None and codes.element in ("int4", "uint4")
    if codes is not None and codes.element == "uint8" and formula.attribute("bits", 4) == 4:
        codes, zeros = _nibbles(codes), _packed_zeros(zeros, scales)
    if codes is not None and codes.element in _MIDDLES and not is_native and zeros is None:
        zeros = _middles(scales, codes.element)
    if codes is None or scales is None or (not is_native and zeros is None):
        return None
    table = coded(codes, scales, zeros, axis, codes.node, size)
    gathered = formula.attribute("gather_axis", 0)
    attributes = (("axis", gathered),) if gathered else ()
    return None if table is None else make.apply("Gather", (table, index), attributes, formula.node)


_MIDDLES = {"uint4": 8, "uint8": 128}
"""The zero point of codes in bytes that have none of their own; that of 4-bit types is 0."""


def _nibbles(packed: Formula | None) -> Formula | None:
    value = packed.constant if packed is not None else None
    if packed is None or value is None or value.views or value.quantization or not value.dims:
        return None
    return constant(nibbles(value.tensor), packed.node)


def _packed_zeros(packed: Formula | None, scales: Formula | None) -> Formula | None:
    """Zero points of 4 bits, of which each row begins with a byte of its own."""
    array = array_of(packed, 2**24)
    dims = scales.constant.dims if scales is not None and scales.constant is not None else ()
    if packed is None or array is None or not dims or array.dtype != "uint8":
        return None
    return number(unpack_nibbles(array)[..., : dims[-1]], packed.node)


def _middles(scales: Formula | None, element: str) -> Formula | None:
    if scales is None or scales.constant is None:
        return None
    return number(np.full(scales.constant.dims, _MIDDLES[element], np.uint8), "zero point")
