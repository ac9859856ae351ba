"""Operators of ONNX across versions: since when one means the same, its default attributes, its element types."""

from collections.abc import Mapping, Sequence
from typing import Any

from onnxreg.converters.onnx.graph_operators import DEFAULT_DOMAIN, find_schema
from onnxreg.converters.onnx.tensors import ELEMENTS
from onnxreg.converters.prove.formula import Formula

CONTRIB = "com.microsoft"
_RANDOM = """
Bernoulli BiasDropout BitmaskBiasDropout BitmaskDropout Dropout Multinomial RandomNormal RandomNormalLike RandomUniform
RandomUniformLike Sampling
"""
RANDOM = frozenset(_RANDOM.split())
"""Operators whose results may differ from run to run: two nodes of them never compute the same.

`rewrites.dropout` erases a Dropout that passes its input on, so this one is another.
"""

_SINCE = """
Abs 6, Acos 7, Acosh 9, Add 7, And 7, ArgMax 12, ArgMin 12, Asin 7, Atan 7, BatchNormalization 9, Cast 9, Ceil 6,
Celu 12, Clip 11, Concat 4, ConstantOfShape 9, Conv 11, ConvTranspose 11, Cos 7, CumSum 11, DepthToSpace 11, Div 7,
Dropout 12, Einsum 12, Elu 6, Equal 7, Erf 9, Exp 6, Expand 8, EyeLike 9, Flatten 9, Floor 6, GRU 7, Gather 1,
GatherElements 11, GatherND 12, Gelu 20, Gemm 7, GlobalAveragePool 1, GlobalMaxPool 1, Greater 7, GreaterOrEqual 12,
HardSigmoid 6, HardSwish 14, Hardmax 13, Identity 1, If 1, InstanceNormalization 6, IsInf 10, IsNaN 9, LRN 1, LSTM 7,
LayerNormalization 17, LeakyRelu 6, Less 7, LessOrEqual 12, Log 6, LogSoftmax 13, Loop 11, MatMul 1, Max 8, MaxPool 10,
Mean 8, Min 8, Mish 18, Mod 10, Mul 7, Neg 6, NonZero 9, Not 1, OneHot 11, Or 7, PRelu 9, Pad 11, Pow 7, Range 11,
Reciprocal 6, ReduceL1 1, ReduceL2 1, ReduceMax 1, ReduceMean 1, ReduceMin 1, ReduceProd 1, ReduceSum 1,
ReduceSumSquare 1, Relu 6, Reshape 5, Round 11, Scan 9, ScatterElements 11, ScatterND 11, Selu 6, Shape 1, Sigmoid 6,
Sign 9, Sin 7, Size 1, Slice 10, Softmax 13, Softplus 1, Softsign 1, Split 1, Sqrt 6, Squeeze 1, Sub 7, Sum 8, Tan 7,
Tanh 6, ThresholdedRelu 10, Tile 6, TopK 11, Transpose 1, Trilu 14, Unsqueeze 1, Where 9, Xor 7
"""
SINCE: Mapping[str, int] = {
    name: int(version) for name, version in (item.split() for item in _SINCE.replace("\n", " ").split(","))
}
"""The version of an operator since which later ones only add element types, optional operands and attributes."""
_AXES = (
    "ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Squeeze Unsqueeze"
)
MOVED = dict.fromkeys(_AXES.split(), "axes") | {"Split": "split"}
"""Attributes that later versions of an operator take as their second operand."""

_UNARY = """
Abs Cast Ceil Clip Cos Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Log Neg Not Reciprocal Relu Round Sigmoid
Sign Sin Softplus Sqrt Tanh
"""
UNARY = frozenset(_UNARY.split())
"""Operators on each element of their first operand; the others are numbers."""
_ELEMENTWISE = "Add And Div Equal Greater GreaterOrEqual Less LessOrEqual Max Min Mul Or Pow Sub Where Xor"
ELEMENTWISE = frozenset(_ELEMENTWISE.split())
"""Operators on the elements of operands of one shape, or of shapes that broadcast, from version 7 on."""


def epoch(domain: str, name: str, version: int) -> int:
    """The version since which an operator of an operator set means what it means in this one.

    com.microsoft has one version; of other domains nothing is known.
    """
    if domain == CONTRIB:
        return 1
    schema = find_schema(domain, name, version)
    since = int(schema.since_version) if schema else version
    first = SINCE.get(name) if domain == DEFAULT_DOMAIN else None
    return first if first is not None and since >= first else since


def depends_on_output_count(domain: str, name: str, version: int) -> bool:
    """Return True if one result of an operator may depend on how many outputs the node has.

    Split divides by it, BatchNormalization before version 14 trains if there are more than one; of operators that onnx
    does not know it may always.
    """
    schema = find_schema(domain, name, version)
    if schema is None:
        return True
    is_variadic = any(_is_variadic(output) for output in schema.outputs)
    return is_variadic or (name == "BatchNormalization" and schema.since_version < 14)


def is_random(formula: Formula) -> bool:
    """Return True for an operator of `RANDOM`, or one of any domain that has a seed."""
    return formula.operator.rpartition(":")[2] in RANDOM or formula.attribute("seed") is not None


def default_attributes(domain: str, name: str, version: int) -> dict[str, Any]:
    """The values that absent attributes have, as far as they are known."""
    if domain == CONTRIB:
        return dict(_CONTRIB_DEFAULTS.get(name, {}))
    schema = find_schema(domain, name, version)
    if schema is None:
        return {}
    fields = {1: "f", 2: "i", 3: "s"}
    stated = [(one.name, one.default_value) for one in schema.attributes.values()]
    return {name: getattr(value, fields[value.type]) for name, value in stated if value.type in fields}


_CONTRIB_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "MatMulNBits": {"accuracy_level": 0, "bits": 4},
    "FusedMatMul": {"alpha": 1.0, "transA": 0, "transB": 0, "transBatchA": 0, "transBatchB": 0},
}


_LIKE_FIRST = """
Attention BiasAdd BiasGelu BiasSoftmax FastGelu FusedConv FusedGemm FusedMatMul Gelu GroupQueryAttention MatMulNBits
MultiHeadAttention NhwcConv NhwcFusedConv Pad QLinearAdd QLinearGlobalAveragePool QLinearLeakyRelu QLinearMul QLinearSigmoid
QLinearSoftmax QuickGelu RotaryEmbedding SkipLayerNormalization SkipSimplifiedLayerNormalization
"""
_CONTRIB_RESULTS: Mapping[str, int] = {
    **dict.fromkeys(_LIKE_FIRST.split(), 0),
    "DequantizeLinear": 1,
    "EmbedLayerNormalization": 2,
    "GatherBlockQuantized": 2,
    "MatMulIntegerToFloat": 2,
    "QAttention": 2,
    "QLinearWhere": 1,
    "QuantizeLinear": 2,
}
"""The operand of a contrib operator whose element type its first output has. Of other outputs no type is known."""


def result_types(
    domain: str, name: str, version: int, operands: Sequence[Formula | None], to: int = 0, count: int = 1
) -> list[str]:
    """The element type of each output, "" if it is not known.

    Args:
        to: the number of a Cast's target type.
        count: the number of outputs.
    """
    if domain == CONTRIB:
        return [_element(operands, _CONTRIB_RESULTS.get(name, len(operands)))]
    schema = find_schema(domain, name, version)
    if schema is None:
        return []
    if name == "Cast" and domain == DEFAULT_DOMAIN:
        return [ELEMENTS[to].name if to in ELEMENTS else ""]
    if name == "ConstantOfShape" and domain == DEFAULT_DOMAIN:
        return [_element(operands, 1) if len(operands) > 1 else "float32"]
    bound = _bound_types(schema, operands)
    kinds = [
        bound.get(one.type_str, _plain_type(one.type_str)) if one.is_homogeneous else ""
        for one in schema.outputs
    ]
    more = kinds[-1:] if schema.outputs and _is_variadic(schema.outputs[-1]) else []
    return kinds + more * (count - len(kinds))


def result_type(operator: str, version: int, operands: Sequence[Formula | None], output: int) -> str:
    """The same for one output of an operator with its domain in front."""
    domain, _, name = operator.rpartition(":")
    kinds = result_types(domain or DEFAULT_DOMAIN, name, version, operands, count=output + 1)
    return kinds[output] if output < len(kinds) else ""


def _bound_types(schema: Any, operands: Sequence[Formula | None]) -> dict[str, str]:
    """The element type that each type parameter has, by the operands of known type."""
    single = (one for one in schema.type_constraints if len(one.allowed_type_strs) == 1)
    bound = {one.type_param_str: _plain_type(one.allowed_type_strs[0]) for one in single}
    parameters = list(schema.inputs)
    for index in range(len(operands) if parameters else 0):
        parameter = parameters[min(index, len(parameters) - 1)]
        is_there = index < len(parameters) or _is_variadic(parameter)
        element = _element(operands, index)
        if parameter.is_homogeneous and is_there and element:
            bound.setdefault(parameter.type_str, element)
    return bound


def _element(operands: Sequence[Formula | None], index: int) -> str:
    operand = operands[index] if index < len(operands) else None
    return operand.element if operand is not None else ""


def _is_variadic(parameter: Any) -> bool:
    return bool(parameter.option == type(parameter.option).Variadic)


def _plain_type(text: str) -> str:
    """`int64` of `tensor(int64)`."""
    name = text.removeprefix("tensor(").removesuffix(")") if text.startswith("tensor(") else ""
    return {"float": "float32", "double": "float64"}.get(name, name)
