"""ONNX Runtime's dynamic quantizer, without its detours: no copy of the weights, no loop over channels."""

from collections.abc import Collection
from typing import Any

from onnxreg.converters.onnx.weightless import without_weights
from onnxreg.converters.passes.tools import graph, int8_weights
from onnxreg.converters.passes.tools.parent_scales import Codes, ScaleTransfer


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
        {"MatMulConstBOnly": True},
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
    """ONNX Runtime's quantizer with per-channel int8 weights from `int8`, which gives the same numbers."""
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
            is_new = weight_name not in self.quantized_value_map
            names = super().quantize_weight_per_channel(
                weight_name, weight_qType, channel_axis, reduce_range, keep_float_weight
            )
            if transfer is not None and is_new and not keep_float_weight:
                weight = self.model.get_initializer(weight_name)
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
            limit = int8_weights.REDUCED_LIMIT if self.reduce_range and reduce_range else int8_weights.LIMIT
            steps = int8_weights.scales(weight, channel_axis, limit)
            codes = onnx.numpy_helper.from_array(
                int8_weights.codes(weight, steps), f"{weight_name}_quantized"
            )
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
