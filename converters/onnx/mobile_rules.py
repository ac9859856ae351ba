"""The tensor contract of the profile android, and the operators that are safe on mobile devices."""

from collections.abc import Sequence

from onnxreg.converters.onnx.facts import GraphFacts
from onnxreg.schema.core.errors import ConversionError
from onnxreg.schema.manifest.manifest import Dim, TensorSpec

OPSET = 18
REQUIRED = ("input_ids", "attention_mask")
OPTIONAL = ("token_type_ids",)
AXES = ("batch", "sequence")


def check_contract(facts: GraphFacts, path: str, labels: int) -> None:
    """Raise ConversionError about the file if a graph breaks the contract.

    The contract: opset 18. Inputs `input_ids`, `attention_mask` and maybe `token_type_ids`, int64 `[batch, sequence]`.
    Output `logits`, float32 `[batch, sequence, labels]`. The first two axes are dynamic.
    """
    names = tuple(spec.name for spec in facts.inputs)
    if facts.opset != OPSET:
        raise ConversionError(f"{path}: opset {facts.opset}, the android profile has {OPSET}")
    if names not in (REQUIRED, REQUIRED + OPTIONAL):
        raise ConversionError(
            f"{path}: inputs are {', '.join(names)}, expected {', '.join(REQUIRED + OPTIONAL)}"
        )
    if [spec.name for spec in facts.outputs] != ["logits"]:
        raise ConversionError(f"{path}: the only output must be logits")
    for spec in (*facts.inputs, *facts.outputs):
        dtype, axes = "int64", [Dim(kind="dynamic", name=axis) for axis in AXES]
        if spec.name == "logits":
            dtype, axes = "float32", [*axes, Dim(kind="static", value=labels)]
        promised = TensorSpec(name=spec.name, dtype=dtype, shape=tuple(axes))
        if (spec.dtype, spec.shape) != (promised.dtype, promised.shape):
            raise ConversionError(
                f"{path}: {spec.name} is {spec.dtype}{spec.shape_text}, expected {dtype}{promised.shape_text}"
            )


# fmt: off
MOBILE_SAFE_OPS = frozenset({
    "Add", "And", "ArgMax", "Cast", "Clip", "Concat", "Constant", "ConstantOfShape", "Div", "Dropout",
    "Equal", "Erf", "Exp", "Expand", "Gather", "GatherElements", "GatherND", "Gelu", "Gemm", "Identity",
    "LayerNormalization", "Less", "Log", "MatMul", "Mul", "Neg", "Not", "Or", "Pow", "Range", "ReduceMean",
    "Reshape", "Shape", "Sigmoid", "Slice", "Softmax", "Split", "Sqrt", "Squeeze", "Sub", "Tanh", "Tile",
    "Transpose", "Unsqueeze", "Where",
})
# fmt: on


def android_warnings(operator_names: Sequence[str]) -> dict[str, list[str]]:
    """Return the operators that are not safe (`unsupported_ops`), and OpenMed's warning about each (`warnings`)."""
    unsupported = [name for name in operator_names if name not in MOBILE_SAFE_OPS]
    rule = "is not in the Android ONNX Runtime Mobile NNAPI/XNNPACK safe set"
    return {"unsupported_ops": unsupported, "warnings": [f"{name} {rule}" for name in unsupported]}
