"""Facts about ONNX operators: versions with the same meaning, default attributes, and element types of results."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from onnxreg.converters.onnx.onnx_graph import DEFAULT_DOMAIN, find_schema, is_variadic
from onnxreg.converters.onnx.tensors import ELEMENTS, FLOATS
from onnxreg.converters.prove.formula import Formula

CONTRIB = "com.microsoft"


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


RANDOM = names(
    "Bernoulli BiasDropout BitmaskBiasDropout BitmaskDropout Dropout Multinomial RandomNormal RandomNormalLike"
    " RandomUniform RandomUniformLike Sampling"
)
"""The operators whose results may differ from run to run."""

_SINCE = """
Abs 6, Acos 7, Acosh 9, Add 7, And 7, ArgMax 12, ArgMin 12, Asin 7, Atan 7, BatchNormalization 9, Cast 9, Ceil 6,
Celu 12, Clip 11, Concat 4, ConstantOfShape 9, Conv 11, ConvTranspose 11, Cos 7, CumSum 11, DepthToSpace 11, DequantizeLinear 10, Div 7,
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
SINCE: Mapping[str, int] = {name: int(version) for name, version in map(str.split, _SINCE.split(","))}
"""The oldest version of each operator that means the same as today's. Later versions only add types or options."""
REDUCTIONS = tuple(name for name in SINCE if name.startswith("Reduce"))
MOVED = dict.fromkeys((*REDUCTIONS, "Squeeze", "Unsqueeze"), "axes") | {"Split": "split"}
"""The attributes that became the second operand in a later version."""

UNARY = names(
    "Abs Cast Ceil Clip Cos Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Log Neg Not Reciprocal Relu Round"
    " Sigmoid Sign Sin Softplus Sqrt Tanh"
)
"""The operators that map each element of the first operand. Other operands are scalars."""
ELEMENTWISE = names(
    "Add And Div Equal Greater GreaterOrEqual Less LessOrEqual Max Min Mul Or Pow Sub Where Xor"
)
"""The operators that compute element `i` of the result from element `i` of each operand. Shapes may broadcast."""


def epoch(domain: str, name: str, version: int) -> int:
    """Return the oldest version in which an operator means the same as in `version`."""
    if domain == CONTRIB:
        return 1
    schema = find_schema(domain, name, version)
    since = int(schema.since_version) if schema else version
    first = SINCE.get(name, since) if domain == DEFAULT_DOMAIN else since
    return min(first, since)


def depends_on_output_count(domain: str, name: str, version: int) -> bool:
    """Return True if the results of an operator may depend on how many outputs its node has."""
    schema, is_training = find_schema(domain, name, version), name == "BatchNormalization" and version < 14
    return schema is None or is_training or any(map(is_variadic, schema.outputs))


def default_attributes(domain: str, name: str, version: int) -> Mapping[str, Any]:
    """Return the known defaults of an operator's attributes."""
    schema = find_schema(domain, name, version)
    if schema is None:
        return _CONTRIB_DEFAULTS.get(name, {}) if domain == CONTRIB else {}
    fields = {1: "f", 2: "i", 3: "s"}
    stated = [(one.name, one.default_value) for one in schema.attributes.values()]
    return {name: getattr(value, fields[value.type]) for name, value in stated if value.type in fields}


_CONTRIB_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "MatMulNBits": {"accuracy_level": 0, "bits": 4},
    "FusedMatMul": {"alpha": 1.0, "transA": 0, "transB": 0, "transBatchA": 0, "transBatchB": 0},
}
CONTRIB_FLOATS = names(
    "Attention BiasAdd BiasGelu BiasSoftmax DequantizeLinear EmbedLayerNormalization FastGelu FusedConv FusedGemm"
    " FusedMatMul GatherBlockQuantized Gelu GroupQueryAttention MatMulIntegerToFloat MatMulNBits MultiHeadAttention"
    " NhwcFusedConv QAttention QuickGelu RotaryEmbedding SkipLayerNormalization SkipSimplifiedLayerNormalization"
)
"""The contrib operators whose first output has the element type of the first floating-point operand."""


def result_types(
    domain: str, name: str, version: int, operands: Sequence[Formula | None], to: object = 0
) -> Iterator[str]:
    """Yield the element type of each output, such as `"int64"`, or "" if it is unknown. `to` is a Cast's attribute."""
    elements = [one.element if one is not None else "" for one in operands]
    if domain == CONTRIB and name in CONTRIB_FLOATS:
        yield next((element for element in elements if element in FLOATS), "")
    schema = find_schema(domain, name, version)
    if schema is None:
        return
    if domain == DEFAULT_DOMAIN and name in ("Cast", "ConstantOfShape"):
        target = next((element.name for number, element in ELEMENTS.items() if number == to), "")
        yield target if name == "Cast" else (*elements, "float32")[1]
        return
    single = (one for one in schema.type_constraints if len(one.allowed_type_strs) == 1)
    bound = {one.type_param_str: one.allowed_type_strs[0] for one in single}
    for parameter, element in zip(_parameters(schema.inputs), elements, strict=False):
        if element and parameter.is_homogeneous:
            bound.setdefault(parameter.type_str, f"tensor({element})")
    for parameter in _parameters(schema.outputs):
        text = bound.get(parameter.type_str, parameter.type_str) if parameter.is_homogeneous else ""
        kind = text.removeprefix("tensor(").removesuffix(")") if text.startswith("tensor(") else ""
        yield {"float": "float32", "double": "float64"}.get(kind, kind)


def _parameters(stated: Sequence[Any]) -> Iterator[Any]:
    yield from stated
    while stated and is_variadic(stated[-1]):
        yield stated[-1]
