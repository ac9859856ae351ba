"""The rewrites of operators on codes: each is the operator on their values, quantized."""

from typing import Any

from onnxreg.converters.prove.formula import Formula, array_of, computed, constant
from onnxreg.converters.prove.integer_rewrites import MICROSOFT, coded
from onnxreg.converters.prove.rewriter import Rewriter, rule


@rule("quantized-operator", "QLinearMatMul")
def linear_matmul(make: Rewriter, formula: Formula) -> Formula | None:
    """An operator on codes is the operator on their values, quantized."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (*formula.operands, *[None] * 8)[:8]
    second = _dequantize(make, b, b_scale, b_zero, formula.node, -1)
    product = make.apply(
        "MatMul", (_dequantize(make, a, a_scale, a_zero, formula.node), second), (), formula.node
    )
    return _quantize(product, y_scale, y_zero, formula)


@rule("quantized-operator", "QLinearConv")
def linear_convolution(make: Rewriter, formula: Formula) -> Formula | None:
    """The same for Conv; the scale of its bias is the product of the other two."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = (*formula.operands, *[None] * 9)[:9]
    operands = [
        _dequantize(make, x, x_scale, x_zero, formula.node),
        _dequantize(make, w, w_scale, w_zero, formula.node, 0),
    ]
    if bias is not None:
        value = _bias(bias, x_scale, w_scale, formula.node)
        if value is None:
            return None
        operands.append(value)
    plain = make.apply("Conv", tuple(operands), formula.attributes, formula.node, epoch=11)
    return _quantize(plain, y_scale, y_zero, formula)


@rule("quantized-operator", f"{MICROSOFT}QGemm")
def linear_gemm(make: Rewriter, formula: Formula) -> Formula | None:
    """The same for Gemm; its result may be a value already."""
    a, a_scale, a_zero, b, b_scale, b_zero, bias, y_scale, y_zero = (*formula.operands, *[None] * 9)[:9]
    channel = 0 if formula.attribute("transB", 0) else -1
    operands = [
        _dequantize(make, a, a_scale, a_zero, formula.node),
        _dequantize(make, b, b_scale, b_zero, formula.node, channel),
    ]
    if bias is not None:
        value = _bias(bias, a_scale, b_scale, formula.node)
        if value is None:
            return None
        operands.append(value)
    plain = make.apply("Gemm", tuple(operands), formula.attributes, formula.node, epoch=7)
    return plain if y_scale is None else _quantize(plain, y_scale, y_zero, formula)


@rule("quantized-operator", f"{MICROSOFT}QLinearAdd", f"{MICROSOFT}QLinearMul")
def linear_pair(make: Rewriter, formula: Formula) -> Formula | None:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (*formula.operands, *[None] * 8)[:8]
    name = formula.operator.removeprefix(f"{MICROSOFT}QLinear")
    operands = (
        _dequantize(make, a, a_scale, a_zero, formula.node),
        _dequantize(make, b, b_scale, b_zero, formula.node),
    )
    return _quantize(make.apply(name, operands, (), formula.node, epoch=7), y_scale, y_zero, formula)


_UNARY = {
    "QLinearSigmoid": ("Sigmoid", 6),
    "QLinearLeakyRelu": ("LeakyRelu", 6),
    "QLinearGlobalAveragePool": ("GlobalAveragePool", 1),
}


@rule("quantized-operator", *(f"{MICROSOFT}{name}" for name in _UNARY))
def linear_unary(make: Rewriter, formula: Formula) -> Formula | None:
    x, x_scale, x_zero, y_scale, y_zero = (*formula.operands, *[None] * 5)[:5]
    name, epoch = _UNARY[formula.operator.removeprefix(MICROSOFT)]
    if formula.attribute("channels_last", 0):
        return None
    source = _dequantize(make, x, x_scale, x_zero, formula.node)
    attributes = tuple(item for item in formula.attributes if item[0] != "channels_last")
    return _quantize(
        make.apply(name, (source,), attributes, formula.node, epoch=epoch), y_scale, y_zero, formula
    )


@rule("quantized-operator", f"{MICROSOFT}QLinearSoftmax")
def linear_softmax(make: Rewriter, formula: Formula) -> Formula | None:
    """Before opset 13 Softmax flattens its operand, which is the same over the last axis only."""
    x, x_scale, x_zero, y_scale, y_zero = (*formula.operands, *[None] * 5)[:5]
    axis = formula.attribute("axis", -1)
    if formula.attribute("opset", 13) < 13 and axis != -1:
        return None
    source = _dequantize(make, x, x_scale, x_zero, formula.node)
    attributes = (("axis", axis),) if axis != -1 else ()
    return _quantize(
        make.apply("Softmax", (source,), attributes, formula.node, epoch=13), y_scale, y_zero, formula
    )


@rule("quantized-operator", f"{MICROSOFT}QLinearConcat")
def linear_concat(make: Rewriter, formula: Formula) -> Formula | None:
    y_scale, y_zero, *others = formula.operands
    triples = [others[at : at + 3] for at in range(0, len(others), 3)]
    if any(len(triple) != 3 for triple in triples):
        return None
    parts = tuple(_dequantize(make, codes, scale, zero, formula.node) for codes, scale, zero in triples)
    return _quantize(
        make.apply("Concat", parts, formula.attributes, formula.node, epoch=4), y_scale, y_zero, formula
    )


def _dequantize(make: Rewriter, codes: Any, scale: Any, zero: Any, node: str, axis: int = 1) -> Formula:
    return make.apply("DequantizeLinear", (codes, scale, zero), (("axis", axis),), node, epoch=10)


def _quantize(formula: Formula, scale: Formula | None, zero: Formula | None, source: Formula) -> Formula:
    return Formula("QuantizeLinear", (formula, scale, zero), (), 0, source.element, source.node, 10)


def _bias(bias: Formula, one: Formula | None, other: Formula | None, node: str) -> Formula | None:
    first, second = array_of(one, 1), array_of(other, 2**20)
    if first is None or second is None or bias.constant is None or bias.constant.views:
        return None
    steps = (first.reshape(-1) * second.reshape(-1)).astype("float32")
    scale = constant(computed("bias scale", steps))
    return coded(bias, scale, None, 0, bias.node or node)
