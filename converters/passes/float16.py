"""`OnnxFloatToFloat16`: half the bytes, the same public types."""

from collections.abc import Mapping
from typing import Any

from onnxreg.converters.passes import base, graph
from onnxreg.converters.passes.half import emptied_weights
from onnxreg.converters.passes.quiet import quiet
from onnxreg.schema.errors import ConversionError

FLOAT, FLOAT16 = 1, 10


class OnnxFloatToFloat16(base.Pass[Any, Any]):
    """float32 weights and activations to float16 with ONNX Runtime's converter.

    `op_block_list` names operators that stay float32; absent, ONNX Runtime's own list holds.
    """

    id = "OnnxFloatToFloat16"

    class Params(base.PassParams):
        keep_io_types: bool = True
        op_block_list: tuple[str, ...] | None = None

    def observe(self, subject: Any) -> Mapping[str, Any]:
        return {"io": _io_types(subject), "opset": graph.default_opset(subject)}

    def apply(self, subject: Any) -> Any:
        from onnxruntime.transformers.float16 import convert_float_to_float16

        inferred = graph.infer_values(subject)
        public = {value.name for value in (*subject.graph.input, *subject.graph.output)}
        weights = {tensor.name for tensor in subject.graph.initializer}
        graph.clear_value_info(subject)
        subject.graph.value_info.extend(
            value for name, value in inferred.items() if name not in public and name not in weights
        )
        with quiet(), emptied_weights(subject):
            half = convert_float_to_float16(
                subject,
                keep_io_types=self.params.keep_io_types,
                disable_shape_infer=True,
                op_block_list=self.params.op_block_list,
            )
        graph.clear_value_info(half)
        return half

    def ensures(self, before: Mapping[str, Any], after: Any) -> dict[str, Any]:
        io = _io_types(after)
        if self.params.keep_io_types and io != before["io"]:
            raise ConversionError(f"float16 conversion changed the public types: {before['io']} became {io}")
        if graph.default_opset(after) != before["opset"]:
            raise ConversionError("float16 conversion changed the opset")
        halved = sum(tensor.data_type == FLOAT16 for tensor in after.graph.initializer)
        kept = sum(tensor.data_type == FLOAT for tensor in after.graph.initializer)
        if not halved:
            raise ConversionError("float16 conversion left every weight in float32")
        return {"float16_weights": halved, "float32_weights": kept}


def _io_types(model: Any) -> dict[str, int]:
    values = (*model.graph.input, *model.graph.output)
    return {value.name: value.type.tensor_type.elem_type for value in values}
