"""Rewrites that remove quantization: they replace codes by values, and operators on codes by operators on values."""

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxreg.converters.prove.formula import Formula, Operand, StoredValue, array_of, constant, number, split
from onnxreg.converters.prove.operators import names
from onnxreg.converters.prove.rewrites import Rewriter, rule

MICROSOFT = "com.microsoft:"
MOVES = names("Expand Flatten Gather GatherElements MaxPool Reshape Slice Squeeze Transpose Unsqueeze")
"""The operators that move, copy or select elements of the first operand, but compute no new values."""
CODES = names("int4 uint4 int8 uint8 int16 uint16 int32")
DYNAMIC = "DynamicQuantizeLinear"


def _plain(*parts: Operand) -> list[StoredValue]:
    """Return the constants of the operands that are not None; [] if any of them is not a plain stored tensor."""
    values = [one.constant for one in parts if one is not None]
    stored = [value for value in values if value is not None and not value.views and not value.is_coded]
    return stored if len(stored) == len(values) else []


def coded(codes: Operand, scale: Operand, zero: Operand, axis: int, block: int = 0) -> Operand:
    """Make a quantized constant from codes, scale and zero point. Return None if they do not fit together."""
    values, parts = codes.constant if codes is not None else None, _plain(scale, zero)
    if codes is None or values is None or values.is_coded or scale is None or not parts:
        return None
    steps, middle = (*parts, None)[:2]
    if steps is None or values.element not in CODES or not steps.is_float:
        return None
    if middle and middle.dims != steps.dims and middle.size != 1:
        return None
    values = replace(values, scale=steps.tensor, zero=middle.tensor if middle else None)
    if steps.size > 1 or block:
        rank = len(values.dims)
        if not -rank <= axis < rank or values.views:
            return None
        axis %= rank
        size = values.dims[axis]
        spread = (*values.dims[:axis], -(-size // block) if block else size, *values.dims[axis + 1 :])
        if steps.dims != spread if block else steps.size != size:
            return None
        values = replace(values, axis=axis, block=block)
    return constant(values, codes.node)


@rule("quantized-constant", "DequantizeLinear", f"{MICROSOFT}DequantizeLinear")
def quantized_constant(_: Rewriter, formula: Formula) -> Operand:
    codes, scale, zero = formula.first(3)
    return coded(codes, scale, zero, formula.attribute("axis", 1), formula.attribute("block_size", 0))


def _codes_and_scale(formula: Formula) -> tuple[Any, Any]:
    """Return `codes` and `scale` of a product `Cast(codes) * scale`; (None, None) for any other product."""
    pair = split(formula.operands, lambda one: one.is_op("Cast") and one.attribute("to") == "float")
    return (pair[0].operands[0], pair[1]) if pair else (None, None)


@rule("cast-codes", "Mul")
def cast_codes(_: Rewriter, formula: Formula) -> Operand:
    """Replace `Cast(codes) * scale` by a quantized constant."""
    codes, scale = _codes_and_scale(formula)
    if codes is None or codes.constant is None or len(codes.constant.dims) < 2:
        return None
    return coded(codes, scale, None, -2, codes.constant.dims[-2])


@rule("activation-range", "DequantizeLinear", f"{MICROSOFT}DequantizeLinear")
def activation_range(make: Rewriter, formula: Formula) -> Operand:
    """Drop a quantization followed by its dequantization. Record that the activation has a fixed range."""
    inner, scale, zero = formula.first(3)
    if inner is None or inner.output or inner.operator.removeprefix(MICROSOFT) != "QuantizeLinear":
        return None
    source, other_scale, other_zero = inner.first(3)
    if not (_is_positive(scale) and same_arrays(scale, other_scale) and same_arrays(zero, other_zero)):
        return None
    if formula.attribute("block_size", 0) or inner.attribute("block_size", 0):
        return None
    make.ranges.add(inner.node)
    return source  # type: ignore[no-any-return]


@rule("quantized-move", "DequantizeLinear", f"{MICROSOFT}DequantizeLinear")
def quantized_move(make: Rewriter, formula: Formula) -> Operand:
    """Replace `Dequantize(Move(codes))` by `Move(Dequantize(codes))`. The operators are in `MOVES`."""
    inner, scale, zero = formula.first(3)
    if inner is None or inner.operator not in MOVES or inner.output or not _is_positive(scale):
        return None
    source = make.like(formula, inner.operands[0], scale, zero)
    if source.operator == formula.operator:
        return None
    return make.like(inner, source, *inner.operands[1:], element=formula.element)


def same_arrays(one: Operand, other: Operand) -> bool:
    """Return True if two formulas are the same object, or constants with the same type and elements."""
    if one is other:
        return True
    a, b = array_of(one), array_of(other)
    if a is None or b is None or a.dtype != b.dtype:
        return False
    return bool(np.array_equal(a.reshape(-1), b.reshape(-1)))


def _is_positive(scale: Operand) -> bool:
    array = array_of(scale, 1)
    return array is not None and array.size == 1 and bool(0 < float(array.reshape(-1)[0]) < float("inf"))


@rule("dynamic-product", "Mul")
def dynamic_product(make: Rewriter, formula: Formula) -> Operand:
    """Replace `Cast(product of codes) * (scale * scale)` by the product of the values."""
    product, scales = _codes_and_scale(formula)
    if product is None or product.operator not in ("MatMulInteger", "ConvInteger") or not scales.is_op("Mul"):
        return None
    left, right, left_zero, right_zero = product.first(4)
    name = product.operator.removesuffix("Integer")
    for one, other in (scales.operands, scales.operands[::-1]):
        first = _factor(left, one, left_zero, name, is_first=True)
        second = _factor(right, other, right_zero, name)
        if first is not None and second is not None:
            return make.op(name, first, second, node=product.node, **dict(product.attributes))
    return None


def _factor(codes: Operand, scale: Operand, zero: Operand, name: str, is_first: bool = False) -> Operand:
    """Return the values that an operand of a MatMul or Conv encodes. Return None if scale or zero point do not fit."""
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
        return None  # the scale would add an axis
    if scale.constant.size != 1 and (is_first or name == "Conv" or len(dims) > 1):
        return None
    return coded(codes, scale, zero, 0 if name == "Conv" else -1)


@rule("dynamic-product", f"{MICROSOFT}MatMulIntegerToFloat", f"{MICROSOFT}DynamicQuantizeMatMul")
def fused_dynamic_product(make: Rewriter, formula: Formula) -> Operand:
    """Replace a fused product of codes by a MatMul of the values, and an Add of the bias."""
    if formula.operator.endswith("DynamicQuantizeMatMul"):
        source, right, scale, zero, bias = formula.first(5)
    else:
        left, right, left_scale, scale, left_zero, zero, bias = formula.first(7)
        source = _factor(left, left_scale, left_zero, "MatMul", is_first=True)
    weight = _factor(right, scale, zero, "MatMul")
    if source is None or weight is None:
        return None
    if bias is not None and (bias.constant is None or len(bias.constant.dims) != 1):
        return None
    return make.plus(make.op("MatMul", source, weight), bias)


@rule("quantized-rows", "Mul")
def quantized_rows(make: Rewriter, formula: Formula) -> Operand:
    """Replace `Cast(Gather(codes, rows)) * Gather(scales, rows)` by `Gather(values, rows)`."""
    codes, scales = _codes_and_scale(formula)
    if codes is None or not (codes.is_op("Gather") and scales.is_op("Gather")):
        return None
    if codes.attributes or scales.attributes or codes.operands[1] is not scales.operands[1]:
        return None
    table, steps = codes.operands[0], scales.operands[0]
    if table is None or steps is None or table.element != "int8" or len(_plain(table, steps)) < 2:
        return None
    rows = coded(table, steps, None, 0)
    dims = make.shapes.dims(table) or ()
    is_by_rows = rows is not None and len(dims) == 2 and make.shapes.dims(steps) == (dims[0], 1)
    return make.op("Gather", rows, codes.operands[1]) if is_by_rows else None


def unpacked(tensor: ir.TensorProtocol, bits: int, dims: tuple[int, ...]) -> StoredValue:
    """Make a constant of shape `dims` from packed codes of 4 or 8 bits. The low half of a byte is the first code."""
    kind = ir.DataType.UINT8 if bits == 8 else ir.DataType.UINT4

    def read() -> ir.TensorProtocol:  # at each read, to save memory
        codes = tensor.numpy()
        codes = codes if bits == 8 else np.stack([codes & 0xF, codes >> 4], axis=-1)
        return ir.Tensor(codes.reshape(*dims[:-1], -1)[..., : dims[-1]], kind)

    return StoredValue(ir.LazyTensor(read, kind, ir.Shape(dims), name=tensor.name), dims)


def _by_blocks(
    packed: Formula, scale: Operand, zero: Operand, bits: int, dims: tuple[int, ...], axis: int, size: int
) -> Operand:
    """Make a quantized constant from packed codes. `size` codes along `axis` have the same scale."""
    codes, steps, *middle = _plain(packed, scale, zero) or (None, None)
    if codes is None or steps is None or not steps.dims:
        return None
    points = number("zero points", np.full(steps.dims, 2 ** (bits - 1)), np.uint8)
    for one in middle:
        if one.element != "uint8" or one.size != prod(steps.dims[:-1]) * -(-steps.dims[-1] * bits // 8):
            return None
        points = constant(unpacked(one.tensor, bits, steps.dims))
    return coded(constant(unpacked(codes.tensor, bits, dims), packed.node), scale, points, axis, size)


@rule("weights-by-blocks", f"{MICROSOFT}MatMulNBits")
def weights_by_blocks(make: Rewriter, formula: Formula) -> Operand:
    source, packed, scale, zero, order, bias = formula.first(6)
    rows, columns, bits = formula.attribute("K", 0), formula.attribute("N", 0), formula.attribute("bits", 4)
    size, stored = formula.attribute("block_size", 0), _plain(packed, scale)
    if len(stored) != 2 or order is not None or bits not in (4, 8):
        return None
    codes, steps = stored
    blocks = -(-rows // size)
    if (codes.element, codes.dims) != ("uint8", (columns, blocks, size * bits // 8)):
        return None
    scale = number(scale.node, steps.tensor.numpy().reshape(columns, blocks), None)
    weight = _by_blocks(packed, scale, zero, bits, (columns, rows), 1, size)
    return weight and make.plus(make.op("MatMul", source, make.op("Transpose", weight, perm=(1, 0))), bias)


@rule("rows-by-blocks", f"{MICROSOFT}GatherBlockQuantized")
def rows_by_blocks(make: Rewriter, formula: Formula) -> Operand:
    codes, index, scale, zero = formula.first(4)
    bits, stored = formula.attribute("bits", 4), _plain(codes)
    axis, size = formula.attribute("quantize_axis", 1), formula.attribute("block_size", 128)
    if not stored or not stored[0].dims or bits not in (4, 8):
        return None
    if stored[0].element == "uint8":
        *first, row = stored[0].dims
        rows = _by_blocks(codes, scale, zero, bits, (*first, row * 8 // bits), axis, size)
    else:
        rows = coded(codes, scale, zero, axis, size)
    gathered = formula.attribute("gather_axis", 0)
    return rows and make.op("Gather", rows, index, **({"axis": gathered} if gathered else {}))


_UNARY = ("Sigmoid", "LeakyRelu", "GlobalAveragePool", "Softmax")
_OPERATORS = {
    "QLinearMatMul": 2,
    "QLinearConv": 2,
    f"{MICROSOFT}QGemm": 2,
    f"{MICROSOFT}QLinearAdd": 2,
    f"{MICROSOFT}QLinearMul": 2,
    f"{MICROSOFT}QLinearConcat": 0,
    **dict.fromkeys((f"{MICROSOFT}QLinear{name}" for name in _UNARY), 1),
}
"""The operators on codes, with the number of their quantized inputs; 0 means any number."""


@rule("quantized-operator", *_OPERATORS)
def quantized_operator(make: Rewriter, formula: Formula) -> Operand:
    """Replace an operator on codes by one on values. If the replaced operator returns codes, add a QuantizeLinear."""
    name, count = formula.operator.rpartition("Q")[2].removeprefix("Linear"), _OPERATORS[formula.operator]
    attributes: dict[str, Any] = dict(formula.attributes)
    if attributes.pop("channels_last", 0) or (name == "Softmax" and attributes.pop("axis", -1) != -1):
        return None
    attributes.pop("opset", None)
    operands = formula.first(len(formula.operands) + 9)
    parts, others = operands[: 3 * count], operands[3 * count :]
    if not count:  # scale and zero point of the result come first
        parts, others = list(formula.operands[2:]), operands[:2]
    axes = {"MatMul": -1, "Conv": 0, "Gemm": 0 if formula.attribute("transB", 0) else -1}
    values: list[Operand] = []
    for at in range(0, len(parts), 3):
        axis = axes.get(name, 1) if at == 3 else 1
        values.append(make.op("DequantizeLinear", *parts[at : at + 3], axis=axis))
    if name in ("Gemm", "Conv") and (bias := others.pop({"Gemm": 0, "Conv": 2}[name])) is not None:
        first, second = array_of(parts[1], 1), array_of(parts[4], 2**20)
        if first is None or second is None or not _plain(bias):
            return None
        values.append(coded(bias, number("bias scale", first.reshape(-1) * second.reshape(-1)), None, 0))
        if values[-1] is None:
            return None
    result = make.op(name, *values, **attributes)
    scale, zero = others[:2]
    if scale is None and name == "Gemm":
        return result
    return Formula("QuantizeLinear", (result, scale, zero), (), 0, formula.element, formula.node, 10)
