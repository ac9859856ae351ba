"""The mobile-safe operators of OpenMed's Android kit. The list is not derived from the providers' tables."""

from collections.abc import Iterable

# fmt: off
MOBILE_SAFE_OPS = frozenset({
    "Add", "And", "ArgMax", "Cast", "Clip", "Concat", "Constant", "ConstantOfShape", "Div", "Dropout",
    "Equal", "Erf", "Exp", "Expand", "Gather", "GatherElements", "GatherND", "Gelu", "Gemm", "Identity",
    "LayerNormalization", "Less", "Log", "MatMul", "Mul", "Neg", "Not", "Or", "Pow", "Range", "ReduceMean",
    "Reshape", "Shape", "Sigmoid", "Slice", "Softmax", "Split", "Sqrt", "Squeeze", "Sub", "Tanh", "Tile",
    "Transpose", "Unsqueeze", "Where",
})
# fmt: on
"""45 operators of the default domain."""


def android_warnings(operator_names: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The operators outside the safe set, in the given order, and OpenMed's sentence about each."""
    unsupported = tuple(name for name in operator_names if name not in MOBILE_SAFE_OPS)
    warnings = tuple(
        f"{name} is not in the Android ONNX Runtime Mobile NNAPI/XNNPACK safe set" for name in unsupported
    )
    return unsupported, warnings
