"""The tensor contract of a graph: its inputs and outputs as the manifest states them."""

from collections.abc import Sequence
from typing import Any

from onnxreg.converters.onnx.elements import element_name
from onnxreg.converters.onnx.ort import ort_graph
from onnxreg.schema.manifest.manifest import TensorSpec

LABEL_OUTPUT = "logits"
"""The output of a classifier, whose static last axis counts the labels and is called `labels`."""

Shape = Sequence[str | int]
"""An axis is its size, or its name if it is dynamic ("" if the graph gives none)."""


def onnx_spec(value: Any) -> TensorSpec:
    """The contract of one `onnx.ValueInfoProto`."""
    if not value.type.HasField("tensor_type"):
        kind = value.type.WhichOneof("value") or "unknown"
        return _spec(value.name, kind.removesuffix("_type"), None)
    tensor = value.type.tensor_type
    shape = None
    if tensor.HasField("shape"):
        shape = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in tensor.shape.dim]
    return _spec(value.name, element_name(tensor.elem_type), shape)


def ort_spec(name: str, info: Any) -> TensorSpec:
    """The contract of one value of an ORT-format file, given its `fbs.TypeInfo`."""
    tensor = ort_graph.tensor_type(info)
    if tensor is None:
        return _spec(name, "unknown", None)
    shape = tensor.Shape()
    dims = (
        None if shape is None else [_ort_dim(shape.Dim(index).Value()) for index in range(shape.DimLength())]
    )
    return _spec(name, element_name(tensor.ElemType()), dims)


def _ort_dim(value: Any) -> str | int:
    if value is None or value.DimType() != 1:
        return "" if value is None else (value.DimParam() or b"").decode("utf-8")
    return int(value.DimValue())


def _spec(name: str, dtype: str, shape: Shape | None) -> TensorSpec:
    """A tensor of unknown rank has neither axes nor shape; a scalar has both, empty."""
    value: dict[str, Any] = {"name": name, "dtype": dtype}
    if shape is not None:
        static = [isinstance(dim, int) and dim >= 0 for dim in shape]
        axes = [dim if isinstance(dim, str) else "" for dim in shape]
        value["shape"] = [
            {"kind": "static", "value": dim} if fixed else {"kind": "dynamic", "name": axis}
            for dim, axis, fixed in zip(shape, axes, static, strict=True)
        ]
        if name == LABEL_OUTPUT and len(shape) > 1 and static[-1]:
            axes[-1] = "labels"
        value["axes"] = axes
    return TensorSpec.from_json(value, f"tensor {name[:80]!r}")
