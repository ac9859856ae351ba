"""`OnnxOpVersionConversion`: the same graph in another opset."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from onnxreg.converters.onnx.graph_operators import within
from onnxreg.converters.onnx.onnx_graph import RUNTIME_OPERATORS, check_light
from onnxreg.converters.onnx.weightless import replace_but_weights, without_weights
from onnxreg.converters.passes import base
from onnxreg.converters.passes.base import GraphPass
from onnxreg.converters.passes.tools import graph
from onnxreg.schema.core.errors import ConversionError, InputError

MIN_OPSET, MAX_OPSET = 7, 26
"""The opsets that ONNX Runtime 1.31 loads."""

MIN_IR_VERSION = 4
"""Before it, weights had to be inputs too."""


class OpVersionParams(base.PassParams, title="Params"):
    target_opset: int = Field(21, ge=MIN_OPSET, le=MAX_OPSET)


class OnnxOpVersionConversion(GraphPass):
    """Convert the operators of the default domain up or down with ONNX's own converter.

    Local functions are inlined first, since the converter leaves them as they are. The IR version becomes the one
    that the opset was released with. What the target opset lacks is an error.
    """

    id = "OnnxOpVersionConversion"
    tolerance = 1e-3
    keeps_opset = False

    Params = OpVersionParams

    def requires(self, subject: Any) -> None:
        super().requires(subject)
        if graph.default_opset(subject) is None:
            raise InputError(f"{self.id}: the graph has no operator of the default domain")
        operators = {node.op_type for body in within(subject.graph) for node in body.node if not node.domain}
        if own := sorted(operators & RUNTIME_OPERATORS - {"LayerNormalization"}):
            raise InputError(
                f"{self.id}: ONNX's converter does not know {', '.join(own)}, an operator of ONNX Runtime",
                "leave this pass out: such a graph runs in the opset that it has",
            )

    def apply(self, subject: Any) -> Any:
        import onnx

        target = self.params.target_opset
        if graph.default_opset(subject) == target:
            return subject
        graph.inline_functions(subject)
        graph.clear_value_info(subject)
        try:
            converted = onnx.version_converter.convert_version(without_weights(subject), target)
            graph.clear_value_info(converted)
            replace_but_weights(subject, converted)
            check_light(without_weights(subject))
        except Exception as error:
            raise ConversionError(
                f"the graph cannot be converted to opset {target}: {_reason(error)}"
            ) from error
        needed = onnx.helper.find_min_ir_version_for(subject.opset_import, ignore_unknown=True)
        subject.ir_version = max(MIN_IR_VERSION, needed)
        return subject

    def ensures(self, before: Mapping[str, Any], after: Any) -> dict[str, Any]:
        result = super().ensures(before, after)
        if result["opset"] != self.params.target_opset:
            raise ConversionError(
                f"asked for opset {self.params.target_opset}, the converter gave {result['opset']}"
            )
        return {**result, "opset_before": before["opset"], "ir_version": after.ir_version}


def _reason(error: BaseException) -> str:
    """The converter's assertions begin with a place in its own source."""
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return first.rpartition("failed: ")[2][:200]
