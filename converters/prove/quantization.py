"""The rewrites that erase quantization: codes become the values that they encode, operators on codes operators on values."""

from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxreg.converters.prove.formula import (
    Formula,
    QuantizationParameters,
    StoredValue,
    array_of,
    constant,
    number,
    read_array,
    same_arrays,
    split,
    unpacked,
)
from onnxreg.converters.prove.operators import names
from onnxreg.converters.prove.rewrites import Rewriter, rule

MICROSOFT = "com.microsoft:"
MOVES = names("Expand Flatten Gather GatherElements MaxPool Reshape Slice Squeeze Transpose Unsqueeze")
"""Operators that move elements of the first operand, or choose the largest of several elements."""
CODES = names("int4 uint4 int8 uint8 int16 uint16 int32")
DYNAMIC = "DynamicQuantizeLinear"
Operand = Formula | None


def _operands(formula: Formula, count: int) -> list[Any]:
    """The first `count` operands, with None for each absent operand."""
    return [*formula.operands, *[None] * count][:count]


def _plain(*parts: Operand) -> list[StoredValue]:
    """The constants of these operands without the absent ones; empty unless all are unquantized constants without views."""
    values = [one.constant for one in parts if one is not None]
    stored = [value for value in values if value is not None and not value.views and not value.quantization]
    return stored if len(stored) == len(values) else []


def coded(codes: Operand, scale: Operand, zero: Operand, axis: int, node: str, block: int = 0) -> Operand:
    """A quantized constant; None unless scale and zero point are plain constants, and fit the codes. Codes may have views."""
    values, parts = codes.constant if codes is not None else None, _plain(scale, zero)
    if values is None or values.quantization or scale is None or not parts:
        return None
    steps, middle = (*parts, None)[:2]
    if steps is None or values.element not in CODES or not steps.is_float:
        return None
    if middle and middle.dims != steps.dims and middle.size != 1:
        return None
    rank, quantization = (
        len(values.dims),
        QuantizationParameters(steps.tensor, middle.tensor if middle else None),
    )
    if steps.size > 1 or block:
        if not -rank <= axis < rank or values.views:
            return None
        axis %= rank
        size = values.dims[axis]
        spread = (*values.dims[:axis], -(-size // block) if block else size, *values.dims[axis + 1 :])
        if steps.dims != spread if block else steps.size != size:
            return None
        quantization = replace(quantization, axis=axis, block=block)
    return constant(replace(values, quantization=quantization), node)


@rule("quantized-constant", "DequantizeLinear", f"{MICROSOFT}DequantizeLinear")
def quantized_constant(_: Rewriter, formula: Formula) -> Operand:
    """Replace stored codes with a scale and a zero point by a quantized constant."""
    axis, block = formula.attribute("axis", 1), formula.attribute("block_size", 0)
    codes, scale, zero = _operands(formula, 3)
    return coded(codes, scale, zero, axis, formula.node, block)


@rule("activation-range", "DequantizeLinear", f"{MICROSOFT}DequantizeLinear")
def activation_range(make: Rewriter, formula: Formula) -> Operand:
    """Replace a value that is quantized and dequantized with the same scale by the value, and record a static range."""
    inner, scale, zero = _operands(formula, 3)
    if inner is None or inner.output or inner.operator.removeprefix(MICROSOFT) != "QuantizeLinear":
        return None
    source, other_scale, other_zero = _operands(inner, 3)
    if not (_is_positive(scale) and same_arrays(scale, other_scale) and same_arrays(zero, other_zero)):
        return None
    if formula.attribute("block_size", 0) or inner.attribute("block_size", 0):
        return None
    make.ranges.add(inner.node)
    return source  # type: ignore[no-any-return]


@rule("quantized-move", "DequantizeLinear", f"{MICROSOFT}DequantizeLinear")
def quantized_move(make: Rewriter, formula: Formula) -> Operand:
    """Swap a move of codes (or a choice of the largest) with the dequantization behind the move."""
    inner, *codes = _operands(formula, 3)
    if inner is None or inner.operator not in MOVES or inner.output or not _is_positive(codes[0]):
        return None
    source = make.like(formula, (inner.operands[0], *codes))
    if source.operator == formula.operator:
        return None
    return make.like(replace(inner, element=formula.element), (source, *inner.operands[1:]))


def _is_positive(scale: Operand) -> bool:
    """Return True for a single stored scale above zero."""
    array = array_of(scale, 1)
    return array is not None and array.size == 1 and bool(0 < float(array.reshape(-1)[0]) < float("inf"))


@rule("dynamic-product", "Mul")
def dynamic_product(make: Rewriter, formula: Formula) -> Operand:
    """Replace a product of codes, times both scales, by the product of the values."""
    pair = split(formula.operands, _is_integer_product)
    if pair is None or pair[0].operands[0] is None or not pair[1].is_op("Mul"):
        return None
    product, scales = pair[0].operands[0], pair[1].operands
    left, right, left_zero, right_zero = _operands(product, 4)
    name = product.operator.removesuffix("Integer")
    for one, other in (scales, scales[::-1]):
        first = _factor(left, one, left_zero, name, is_first=True)
        second = _factor(right, other, right_zero, name)
        if first is not None and second is not None:
            return make.op(name, first, second, node=product.node, attributes=product.attributes)
    return None


def _is_integer_product(formula: Formula) -> bool:
    """Return True for a product of codes that is cast to float32."""
    inner = formula.operands[0] if formula.is_op("Cast") and formula.attribute("to") == "float" else None
    return inner is not None and inner.operator in ("MatMulInteger", "ConvInteger")


def _factor(codes: Operand, scale: Operand, zero: Operand, name: str, is_first: bool = False) -> Operand:
    """A factor of `MatMul` or `Conv`, stored or quantized while the model runs; None if codes, scale and zero do not fit."""
    if codes is None or scale is None:
        return None
    if codes.is_op(DYNAMIC):
        source = codes.operands[0]
        is_own = zero is not None and zero.is_op(DYNAMIC, 2) and scale.is_op(DYNAMIC, 1)
        return source if is_own and zero and zero.operands[0] is scale.operands[0] is source else None
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
    """Replace a fused product of codes by the product of the values, plus the bias; one operator also quantizes a factor."""
    if formula.operator.endswith("DynamicQuantizeMatMul"):
        source, right, scale, zero, bias = _operands(formula, 5)
    else:
        left, right, left_scale, scale, left_zero, zero, bias = _operands(formula, 7)
        is_dynamic = left is not None and left.is_op(DYNAMIC)
        source = _factor(left, left_scale, left_zero, "MatMul") if is_dynamic else None
    weight = _factor(right, scale, zero, "MatMul")
    if source is None or weight is None:
        return None
    if bias is not None and (bias.constant is None or len(bias.constant.dims) != 1):
        return None
    return _biased(make, formula, source, weight, bias)


def _biased(make: Rewriter, formula: Formula, source: Operand, weight: Formula, bias: Operand) -> Formula:
    product = make.op("MatMul", source, weight, node=formula.node)
    return product if bias is None else make.op("Add", product, bias, node=formula.node)


@rule("quantized-rows", "Mul")
def quantized_rows(make: Rewriter, formula: Formula) -> Operand:
    """Replace rows of codes, times the rows of their scales, by the rows of the values."""
    pair = split(formula.operands, lambda one: one.is_op("Cast") and one.attribute("to") == "float")
    codes, scales = (pair[0].operands[0], pair[1]) if pair is not None else (None, None)
    if codes is None or scales is None or not (codes.is_op("Gather") and scales.is_op("Gather")):
        return None
    if codes.attributes or scales.attributes or codes.operands[1] is not scales.operands[1]:
        return None
    table, steps = codes.operands[0], scales.operands[0]
    if table is None or steps is None or table.element != "int8" or len(_plain(table, steps)) < 2:
        return None
    rows = coded(table, steps, None, 0, codes.node)
    dims = make.shapes.dims(table) or ()
    is_by_rows = rows is not None and len(dims) == 2 and make.shapes.dims(steps) == (dims[0], 1)
    return make.op("Gather", rows, codes.operands[1], node=formula.node) if is_by_rows else None


@rule("weights-by-blocks", f"{MICROSOFT}MatMulNBits")
def weights_by_blocks(make: Rewriter, formula: Formula) -> Operand:
    """Replace MatMulNBits by MatMul with the matrix that the blocks of codes encode, column by column."""
    source, packed, scales, zeros, order, bias = _operands(formula, 6)
    rows, columns, bits = formula.attribute("K", 0), formula.attribute("N", 0), formula.attribute("bits", 4)
    size, stored = formula.attribute("block_size", 0), _plain(packed, scales, zeros)
    if not stored or order is not None or bits not in (4, 8):
        return None
    values, steps, *middle = stored
    blocks = -(-rows // size)
    row = -(-blocks * bits // 8)
    if values.dims != (columns, blocks, size * bits // 8) or steps.size != columns * blocks:
        return None
    if any(one.element != "uint8" for one in (values, *middle)) or any(
        one.size != columns * row for one in middle
    ):
        return None
    points = np.full((columns, blocks), 2 ** (bits - 1), np.uint8)
    for one in middle:
        points = read_array(unpacked(one.tensor, bits, (columns, row * 8 // bits)).tensor)[:, :blocks]
    codes = unpacked(values.tensor, bits, (rows, columns), lambda one: one.reshape(columns, -1)[:, :rows].T)
    scale = ir.Tensor(steps.tensor.numpy().reshape(columns, blocks).T, name=steps.tensor.name)
    quantization = QuantizationParameters(scale, ir.Tensor(points.T, name="zero points"), 0, size)
    weight = constant(replace(codes, quantization=quantization), packed.node)
    return _biased(make, formula, source, weight, bias)


@rule("rows-by-blocks", f"{MICROSOFT}GatherBlockQuantized")
def rows_by_blocks(make: Rewriter, formula: Formula) -> Operand:
    """Replace GatherBlockQuantized by Gather from the table that the blocks of codes encode."""
    codes, index, scales, zeros = _operands(formula, 4)
    bits, stored = formula.attribute("bits", 4), _plain(codes, scales, zeros)
    if not stored or bits not in (4, 8) or not all(part.dims for part in stored):
        return None
    table, steps, *middle = stored
    if table.element == "uint8":
        points = np.full(steps.dims, 2 ** (bits - 1), np.uint8)
        for one in middle:  # each row of zero points begins with a byte of its own
            row = (*one.dims[:-1], one.dims[-1] * 8 // bits)
            points = read_array(unpacked(one.tensor, bits, row).tensor)[..., : steps.dims[-1]]
        zeros = number(points, "zero points")
        table = unpacked(table.tensor, bits, (*table.dims[:-1], table.dims[-1] * 8 // bits))
    axis, size = formula.attribute("quantize_axis", 1), formula.attribute("block_size", 128)
    rows = coded(constant(table, codes.node), scales, zeros, axis, codes.node, size)
    gathered = formula.attribute("gather_axis", 0)
    attributes = (("axis", gathered),) if gathered else ()
    return rows and make.op("Gather", rows, index, node=formula.node, attributes=attributes)


_OPERATORS = {
    "QLinearMatMul": ("MatMul", 2),
    "QLinearConv": ("Conv", 2),
    f"{MICROSOFT}QGemm": ("Gemm", 2),
    f"{MICROSOFT}QLinearAdd": ("Add", 2),
    f"{MICROSOFT}QLinearMul": ("Mul", 2),
    f"{MICROSOFT}QLinearSigmoid": ("Sigmoid", 1),
    f"{MICROSOFT}QLinearLeakyRelu": ("LeakyRelu", 1),
    f"{MICROSOFT}QLinearGlobalAveragePool": ("GlobalAveragePool", 1),
    f"{MICROSOFT}QLinearSoftmax": ("Softmax", 1),
    f"{MICROSOFT}QLinearConcat": ("Concat", 0),
}
"""The operator on values for an operator on codes, and the number of values (0: any number).

The operands are codes, scale and zero point of each value, then scale and zero point of the result; for any number
of values, the result's come first. The bias of Conv is the last operand, the bias of Gemm is before the result's scale.
"""


@rule("quantized-operator", *_OPERATORS)
def quantized_operator(make: Rewriter, formula: Formula) -> Operand:
    """Replace an operator on codes by the operator on values, then quantize the result, unless QGemm gives values."""
    name, count = _OPERATORS[formula.operator]
    attributes, node = dict(formula.attributes), formula.node
    if attributes.pop("channels_last", 0) or (name == "Softmax" and attributes.pop("axis", -1) != -1):
        return None
    attributes.pop("opset", None)
    operands = _operands(formula, len(formula.operands) + 9)
    parts, others = operands[: 3 * count], operands[3 * count :]
    if not count:
        parts, others = list(formula.operands[2:]), operands[:2]
    axes = {"MatMul": -1, "Conv": 0, "Gemm": 0 if formula.attribute("transB", 0) else -1}
    values: list[Operand] = []
    for at in range(0, len(parts), 3):
        own = (("axis", axes.get(name, 1) if at == 3 else 1),)
        values.append(make.op("DequantizeLinear", *parts[at : at + 3], node=node, attributes=own))
    if name in ("Gemm", "Conv") and (bias := others.pop({"Gemm": 0, "Conv": 2}[name])) is not None:
        first, second = array_of(parts[1], 1), array_of(parts[4], 2**20)
        if first is None or second is None or not _plain(bias):
            return None
        steps = number((first.reshape(-1) * second.reshape(-1)).astype("float32"), "bias scale")
        values.append(coded(bias, steps, None, 0, bias.node or node))
        if values[-1] is None:
            return None
    result = make.op(name, *values, node=node, attributes=tuple(attributes.items()))
    scale, zero = others[:2]
    if scale is None and name == "Gemm":
        return result
    return Formula("QuantizeLinear", (result, scale, zero), (), 0, formula.element, node, 10)
