"""`OnnxDynamicQuantization`: 8-bit weights, activations quantized while the model runs, no calibration data."""

from collections.abc import Mapping
from typing import Any, Literal

from onnxreg.converters.passes import base, graph, int8, weights
from onnxreg.converters.passes.quantizer import quantize_dynamic
from onnxreg.converters.passes.quiet import quiet
from onnxreg.schema.errors import ConversionError


class OnnxDynamicQuantization(base.Pass[Any, Any]):
    """Symmetric signed 8-bit weights with ONNX Runtime's quantizer; activations are uint8 at run time.

    Per channel by default: on MiniLM it keeps the mean pooled cosine to the parent at .993 where per tensor
    gives .963. `weight_error` in the result is what either loses of this graph's weights (`int8.relative_error`).
    Every constant weight of a MatMul or Gemm is quantized, or the pass fails. `Gather` among
    `op_types_to_quantize` quantizes embedding tables too, per table.
    """

    id = "OnnxDynamicQuantization"

    class Params(base.PassParams):
        weight_type: Literal["QInt8"] = "QInt8"
        op_types_to_quantize: tuple[Literal["MatMul", "Gemm", "Gather"], ...] = ("MatMul", "Gemm")
        per_channel: bool = True
        reduce_range: bool = False

    def requires(self, subject: Any) -> None:
        import numpy as np

        for name, factor in weights.factors(subject, self._products).items():
            if not np.isfinite(_array(factor)).all():
                raise ConversionError(f"the weight {name} holds NaN or infinity")

    def observe(self, subject: Any) -> Mapping[str, Any]:
        found = weights.factors(subject, self._products)
        return {
            "outputs": [value.name for value in subject.graph.output],
            "opset": graph.default_opset(subject),
            "weights": len(found),
            "weight_error": int8.relative_error((_array(one), one.channels) for one in found.values()),
            "tables": _tables(subject) if "Gather" in self.params.op_types_to_quantize else {},
        }

    def apply(self, subject: Any) -> Any:
        asked = self.params
        with quiet():
            return quantize_dynamic(
                subject,
                asked.weight_type,
                asked.op_types_to_quantize,
                asked.per_channel,
                asked.reduce_range,
            )

    def ensures(self, before: Mapping[str, Any], after: Any) -> dict[str, Any]:
        if graph.default_opset(after) != before["opset"]:
            raise ConversionError("quantization changed the opset")
        if [value.name for value in after.graph.output] != before["outputs"]:
            raise ConversionError("quantization lost an output")
        if not before["weights"]:
            raise ConversionError(
                "quantization reached none of the weights",
                "the graph has no MatMul or Gemm with constant weights",
            )
        if left := sorted(weights.factors(after, self._products)):
            raise ConversionError(f"quantization left weights in floating point: {', '.join(left)}")
        operators = graph.count_operators(after)
        result: dict[str, Any] = {
            "operators": {
                name: operators.get(name, 0) for name in ("MatMulInteger", "DynamicQuantizeLinear")
            },
            "weights": before["weights"],
            "weight_error": before["weight_error"],
        }
        if "Gather" in self.params.op_types_to_quantize:
            result["embeddings"] = _compare_tables(before["tables"], after)
        return result

    @property
    def _products(self) -> frozenset[str]:
        return frozenset(self.params.op_types_to_quantize) & {"MatMul", "Gemm"}


def _array(factor: weights.Factor) -> Any:
    import numpy as np
    import onnx

    return onnx.numpy_helper.to_array(factor.tensor).astype(np.float32, copy=False)


def _tables(model: Any) -> dict[str, Any]:
    """The float32 matrices that Gather reads rows of, by name."""
    import onnx

    read = {node.input[0] for node in model.graph.node if node.op_type == "Gather"}
    return {
        tensor.name: onnx.numpy_helper.to_array(tensor)
        for tensor in model.graph.initializer
        if tensor.name in read and tensor.data_type == tensor.FLOAT and len(tensor.dims) == 2
    }


def _compare_tables(tables: Mapping[str, Any], quantized: Any) -> dict[str, Any]:
    """How far each row of the quantized tables is from its original: the lowest cosine over the rows that are not 0.

    Raises ConversionError, naming them, for tables that were not quantized.
    """
    import numpy as np
    import onnx

    stored = {tensor.name: tensor for tensor in quantized.graph.initializer}
    suffixes = ("quantized", "zero_point", "scale")
    if not tables:
        raise ConversionError("quantization reached none of the embedding tables", "the graph has none")
    if left := sorted(name for name in tables if f"{name}_quantized" not in stored):
        raise ConversionError(f"quantization left embedding tables in floating point: {', '.join(left)}")
    cosines = [1.0]
    for name, table in tables.items():
        parts = [stored[f"{name}_{part}"] for part in suffixes]
        codes, zero, scale = (onnx.numpy_helper.to_array(part) for part in parts)
        rows = (codes.astype(np.float32) - zero.astype(np.float32)) * scale
        norms = np.linalg.norm(table, axis=1) * np.linalg.norm(rows, axis=1)
        cosines.append(float(((table * rows).sum(axis=1)[norms > 0] / norms[norms > 0]).min(initial=1.0)))
    return {
        "tables": len(tables),
        "tables_quantized": len(tables),
        "min_row_cosine": float(f"{min(cosines):.6g}"),
    }
