"""The rewrite of operators on codes: each is the operator on their values, quantized."""

from onnxreg.converters.prove.formula import Formula, array_of, computed, constant
from onnxreg.converters.prove.integer_rewrites import MICROSOFT, coded
from onnxreg.converters.prove.rewriter import Rewriter, rule

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
def quantized_operator(make: Rewriter, formula: Formula) -> Formula | None:
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
    if count:
        operands = [*formula.operands, *[None] * 9]
        parts, others = operands[: 3 * count], operands[3 * count :]
    else:
        parts, others = list(formula.operands[2:]), [*formula.operands[:2], None]
    if len(parts) % 3:
        return None
    bias = others.pop({"Gemm": 0, "Conv": 2}[name]) if name in ("Gemm", "Conv") else None
    axes = {"MatMul": -1, "Conv": 0, "Gemm": 0 if formula.attribute("transB", 0) else -1}
    values: list[Formula | None] = []
    for at in range(0, len(parts), 3):
        axis = axes.get(name, 1) if at == 3 else 1
        values.append(
            make.apply(
                "DequantizeLinear", tuple(parts[at : at + 3]), (("axis", axis),), formula.node, epoch=10
            )
        )
    if bias is not None:
        values.append(_bias(bias, parts[1], parts[4], formula.node))
        if values[-1] is None:
            return None
    result = make.apply(name, tuple(values), tuple(attributes.items()), formula.node, epoch=epoch)
    scale, zero = others[:2]
    if scale is None and name == "Gemm":
        return result
    return Formula("QuantizeLinear", (result, scale, zero), (), 0, formula.element, formula.node, 10)


def _bias(bias: Formula, one: Formula | None, other: Formula | None, node: str) -> Formula | None:
    """The values of a bias, whose scale is the product of those of both factors."""
    first, second = array_of(one, 1), array_of(other, 2**20)
    if first is None or second is None or bias.constant is None or bias.constant.views:
        return None
    steps = (first.reshape(-1) * second.reshape(-1)).astype("float32")
    scale = constant(computed("bias scale", steps))
    return coded(bias, scale, None, 0, bias.node or node)
