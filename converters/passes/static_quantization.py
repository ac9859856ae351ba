"""`OnnxStaticQuantization`: 8-bit weights and activations, whose ranges calibration data shows."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from pydantic import Field

from onnxreg.converters.passes.base import Facts, PassParams, QuantizationPass
from onnxreg.converters.passes.tools import graph, model_file, samples

PRODUCTS = frozenset({"Conv", "Gemm", "MatMul"})
MASK_SIZE = 1e3
"""A constant of this size or more that reaches one of `MASKED` is a mask, whose size means nothing."""
MASKED = frozenset(
    {"Softmax", "LogSoftmax", "Exp", "ReduceLogSumExp", "ReduceMax", "ReduceMin", "TopK", "ArgMax", "ArgMin"}
)
_CARRYING = """
    Add Cast CastLike Concat Expand Flatten Gather GatherElements GatherND Identity Mul Neg Reshape ScatterElements
    ScatterND Slice Split Squeeze Sub Tile Transpose Trilu Unsqueeze Where
"""
CARRYING = frozenset(_CARRYING.split())
"""Operators whose result holds a value of such a constant unchanged, or moved by a score."""
ARITHMETIC = CARRYING | {"Abs", "Ceil", "Clip", "Div", "Floor", "Log", "Max", "Min", "Pow", "Round", "Sqrt"}
"""Operators that compute an index, as the bucket of a relative position, before a Cast to integers."""


class OnnxStaticQuantization(QuantizationPass):
    """Quantize with ONNX Runtime, by the ranges of values on the calibration data.

    Pairs of QuantizeLinear and DequantizeLinear are put around the operators (`quant_format` QDQ), and ONNX Runtime puts
    quantized operators in their place when it loads the file. `op_types_to_quantize` is by default every operator that ONNX Runtime
    can quantize. Every constant weight of a Conv, Gemm or MatMul among them is quantized, or the pass fails. Nodes that
    make or apply an attention mask, or compute an index, stay in floating point (`float_nodes` in the result): a mask of
    -1e4 or -inf leaves 8 bits nothing for the scores beside it, and a rounded index is another row.
    `percentile` is read by the method `Percentile`.
    """

    id = "OnnxStaticQuantization"
    version = 2

    class Params(PassParams):
        weight_type: Literal["QInt8", "QUInt8"] = "QInt8"
        activation_type: Literal["QInt8", "QUInt8"] = "QUInt8"
        quant_format: Literal["QDQ"] = "QDQ"
        calibrate_method: Literal["MinMax", "Entropy", "Percentile"] = "MinMax"
        percentile: float = Field(99.999, gt=50, le=100)
        per_channel: bool = True
        reduce_range: bool = False
        op_types_to_quantize: tuple[str, ...] | None = None
        nodes_to_exclude: tuple[str, ...] = ()

    def requires(self, subject: Any) -> None:
        super().requires(subject)
        samples.check(self.data or (), subject, self.id)

    def apply(self, subject: Any) -> Any:
        graph.clear_value_info(subject)
        graph.name_nodes(subject)
        # ONNX Runtime (1.31) gives all readers of a matrix the channels of the first, transposed or not
        graph.unfold_gemms(subject, only_shared=True)
        self._float_nodes = float_nodes(subject)
        self._stacks = self.stacks(subject) if self.params.per_channel else []
        with model_file.scratch() as directory:
            source, target = directory / "float.onnx", directory / "quantized.onnx"
            is_large = len(model_file.save(subject, source)) > 1
            with graph.tool(self.id, "ONNX Runtime could not quantize the graph"):
                self._quantize(source, target, is_large)
            quantized = model_file.load(target)
        del quantized.metadata_props[:]
        quantized.metadata_props.extend(subject.metadata_props)
        graph.clear_value_info(quantized)
        graph.drop_unused_imports(quantized)
        return quantized

    def ensures(self, before: Facts, after: Any) -> dict[str, Any]:
        result = super().ensures(before, after)
        calibration = {"samples": len(self.data or ()), "dataset": str(samples.digest(self.data or ()))}
        if self._stacks:
            result["per_tensor"] = self._stacks
        if self._float_nodes:
            result["float_nodes"] = self._float_nodes
        return {**result, "calibration": calibration, "operators": graph.count_operators(after)}

    def _quantize(self, source: Path, target: Path, is_large: bool) -> None:
        from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
        from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

        params = self.params
        operators = params.op_types_to_quantize
        symmetric = [{"symmetric": params.weight_type == "QInt8"}]
        quantize_static(
            source,
            target,
            SimpleNamespace(get_next=partial(next, map(dict, self.data or ()), None)),
            quant_format=QuantFormat[params.quant_format],
            # sorted: ONNX Runtime's own default is in hash order, and so is what it writes
            op_types_to_quantize=sorted(
                {*QDQRegistry, *QLinearOpsRegistry} if operators is None else operators
            ),
            per_channel=params.per_channel,
            reduce_range=params.reduce_range,
            activation_type=QuantType[params.activation_type],
            weight_type=QuantType[params.weight_type],
            nodes_to_exclude=[*params.nodes_to_exclude, *self._float_nodes],
            use_external_data_format=is_large,
            calibrate_method=CalibrationMethod[params.calibrate_method],
            extra_options={
                "CalibPercentile": params.percentile,
                "TensorQuantOverrides": dict.fromkeys(self._stacks, symmetric),
            },
        )

    @property
    def products(self) -> frozenset[str]:
        operators = self.params.op_types_to_quantize
        return PRODUCTS if operators is None else PRODUCTS & set(operators)


def float_nodes(model: Any) -> list[str]:
    """The names of the nodes whose values 8 bits cannot hold.

    They carry a mask from its constant to a Softmax or its like, that one included, or compute what is cast to an index.
    """
    import onnx

    integers = {onnx.TensorProto.INT32, onnx.TensorProto.INT64}
    masks = {tensor.name for tensor in model.graph.initializer if _is_mask(tensor)}
    for node in model.graph.node:
        is_mask = any(_is_mask(entry.t) for entry in node.attribute if entry.HasField("t"))
        if is_mask or (node.op_type in CARRYING and masks.intersection(node.input)):
            masks.update(node.output)
    names: list[str] = []
    masked: set[str] = set()
    indices: set[str] = set()
    for node in reversed(model.graph.node):
        if (node.op_type in MASKED or masked.intersection(node.output)) and masks.intersection(node.input):
            names.append(node.name)
            masked.update(masks.intersection(node.input))
        elif node.op_type == "Cast" and graph.attribute(node, "to", 0) in integers:
            indices.update(node.input)
        elif node.op_type in ARITHMETIC and indices.intersection(node.output):
            names.append(node.name)
            indices.update(node.input)
    return names[::-1]


def _is_mask(tensor: Any) -> bool:
    import onnx

    if tensor.data_type not in (tensor.FLOAT, tensor.FLOAT16, tensor.DOUBLE, tensor.BFLOAT16):
        return False
    values = onnx.numpy_helper.to_array(tensor)
    return bool(values.size and max(values.max(), -values.min()) >= MASK_SIZE)
