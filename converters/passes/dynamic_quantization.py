"""`OnnxDynamicQuantization`: 8-bit weights, activations quantized while the model runs, no calibration data.

The quantizer is ONNX Runtime's, without its detours: no copy of the weights, no loop over channels. Symmetric signed 8-bit
weights are computed in numpy, for all channels at once. The formulas are those of onnxruntime.quantization
(`compute_scale_zp` and `quantize_nparray`), to the bit.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal

from onnxreg.converters.onnx.quiet import quiet
from onnxreg.converters.onnx.weightless import without_weights
from onnxreg.converters.passes import base
from onnxreg.converters.passes.base import QuantizationPass
from onnxreg.converters.passes.tools import graph
from onnxreg.converters.passes.tools.gemm import part_shared_gemms
from onnxreg.converters.passes.tools.parent_scales import Codes, ScaleTransfer
from onnxreg.schema.core.errors import ConversionError, InputError

LIMIT, REDUCED_LIMIT = 127, 64
"""The largest code, and the largest with `reduce_range`."""
STRIDE = 16
"""`relative_error` looks at every so many rows of a weight."""


class DynamicQuantizationParams(base.PassParams, title="Params"):
    weight_type: Literal["QInt8", "QUInt8"] = "QInt8"
    op_types_to_quantize: tuple[Literal["MatMul", "Gemm", "Conv", "Gather"], ...] = ("MatMul", "Gemm")
    nodes_to_exclude: tuple[str, ...] = ()
    per_channel: bool = True
    reduce_range: bool = False


class OnnxDynamicQuantization(QuantizationPass):
    """Quantize weights to 8 bits, `QInt8` symmetric or `QUInt8` with a zero point; activations are uint8 at run time.

    Per channel by default: on MiniLM it keeps the mean pooled cosine to the parent at .993 where per tensor
    gives .963. `weight_error` in the result is what either loses of this graph's weights (`relative_error`).
    A stack of matrices gets one scale: no kernel takes more. Every constant weight of a MatMul, Gemm or Conv that was
    asked for is quantized, or the pass fails, those of `nodes_to_exclude` left out. `Gather` among `op_types_to_quantize` quantizes embedding tables too, per table.
    """

    id = "OnnxDynamicQuantization"
    version = 3
    takes_scales = True

    Params = DynamicQuantizationParams

    def prepare(self, subject: Any) -> None:
        """Find the nodes that stay. The quantizer makes every Gemm a MatMul called `NAME_MatMul` before it looks at names."""
        import numpy as np

        stay = {"MatMul", "Gemm"}.difference(self.params.op_types_to_quantize)
        if self.params.nodes_to_exclude or len(stay) == 1:
            graph.name_nodes(subject)
        others = (node.name for node in subject.graph.node if node.op_type in stay and node.name)
        names = {*self.params.nodes_to_exclude, *others}
        self._excluded = names | {f"{name}_MatMul" for name in names}
        if halves := [
            name for name, one in self.factors(subject).items() if one.tensor.data_type != one.tensor.FLOAT
        ]:
            raise InputError(
                f"{self.id} takes weights in float32, and {len(halves)} are float16: {', '.join(halves)[:100]}",
                "quantize the float32 graph (input: STEP), or use OnnxBlockWiseRtnQuantization, which takes float16",
            )
        for name, factor in self.factors(subject).items():
            if not np.isfinite(_array(factor)).all():
                raise ConversionError(f"the weight {name} holds NaN or infinity")

    def observe(self, subject: Any) -> Mapping[str, Any]:
        before = super().observe(subject)
        weights = ((_array(one), one.channels) for one in before["factors"].values())
        return {
            **before,
            "weight_error": relative_error(weights, signed=self.params.weight_type == "QInt8"),
            "tables": _tables(subject) if "Gather" in self.params.op_types_to_quantize else {},
        }

    def apply(self, subject: Any) -> Any:
        params = self.params
        self._transfer = None if self.scales is None else ScaleTransfer(self.scales)
        with graph.blame_tool("ONNX Runtime could not quantize the graph"), quiet():
            return quantize_dynamic(
                subject,
                params.weight_type,
                self.products.union(params.op_types_to_quantize),
                params.per_channel,
                params.reduce_range,
                self._excluded,
                self._transfer,
            )

    def ensures(self, before: Mapping[str, Any], after: Any) -> dict[str, Any]:
        result = super().ensures(before, after)
        operators = graph.count_operators(after)
        result |= {
            "operators": {
                name: operators.get(name, 0)
                for name in ("MatMulInteger", "ConvInteger", "DynamicQuantizeLinear")
            },
            "weight_error": before["weight_error"],
        }
        stacks = [
            name for name, one in before["factors"].items() if len(one.tensor.dims) > 2 and one.channels
        ]
        if self.params.per_channel and stacks:
            result["per_tensor"] = sorted(stacks)
        if "Gather" in self.params.op_types_to_quantize:
            result["embeddings"] = _compare_tables(before["tables"], after)
        if self._transfer is not None:
            result["scales"] = self._transfer.report()
        return result

    @property
    def products(self) -> frozenset[str]:
        operators = frozenset(self.params.op_types_to_quantize) - {"Gather"}
        return operators | {"MatMul"} if "Gemm" in operators else operators

    def factors(self, subject: Any) -> dict[str, graph.Factor]:
        return graph.factors(subject, self.products, self._excluded)


def _array(factor: graph.Factor) -> Any:
    import numpy as np
    import onnx

    return onnx.numpy_helper.to_array(factor.tensor).astype(np.float32, copy=False)


def _tables(subject: Any) -> dict[str, Any]:
    """The float32 matrices that Gather reads rows of, by name."""
    import onnx

    read = {node.input[0] for node in subject.graph.node if node.op_type == "Gather"}
    return {
        tensor.name: onnx.numpy_helper.to_array(tensor)
        for tensor in subject.graph.initializer
        if tensor.name in read and tensor.data_type == tensor.FLOAT and len(tensor.dims) == 2
    }


def _compare_tables(tables: Mapping[str, Any], quantized: Any) -> dict[str, Any]:
    """The lowest cosine between a row of a quantized table and its original, over the rows that are not 0.

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


def quantize_dynamic(
    model: Any,
    weight_type: str,
    operators: Collection[str],
    per_channel: bool,
    reduce_range: bool,
    excluded: Collection[str] = (),
    transfer: ScaleTransfer | None = None,
) -> Any:
    """The quantized form of a model (`onnx.ModelProto`): what `onnxruntime.quantization.quantize_dynamic` gives.

    `model` is left as it is. The quantizer's constructor writes a model to disk and reads it back, twice, so it is
    given the weights only after that; those of Gemm before it, since there it turns them over.

    Args:
        excluded: the names of nodes that stay as they are.
        transfer: gives weights the scales of a parent release.
    """
    names = graph.second_names(model)
    gemms = (node.input[1] for node in model.graph.node if node.op_type == "Gemm")
    light = without_weights(model, {names.get(name, name) for name in gemms})
    graph.drop_second_names(light, names)
    graph.clear_value_info(light)
    part_shared_gemms(light)
    quantizer = _quantizer(light, weight_type, operators, per_channel, reduce_range, excluded, transfer)
    stored = {tensor.name for tensor in light.graph.initializer}
    read = {name for node in light.graph.node if node.op_type in operators for name in node.input}
    aside = [tensor for tensor in model.graph.initializer if tensor.name not in stored]
    quantized = quantizer.model.model
    quantized.graph.initializer.extend(tensor for tensor in aside if tensor.name in read)
    quantizer.quantize_model()
    quantizer.model.topological_sort()
    quantized.graph.initializer.extend(tensor for tensor in aside if tensor.name not in read)
    quantizer.model.clean_initializers()
    _keep_inputs(quantized, {value.name for value in model.graph.input})
    graph.clear_value_info(quantized)
    return quantized


def relative_error(weights: Iterable[tuple[Any, int]], signed: bool = True) -> dict[str, float]:
    """The relative error of 8-bit codes of float32 weights of rank 2 or more, each with its channel axis.

    Signed codes are symmetric, unsigned ones have a zero point.

    The root of the squared error over the squared weights, all of them together, with a scale per channel and with
    one per tensor; every `STRIDE`-th row counts. Four significant digits.
    """
    import numpy as np

    energy, lost = 0.0, {"per_channel": 0.0, "per_tensor": 0.0}
    for weight, channels in weights:
        rows = np.moveaxis(weight, channels, -1).reshape(-1, weight.shape[channels])
        sample = rows[::STRIDE]
        energy += _energy(sample)
        for name, axis in (("per_channel", -1), ("per_tensor", None)):
            lost[name] += _energy(sample - _restored(sample, rows, axis, signed))
    return {name: float(f"{(value / energy) ** 0.5 if energy else 0.0:.4g}") for name, value in lost.items()}


def int8_scales(weight: Any, axis: int | None, limit: int = LIMIT) -> Any:
    """The float32 value of one code step, broadcastable to `weight`, for each index of `axis`.

    The largest magnitude by `limit`; 1 if that is not a normal number, as in a channel of zeros.

    Args:
        weight: float32 of any rank.
        axis: None for one scale for the whole tensor.
    """
    import numpy as np

    others = tuple(at for at in range(weight.ndim) if axis is None or at != axis % weight.ndim)
    low = weight.min(axis=others, keepdims=True, initial=0)
    high = weight.max(axis=others, keepdims=True, initial=0)
    wide = 2 * np.maximum(-low, high).astype(np.float64) / (2 * limit)
    return np.where(wide < np.finfo(np.float32).tiny, 1, wide).astype(np.float32)


def int8_codes(weight: Any, steps: Any) -> Any:
    """The int8 codes of a float32 weight; `steps` as `int8_scales` gives them."""
    import numpy as np

    scaled = weight / steps
    np.rint(scaled, out=scaled)
    np.clip(scaled, -128, 127, out=scaled)
    return scaled.astype(np.int8)


def _quantizer(
    model: Any,
    weight_type: str,
    operators: Collection[str],
    per_channel: bool,
    reduce_range: bool,
    excluded: Collection[str],
    transfer: ScaleTransfer | None,
) -> Any:
    from onnxruntime.quantization import QuantType
    from onnxruntime.quantization.quant_utils import QuantizationMode

    return _quantizer_class(transfer)(
        model,
        per_channel,
        reduce_range,
        QuantizationMode.IntegerOps,
        False,
        QuantType[weight_type],
        QuantType.QUInt8,
        None,
        [],
        list(excluded),
        list(operators),
        {"MatMulConstBOnly": True, "DefaultTensorType": 1},
    )


def _keep_inputs(model: Any, names: Collection[str]) -> None:
    inputs = [value for value in model.graph.input if value.name in names]
    del model.graph.input[:]
    model.graph.input.extend(inputs)


def _transfer_scales(
    model: Any,
    weight: Any,
    names: Collection[str],
    axis: int | None,
    reduce_range: bool,
    transfer: ScaleTransfer,
) -> None:
    """Quantize a weight again with the parent's scales. `names` are of its codes, zero points and scales."""
    import numpy as np
    import onnx
    from onnxruntime.quantization.quant_utils import get_qmin_qmax_for_qType

    stored = {tensor.name: tensor for tensor in model.graph.initializer[-len(names) :]}
    tensors = [stored[name] for name in names]
    parent = transfer.find(tensors)
    if parent is None:
        return
    values = onnx.numpy_helper.to_array(weight).astype(np.float32, copy=False)
    shape = [1] * values.ndim
    if axis is not None:
        shape[axis] = -1

    def coded(codes: Any, zeros: Any, scales: Any) -> Codes:
        return Codes(codes, *(array.astype(np.float32).reshape(shape) for array in (scales, zeros)))

    low, high = get_qmin_qmax_for_qType(tensors[0].data_type, reduce_range, symmetric=True)
    own = coded(*map(onnx.numpy_helper.to_array, tensors))
    codes = transfer.requantize(values, own, coded(*parent), (int(low), int(high)))
    tensors[0].CopyFrom(onnx.numpy_helper.from_array(codes.values, tensors[0].name))
    for tensor, array in zip(tensors[1:], (codes.zeros.astype(np.int32), codes.scales), strict=True):
        flat = array.reshape(-1).tolist()
        tensor.CopyFrom(onnx.helper.make_tensor(tensor.name, tensor.data_type, tensor.dims, flat))


def _quantizer_class(transfer: ScaleTransfer | None) -> Any:
    """ONNX Runtime's quantizer with per-channel int8 weights from `int8_codes`, which gives the same numbers."""
    import onnx
    from onnxruntime.quantization.onnx_quantizer import ONNXQuantizer

    class Quantizer(ONNXQuantizer):  # type: ignore[misc]
        def quantize_initializer(
            self,
            weight: Any,
            qType: int,  # noqa: N803
            reduce_range: bool = False,
            keep_float_weight: bool = False,
        ) -> tuple[str, str, str]:
            is_new = weight.name not in self.quantized_value_map
            names = super().quantize_initializer(weight, qType, reduce_range, keep_float_weight)
            if transfer is not None and is_new and not keep_float_weight:
                _transfer_scales(
                    self.model.model, weight, names, None, self.reduce_range and reduce_range, transfer
                )
            return tuple(names)

        def quantize_weight_per_channel(
            self,
            weight_name: str,
            weight_qType: int,  # noqa: N803
            channel_axis: int,
            reduce_range: bool = True,
            keep_float_weight: bool = False,
        ) -> tuple[str, str, str]:
            weight = self.model.get_initializer(weight_name)
            if len(weight.dims) > 2 and channel_axis != 0:  # no kernel has a stack of matrices per channel
                return self.quantize_initializer(weight, weight_qType, reduce_range, keep_float_weight)
            is_new = weight_name not in self.quantized_value_map
            names = super().quantize_weight_per_channel(
                weight_name, weight_qType, channel_axis, reduce_range, keep_float_weight
            )
            if transfer is not None and is_new and not keep_float_weight:
                is_reduced = self.reduce_range and reduce_range
                _transfer_scales(self.model.model, weight, names, channel_axis, is_reduced, transfer)
            return tuple(names)

        def quantize_weight_per_channel_impl(
            self,
            weight_name: str,
            weight_qType: int,  # noqa: N803
            channel_axis: int,
            reduce_range: bool = True,
            keep_float_weight: bool = False,
        ) -> tuple[str, str, str]:
            tensor = self.model.get_initializer(weight_name)
            if tensor.data_type != tensor.FLOAT or weight_qType != tensor.INT8 or keep_float_weight:
                names = super().quantize_weight_per_channel_impl(
                    weight_name, weight_qType, channel_axis, reduce_range, keep_float_weight
                )
                return tuple(names)
            weight = onnx.numpy_helper.to_array(tensor)
            limit = REDUCED_LIMIT if self.reduce_range and reduce_range else LIMIT
            steps = int8_scales(weight, channel_axis, limit)
            codes = onnx.numpy_helper.from_array(int8_codes(weight, steps), f"{weight_name}_quantized")
            flat_steps = steps.reshape(-1)
            scale = onnx.helper.make_tensor(
                f"{weight_name}_scale", tensor.FLOAT, flat_steps.shape, flat_steps.tolist()
            )
            zeros = [0] * len(flat_steps)
            zero = onnx.helper.make_tensor(f"{weight_name}_zero_point", tensor.INT8, flat_steps.shape, zeros)
            self.model.initializer_extend([scale, zero])
            self.model.initializer_extend([codes])
            return codes.name, zero.name, scale.name

    return Quantizer


def _restored(sample: Any, rows: Any, axis: int | None, signed: bool) -> Any:
    """Some rows of a weight after coding and decoding, with the scales of all rows."""
    import numpy as np

    if signed:
        steps = int8_scales(rows, axis)
        return int8_codes(sample, steps) * steps
    others = None if axis is None else 0
    low, high = rows.min(axis=others, initial=0), rows.max(axis=others, initial=0)
    step = np.where(high > low, (high - low) / 255, 1)
    zero = np.rint(-low / step)
    return (np.clip(np.rint(sample / step) + zero, 0, 255) - zero) * step


def _energy(values: Any) -> float:
    import numpy as np

    return float(np.square(values, dtype=np.float64).sum())
