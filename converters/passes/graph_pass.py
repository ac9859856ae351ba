"""The contract of passes between ONNX graphs: a valid graph in, no output lost, the requested opset."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from onnxreg.converters.onnx.elements import tensor_bytes
from onnxreg.converters.onnx.onnx_graph import graph_inputs
from onnxreg.converters.onnx.weightless import without_weights
from onnxreg.converters.passes import base
from onnxreg.converters.passes.tools import graph, model_file
from onnxreg.converters.passes.tools.parent_scales import ParentScales
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.schema.core.errors import ConversionError, InputError, first_line

Facts = Mapping[str, Any]


class GraphPass(base.Pass[Any, Any]):
    """A pass from `onnx.ModelProto` to `onnx.ModelProto`, changed in place or new.

    A subclass adds to `observe` and `ensures` what it alone knows. That the graph runs, and how near it is to its
    parent, is `proof.run`'s to show.
    """

    keeps_opset: ClassVar[bool] = True
    keeps_types: ClassVar[bool] = True
    tolerance: ClassVar[float | None] = None
    """The largest distance from the parent, in parts of an output's largest value; None if numbers change."""

    takes_scales: ClassVar[bool] = False
    """True if the pass can quantize with the scales of a parent release."""

    def __init__(
        self, data: Sequence[Feed] | None = None, scales: ParentScales | None = None, **params: Any
    ) -> None:
        """Args:
        data: inputs of the graph, one mapping of name to array for each run; a pass that measures uses them.
        scales: for a pass that `takes_scales`; without, each weight gets its own.
        """
        super().__init__(**params)
        self.data = data
        self.scales = scales

    def requires(self, subject: Any) -> None:
        check_graph(subject, self.id)

    def observe(self, subject: Any) -> Facts:
        return {
            "names": _names(subject),
            "types": public_types(subject),
            "opset": graph.default_opset(subject),
            "weight_bytes": model_file.weight_bytes(subject),
        }

    def ensures(self, before: Facts, after: Any) -> dict[str, Any]:
        if (got := _names(after)) != before["names"]:
            raise ConversionError(f"{self.id} changed the inputs and outputs: {before['names']} became {got}")
        if self.keeps_types and (types := public_types(after)) != before["types"]:
            raise ConversionError(f"{self.id} changed the public types: {before['types']} became {types}")
        opset = graph.default_opset(after)
        if self.keeps_opset and opset != before["opset"]:
            raise ConversionError(f"{self.id} changed the opset from {before['opset']} to {opset}")
        weights = {"before": before["weight_bytes"], "after": model_file.weight_bytes(after)}
        return {"opset": opset, "weight_bytes": weights}


def check_graph(subject: Any, step: str) -> None:
    """Raise InputError, naming the pass, if `subject` is not a valid graph or a weight is shorter than its shape."""
    import onnx

    if not isinstance(subject, onnx.ModelProto):
        raise InputError(f"{step} takes an ONNX graph, not {type(subject).__name__}")
    for tensor in subject.graph.initializer:
        if tensor.HasField("raw_data") and len(tensor.raw_data) != tensor_bytes(tensor):
            raise InputError(f"{step}: the weight {tensor.name} has not as many bytes as its shape takes")
    try:
        onnx.checker.check_model(without_weights(subject))
    except onnx.checker.ValidationError as error:
        raise InputError(f"{step}: not a valid graph: {first_line(error)}") from error


def public_types(subject: Any) -> dict[str, int]:
    """The TensorProto element type of each input and output."""
    values = (*subject.graph.input, *subject.graph.output)
    return {value.name: value.type.tensor_type.elem_type for value in values}


def _names(subject: Any) -> tuple[list[str], list[str]]:
    inputs = [value.name for value in graph_inputs(subject.graph)]
    return inputs, [value.name for value in subject.graph.output]
