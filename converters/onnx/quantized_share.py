"""The share of a graph's weights that are quantized, read back from the file."""

from collections import Counter
from collections.abc import Iterable, Mapping
from math import prod

from onnxreg.converters.onnx.elements import FLOATS, QUANTIZED
from onnxreg.converters.onnx.graph_operators import Constant, OperatorUse
from onnxreg.schema.manifest.manifest import WeightCount

_SCALES = {
    "DequantizeLinear": (1, 2),
    "QuantizeLinear": (1, 2),
    "MatMulInteger": (2, 3),
    "ConvInteger": (2, 3),
    "QLinearMatMul": (1, 2, 4, 5, 6, 7),
    "QLinearConv": (1, 2, 4, 5, 6, 7),
    "DynamicQuantizeMatMul": (2, 3),
    "MatMulIntegerToFloat": (2, 3, 4, 5),
    "MatMulNBits": (2, 3),
    "MatMulBnb4": (2,),
    "GatherBlockQuantized": (2, 3),
    "QMoE": (3, 6, 9),
}
"""Operands that hold scales and zero points: of any rank, but never weights."""

WEIGHTS_ONLY = "int8-weights"
"""8-bit weights whose products are computed with activations in floating point."""

_INT8_ACTIVATIONS = 4
"""The `accuracy_level` that lets the runtime round activations to int8."""

_PACKED = frozenset({"MatMulNBits", "GatherBlockQuantized"})
"""Operators whose uint8 weights hold several elements of `bits` bits each (4 unless stated)."""

MINOR_SHARE = 0.01
"""A second floating-point type below this share of the weight bytes does not make a graph `mixed`."""


def count_weights(uses: Iterable[OperatorUse]) -> tuple[WeightCount, str]:
    """Count the constant weights of a graph, and name its precision.

    A weight is a stored tensor of rank 2 or more and of a floating-point or 8-bit-or-less type that some operator
    reads, scales and zero points aside; one that several operators share counts once. The precision is `int8` or
    `int4` if weights are quantized (`mixed` if both), `int8-weights` if all of them have 8 bits and a
    `MatMulNBits` or `GatherBlockQuantized` that leaves activations in floating point reads them, else the floating-point type (`mixed` if a second one
    has at least `MINOR_SHARE` of the bytes); a graph without weights is `float32`.
    """
    weights = _weights(uses)
    quantized = {weight: kind for weight, kind in weights.items() if _name(weight) in QUANTIZED}
    value = {
        "weights_quantized": len(quantized),
        "weights_total": len(weights),
        "bytes_quantized": sum(map(_bytes, quantized)),
        "bytes_total": sum(map(_bytes, weights)),
    }
    return WeightCount.from_json(value, "weights"), _precision(
        quantized, [weight for weight in weights if weight not in quantized]
    )


def _weights(uses: Iterable[OperatorUse]) -> dict[Constant, str]:
    """Each weight with its kind: the element type, signed or not, that its values have once unpacked."""
    weights: dict[Constant, str] = {}
    scales: set[Constant] = set()
    for use in uses:
        for position, operand in enumerate(use.inputs):
            constant = operand.constant if operand else None
            if constant is None or len(constant.dims) < 2 or _name(constant) not in FLOATS | QUANTIZED:
                continue
            if position in _SCALES.get(use.name, ()):
                scales.add(constant)
            elif use.name in _PACKED and _name(constant) == "uint8":
                weights[constant] = _packed_kind(use.attributes)
            else:
                weights.setdefault(constant, _name(constant).removeprefix("u"))
    return {weight: kind for weight, kind in weights.items() if weight not in scales}


def weight_type(precision: str) -> str:
    """The element type of a precision's weights: that of `int8-weights` is `int8`."""
    return "int8" if precision == WEIGHTS_ONLY else precision


def _packed_kind(attributes: Mapping[str, int | None]) -> str:
    bits = attributes.get("bits", 4)
    return (
        WEIGHTS_ONLY if bits == 8 and attributes.get("accuracy_level") != _INT8_ACTIVATIONS else f"int{bits}"
    )


def _precision(quantized: dict[Constant, str], floats: list[Constant]) -> str:
    kinds = set(quantized.values())
    if kinds == {"int8", WEIGHTS_ONLY}:
        return "int8"
    if kinds:
        return kinds.pop() if len(kinds) == 1 else "mixed"
    sizes: Counter[str] = Counter()
    for weight in floats:
        sizes[_name(weight)] += _bytes(weight)
    total = sum(sizes.values())
    major = [name for name, size in sizes.most_common() if size >= MINOR_SHARE * total]
    return "mixed" if len(major) > 1 else (major[0] if major else "float32")


def _name(constant: Constant) -> str:
    return constant.element.name if constant.element else "unknown"


def _bytes(constant: Constant) -> int:
    bits = constant.element.bits if constant.element else 0
    return (prod(constant.dims) * bits + 7) // 8
