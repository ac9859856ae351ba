"""The rewrites that erase quantization: codes become the values that they encode, and so do operators on codes."""

import numpy as np
import onnx_ir as ir

from onnxreg.converters.prove.formula import (
    Formula,
    QuantizationParameters,
    StoredValue,
    array_of,
    computed,
    constant,
    number,
    read_array,
    same_arrays,
    split,
    unpacked,
)
from onnxreg.converters.prove.rewrites import Rewriter, rule

MICROSOFT = "com.microsoft:"
_MOVES = "Expand Flatten Gather GatherElements MaxPool Reshape Slice Squeeze Transpose Unsqueeze"
MOVES = frozenset(_MOVES.split())
"""Operators that move the elements of their first operand, or choose the largest of some."""
CODES = frozenset({"int4", "uint4", "int8", "uint8", "int16", "uint16", "int32"})
DYNAMIC = "DynamicQuantizeLinear"
Operand = Formula | None


def _operands(formula: Formula, count: int) -> list[Operand]:
    return [*formula.operands, *[None] * count][:count]


def _plain(*parts: Operand) -> list[StoredValue] | None:
    """The constants that some formulas are, as they are stored; None unless all are."""
    values = [one.constant if one is not None else None for one in parts]
    stored = [value for value in values if value is not None and not value.views and not value.quantization]
    return stored if len(stored) == len(parts) else None


def coded(codes: Operand, scale: Operand, zero: Operand, axis: int, node: str, block: int = 0) -> Operand:
    """A constant of codes; None unless all parts are stored as they are, and fit each other. Codes may have views."""
    values = codes.constant if codes is not None else None
    parts = _plain(scale) if zero is None else _plain(scale, zero)
    if values is None or values.quantization or parts is None:
        return None
    steps, middle = parts[0], parts[1] if zero is not None else None
    if values.element not in CODES or not steps.is_float:
        return None
    if middle and middle.dims != steps.dims and middle.size != 1:
        return None
    rank, point = len(values.dims), middle.tensor if middle else None
    if steps.size == 1 and not block:
        quantization = QuantizationParameters(steps.tensor, point)
    elif not -rank <= axis < rank or values.views:
        return None
    else:
        axis %= rank
        size = values.dims[axis]
        block = min(block, size)
        spread = (*values.dims[:axis], -(-size // block) if block else size, *values.dims[axis + 1 :])
        if (steps.dims != spread or size % block) if block else steps.size != size:
            return None
        quantization = QuantizationParameters(steps.tensor, point, axis, block)
    return constant(StoredValue(values.tensor, values.dims, quantization, values.views), node)


@rule("quantized-constant", "DequantizeLinear", f"{MICROSOFT}DequantizeLinear")
def quantized_constant(_: Rewriter, formula: Formula) -> Operand:
    """Stored codes with their scale and zero point are a stored weight."""
    axis, block = formula.attribute("axis", 1), formula.attribute("block_size", 0)
    codes, scale, zero = _operands(formula, 3)
    return coded(codes, scale, zero, axis, formula.node, block)


@rule("activation-range", "DequantizeLinear", f"{MICROSOFT}DequantizeLinear")
def activation_range(make: Rewriter, formula: Formula) -> Operand:
    """A value that is quantized and dequantized by one scale is that value, rounded, in a fixed range."""
    inner, scale, zero = _operands(formula, 3)
    if inner is None or inner.output or inner.operator.removeprefix(MICROSOFT) != "QuantizeLinear":
        return None
    source, other_scale, other_zero = _operands(inner, 3)
    if not _is_positive(scale) or not same_arrays(scale, other_scale):
        return None
    if (zero is None) != (other_zero is None) or not same_arrays(zero, other_zero):
        return None
    if formula.attribute("block_size", 0) or inner.attribute("block_size", 0):
        return None
    make.ranges.add(inner.node)
    return source


@rule("quantized-move", "DequantizeLinear", f"{MICROSOFT}DequantizeLinear")
def quantized_move(make: Rewriter, formula: Formula) -> Operand:
    """Moving codes, or taking the largest of some, and then dequantizing, is the same in the other order."""
    inner, *codes = _operands(formula, 3)
    if inner is None or inner.operator not in MOVES or inner.output or not _is_positive(codes[0]):
        return None
    operands = (inner.operands[0], *codes)
    source = make.apply(formula.operator, operands, formula.attributes, formula.node, epoch=formula.epoch)
    if source.operator == formula.operator:
        return None
    return make.apply(
        inner.operator, (source, *inner.operands[1:]), inner.attributes, inner.node, epoch=inner.epoch
    )


def _is_positive(scale: Operand) -> bool:
    """Return True for one stored scale above zero."""
    array = array_of(scale, 1)
    return array is not None and array.size == 1 and bool(0 < float(array.reshape(-1)[0]) < float("inf"))


@rule("dynamic-product", "Mul")
def dynamic_product(make: Rewriter, formula: Formula) -> Operand:
    """A product of codes, times both scales, is the product of the values."""
    pair = split(formula.operands, _is_integer_product)
    if pair is None or not pair[1].is_op("Mul") or len(pair[1].operands) != 2:
        return None
    product, scales = pair[0].operands[0], pair[1].operands
    left, right, left_zero, right_zero = _operands(product, 4)
    name = product.operator.removesuffix("Integer")
    for one, other in (scales, scales[::-1]):
        first = _factor(left, one, left_zero, name, is_first=True)
        second = _factor(right, other, right_zero, name)
        if first is not None and second is not None:
            epoch = 11 if name == "Conv" else 1
            return make.apply(name, (first, second), product.attributes, product.node, epoch=epoch)
    return None


def _is_integer_product(formula: Operand) -> bool:
    """Return True for the product of codes, cast to floating point."""
    is_cast = formula is not None and formula.is_op("Cast") and formula.attribute("to") == "float"
    inner = formula.operands[0] if is_cast and formula is not None else None
    return inner is not None and inner.operator in ("MatMulInteger", "ConvInteger")


def _factor(codes: Operand, scale: Operand, zero: Operand, name: str, is_first: bool = False) -> Operand:
    """The value of one factor of `MatMul` or `Conv`; None if codes, scale and zero point do not belong together.

    Codes are stored, or DynamicQuantizeLinear makes them of a value while the model runs: its range is that of the value.
    """
    if codes is None or scale is None:
        return None
    if codes.is_op(DYNAMIC):
        source = codes.operands[0]
        is_own = zero is not None and zero.is_op(DYNAMIC, 2) and scale.is_op(DYNAMIC, 1)
        is_own = is_own and zero is not None and zero.operands[0] is scale.operands[0] is source
        return source if is_own else None
    if codes.constant is None or scale.constant is None:
        return None
    dims, axes = scale.constant.dims, len(codes.constant.dims)
    if len(dims) > axes - (name == "MatMul"):
        return None  # the product with the scale has an axis more
    if scale.constant.size != 1 and (is_first or name == "Conv" or len(dims) > 1):
        return None
    return coded(codes, scale, zero, 0 if name == "Conv" else -1, codes.node)


@rule("dynamic-product", f"{MICROSOFT}MatMulIntegerToFloat", f"{MICROSOFT}DynamicQuantizeMatMul")
def fused_dynamic_product(make: Rewriter, formula: Formula) -> Operand:
    """The same as one operator, with a bias; one of both quantizes its first operand itself."""
    if formula.operator.endswith("DynamicQuantizeMatMul"):
        source, right, scale, zero, bias = _operands(formula, 5)
    else:
        left, right, left_scale, scale, left_zero, zero, bias = _operands(formula, 7)
        source = _factor(left, left_scale, left_zero, "MatMul", is_first=True)
        source = None if left is None or left.constant is not None else source
    weight = _factor(right, scale, zero, "MatMul")
    if source is None or weight is None:
        return None
    if bias is not None and (bias.constant is None or len(bias.constant.dims) != 1):
        return None
    return _biased(make, formula, source, weight, bias)


def _biased(make: Rewriter, formula: Formula, source: Operand, weight: Formula, bias: Operand) -> Formula:
    product = make.apply("MatMul", (source, weight), (), formula.node)
    return product if bias is None else make.apply("Add", (product, bias), (), formula.node, epoch=7)


@rule("quantized-rows", "Mul")
def quantized_rows(make: Rewriter, formula: Formula) -> Operand:
    """Rows of codes times the rows of their scales are the rows of the values."""
    pair = split(formula.operands, lambda one: one.is_op("Cast") and one.attribute("to") == "float")
    codes, scales = (pair[0].operands[0], pair[1]) if pair is not None else (None, None)
    if codes is None or scales is None or not (codes.is_op("Gather") and scales.is_op("Gather")):
        return None
    if codes.attributes or scales.attributes or codes.operands[1] is not scales.operands[1]:
        return None
    stored = _plain(codes.operands[0], scales.operands[0])
    if stored is None or stored[0].element != "int8" or len(stored[0].dims) != 2:
        return None
    table, steps = stored
    if steps.dims != (table.dims[0], 1):
        return None
    rows = StoredValue(table.tensor, table.dims, QuantizationParameters(steps.tensor, None, 0))
    return make.apply("Gather", (constant(rows, codes.node), codes.operands[1]), (), formula.node)


@rule("weights-by-blocks", f"{MICROSOFT}MatMulNBits")
def weights_by_blocks(make: Rewriter, formula: Formula) -> Operand:
    """MatMulNBits is MatMul by the matrix that its blocks of codes encode, column by column."""
    source, packed, scales, zeros, order, bias = _operands(formula, 6)
    stored = _plain(packed, scales) if zeros is None else _plain(packed, scales, zeros)
    rows, columns, bits = formula.attribute("K", 0), formula.attribute("N", 0), formula.attribute("bits", 4)
    size = formula.attribute("block_size", 0)
    if stored is None or packed is None or order is not None or size < 16 or bits not in (4, 8):
        return None
    values, steps, blocks = stored[0], stored[1], -(-rows // size)
    if values.element != "uint8" or values.dims != (columns, blocks, size * bits // 8):
        return None
    if steps.size != columns * blocks:
        return None
    points = np.full((columns, blocks), 2 ** (bits - 1), np.uint8)
    if zeros is not None:
        middle, row = stored[2], -(-blocks * bits // 8) * 8 // bits
        if middle.size != columns * row * bits // 8 or middle.element != "uint8":
            return None
        points = read_array(unpacked(middle.tensor, bits, (columns, row)).tensor)[:, :blocks]
    codes = unpacked(values.tensor, bits, (rows, columns), lambda one: one.reshape(columns, -1)[:, :rows].T)
    scale = ir.Tensor(steps.tensor.numpy().reshape(columns, blocks).T, name=steps.tensor.name)
    quantization = QuantizationParameters(scale, ir.Tensor(points.T, name="zero points"), 0, size)
    weight = StoredValue(codes.tensor, codes.dims, quantization)
    return _biased(make, formula, source, constant(weight, packed.node), bias)


@rule("rows-by-blocks", f"{MICROSOFT}GatherBlockQuantized")
def rows_by_blocks(make: Rewriter, formula: Formula) -> Operand:
    """GatherBlockQuantized is Gather from the table that its blocks of codes encode."""
    codes, index, scales, zeros = _operands(formula, 4)
    stored = _plain(codes, scales) if zeros is None else _plain(codes, scales, zeros)
    if codes is None or scales is None or stored is None:
        return None
    table, steps, middle = (*stored, None)[:3]
    if table.element == "uint8":
        bits = formula.attribute("bits", 4)
        if bits not in (4, 8) or not all(part.dims for part in stored):
            return None
        points = np.full(steps.dims, 2 ** (bits - 1), np.uint8)
        if middle is not None:  # each row of zero points begins with a byte of its own
            row = (*middle.dims[:-1], middle.dims[-1] * 8 // bits)
            points = read_array(unpacked(middle.tensor, bits, row).tensor)[..., : steps.dims[-1]]
        zeros = number(points, "zero points")
        table = unpacked(table.tensor, bits, (*table.dims[:-1], table.dims[-1] * 8 // bits))
    axis, size = formula.attribute("quantize_axis", 1), formula.attribute("block_size", 128)
    gathered, rows = formula.attribute("gather_axis", 0), constant(table, codes.node)
    rows = coded(rows, scales, zeros, axis, codes.node, size)
    attributes = (("axis", gathered),) if gathered else ()
    return None if rows is None else make.apply("Gather", (rows, index), attributes, formula.node)


_OPERATORS = {
    "QLinearMatMul": ("MatMul", 1, 2),
    "QLinearConv": ("Conv", 11, 2),
    f"{MICROSOFT}QGemm": ("Gemm", 7, 2),
    f"{MICROSOFT}QLinearAdd": ("Add", 7, 2),
    f"{MICROSOFT}QLinearMul": ("Mul", 7, 2),
    f"{MICROSOFT}QLinearSigmoid": ("Sigmoid", 6, 1),
    f"{MICROSOFT}QLinearLeakyRelu": ("LeakyRelu", 6, 1),
    f"{MICROSOFT}QLinearGlobalAveragePool": ("GlobalAveragePool", 1, 1),
    f"{MICROSOFT}QLinearSoftmax": ("Softmax", 13, 1),
    f"{MICROSOFT}QLinearConcat": ("Concat", 4, 0),
}
"""The operator on values, the version since which it means the same, and how many values it takes (0: any number).

The operands are codes, scale and zero point of each value, then scale and zero point of the result, which come first if
there is any number of values. Conv has a bias behind, Gemm before those of the result.
"""


@rule("quantized-operator", *_OPERATORS)
def quantized_operator(make: Rewriter, formula: Formula) -> Operand:
    """An operator on codes is the operator on their values, quantized. The result of QGemm may be a value already."""
    name, epoch, count = _OPERATORS[formula.operator]
    attributes = dict(formula.attributes)
    if attributes.pop("channels_last", 0):
        return None
    if name == "Softmax" and attributes.pop("axis", -1) != -1:
        if formula.attribute("opset", 13) < 13:
            return None  # it flattens its operand, which is the same over the last axis only
        attributes["axis"] = formula.attribute("axis")
    attributes.pop("opset", None)
    operands = _operands(formula, len(formula.operands) + 9)
    parts, others = operands[: 3 * count], operands[3 * count :]
    if not count:
        parts, others = list(formula.operands[2:]), [*formula.operands[:2], None]
    if len(parts) % 3:
        return None
    bias = others.pop({"Gemm": 0, "Conv": 2}[name]) if name in ("Gemm", "Conv") else None
    axes = {"MatMul": -1, "Conv": 0, "Gemm": 0 if formula.attribute("transB", 0) else -1}
    values: list[Operand] = []
    for at in range(0, len(parts), 3):
        own = (("axis", axes.get(name, 1) if at == 3 else 1),)
        values.append(make.apply("DequantizeLinear", tuple(parts[at : at + 3]), own, formula.node, epoch=10))
    if bias is not None:  # its scale is the product of those of both factors
        first, second = array_of(parts[1], 1), array_of(parts[4], 2**20)
        if first is None or second is None or _plain(bias) is None:
            return None
        steps = (first.reshape(-1) * second.reshape(-1)).astype("float32")
        values.append(
            coded(bias, constant(computed("bias scale", steps)), None, 0, bias.node or formula.node)
        )
        if values[-1] is None:
            return None
    result = make.apply(name, tuple(values), tuple(attributes.items()), formula.node, epoch=epoch)
    scale, zero = others[:2]
    if scale is None and name == "Gemm":
        return result
    return Formula("QuantizeLinear", (result, scale, zero), (), 0, formula.element, formula.node, 10)
