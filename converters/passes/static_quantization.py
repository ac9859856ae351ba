"""`OnnxStaticQuantization`: 8-bit weights and activations, whose ranges calibration data shows."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from onnxreg.converters.onnx.quiet import quiet
from onnxreg.converters.passes import base
from onnxreg.converters.passes.base import QuantizationPass
from onnxreg.converters.passes.tools import graph, model_file, samples
from onnxreg.converters.source.toolchain import refuse_missing
from onnxreg.schema.core.errors import ConversionError, first_line

PRODUCTS = frozenset({"Conv", "Gemm", "MatMul"})


class StaticQuantizationParams(base.PassParams, title="Params"):
    weight_type: Literal["QInt8", "QUInt8"] = "QInt8"
    activation_type: Literal["QInt8", "QUInt8"] = "QUInt8"
    quant_format: Literal["QDQ", "QOperator"] = "QDQ"
    calibrate_method: Literal["MinMax", "Entropy", "Percentile"] = "MinMax"
    percentile: float = Field(99.999, gt=50, le=100)
    per_channel: bool = True
    reduce_range: bool = False
    op_types_to_quantize: tuple[str, ...] | None = None
    nodes_to_exclude: tuple[str, ...] = ()


class OnnxStaticQuantization(QuantizationPass):
    """Quantize with ONNX Runtime, by the ranges of values on the calibration data.

    `quant_format` `QDQ` puts pairs of QuantizeLinear and DequantizeLinear around the operators, `QOperator` puts
    quantized operators in their place. `op_types_to_quantize` is by default every operator that ONNX Runtime
    can quantize. Every constant weight of a Conv, Gemm or MatMul among them is quantized, or the pass fails.
    `percentile` is read by the method `Percentile`.
    """

    id = "OnnxStaticQuantization"

    Params = StaticQuantizationParams

    def requires(self, subject: Any) -> None:
        super().requires(subject)
        samples.check(self.data or (), subject, self.id)

    def apply(self, subject: Any) -> Any:
        graph.clear_value_info(subject)
        graph.name_nodes(subject)
        with model_file.scratch() as directory:
            source, target = directory / "float.onnx", directory / "quantized.onnx"
            model_file.save(subject, source)
            try:
                with quiet():
                    self._quantize(
                        source, target, model_file.weight_bytes(subject) > model_file.MAX_INLINE_WEIGHT_BYTES
                    )
            except Exception as error:
                refuse_missing(error, "static quantization")
                raise ConversionError(
                    f"ONNX Runtime could not quantize the graph: {first_line(error)}"
                ) from error
            quantized = model_file.load(target)
        del quantized.metadata_props[:]
        quantized.metadata_props.extend(subject.metadata_props)
        graph.clear_value_info(quantized)
        graph.drop_unused_imports(quantized)
        return quantized

    def ensures(self, before: Mapping[str, Any], after: Any) -> dict[str, Any]:
        result = super().ensures(before, after)
        calibration = {"samples": len(self.data or ()), "dataset": str(samples.digest(self.data or ()))}
        return {**result, "calibration": calibration, "operators": graph.count_operators(after)}

    def _quantize(self, source: Path, target: Path, large: bool) -> None:
        from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

        params = self.params
        quantize_static(
            source,
            target,
            _reader(self.data or ()),
            quant_format=QuantFormat[params.quant_format],
            op_types_to_quantize=self._operators(),
            per_channel=params.per_channel,
            reduce_range=params.reduce_range,
            activation_type=QuantType[params.activation_type],
            weight_type=QuantType[params.weight_type],
            nodes_to_exclude=list(params.nodes_to_exclude),
            use_external_data_format=large,
            calibrate_method=CalibrationMethod[params.calibrate_method],
            extra_options={"CalibPercentile": params.percentile},
        )

    def _operators(self) -> list[str]:
        """Sorted: ONNX Runtime's own default is in hash order, and so is what it writes."""
        from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

        operators = self.params.op_types_to_quantize
        return sorted({*QDQRegistry, *QLinearOpsRegistry} if operators is None else operators)

    @property
    def products(self) -> frozenset[str]:
        operators = self.params.op_types_to_quantize
        return PRODUCTS if operators is None else PRODUCTS & set(operators)


def _reader(feeds: Sequence[samples.Feed]) -> Any:
    """The feeds as ONNX Runtime asks for them, one after the other, then None."""
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._left = iter(feeds)

        def get_next(self) -> dict[str, Any] | None:
            feed = next(self._left, None)
            return None if feed is None else dict(feed)

    return Reader()
