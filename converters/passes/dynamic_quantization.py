"""`OnnxDynamicQuantization`: 8-bit weights, activations quantized while the model runs, no calibration data.

The graph is what `onnxruntime.quantization.quantize_dynamic` makes, with its names, written here in one walk: ONNX Runtime
copies all weights four times and codes them channel by channel in Python, in ten times the time. Weights are coded by its
formulas (`compute_scale_zp` and `quantize_nparray`), to the bit.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal

from onnxreg.converters.passes import base
from onnxreg.converters.passes.base import QuantizationPass
from onnxreg.converters.passes.embedding_quantization import quantize_tables
from onnxreg.converters.passes.tools import graph
from onnxreg.converters.passes.tools.gemm import Gemms
from onnxreg.converters.passes.tools.parent_scales import Codes, ScaleTransfer
from onnxreg.schema.core.errors import ConversionError, InputError

LIMIT, REDUCED_LIMIT = 127, 64
"""The largest code, and the largest with `reduce_range`."""


class DynamicQuantizationParams(base.PassParams, title="Params"):
    weight_type: Literal["QInt8", "QUInt8"] = "QInt8"
    op_types_to_quantize: tuple[Literal["MatMul", "Gemm", "Conv", "Gather"], ...] = ("MatMul", "Gemm")
    nodes_to_exclude: tuple[str, ...] = ()
    per_channel: bool = True
    reduce_range: bool = False


class OnnxDynamicQuantization(QuantizationPass):
    """Quantize weights to 8 bits, `QInt8` symmetric or `QUInt8` with a zero point; activations are uint8 at run time.

    Per channel by default: on MiniLM it keeps the mean pooled cosine to the parent at .993 where per tensor
    gives .963. A stack of matrices gets one scale: no kernel takes more. A Gemm becomes a MatMul and an Add first. Every
    constant weight of a MatMul, Gemm or Conv that was asked for is quantized, or the pass fails, those of
    `nodes_to_exclude` left out. `Gather` among `op_types_to_quantize` quantizes embedding tables as `EmbeddingQuantization` does.
    """

    id = "OnnxDynamicQuantization"
    version = 4
    takes_scales = True

    Params = DynamicQuantizationParams

    def prepare(self, subject: Any) -> None:
        import numpy as np
        import onnx

        stay = {"MatMul", "Gemm"}.difference(self.params.op_types_to_quantize)
        if self.params.nodes_to_exclude or len(stay) == 1:
            graph.name_nodes(subject)
        others = (node.name for node in subject.graph.node if node.op_type in stay and node.name)
        self._excluded = {*self.params.nodes_to_exclude, *others}
        graph.drop_second_names(subject)
        if "Gemm" in self.params.op_types_to_quantize:
            Gemms(subject).unfold(self._excluded)
        weights = self.factors(subject)
        if halves := [name for name, tensor in weights.items() if tensor.data_type != tensor.FLOAT]:
            raise InputError(
                f"{self.id} takes weights in float32, and {len(halves)} are float16: {', '.join(halves)[:100]}",
                "quantize the float32 graph (input: STEP), or use OnnxBlockWiseRtnQuantization, which takes float16",
            )
        for name, tensor in weights.items():
            if not np.isfinite(onnx.numpy_helper.to_array(tensor)).all():
                raise ConversionError(f"the weight {name} holds NaN or infinity")

    def apply(self, subject: Any) -> Any:
        self._transfer = None if self.scales is None else ScaleTransfer(self.scales)
        self._stacks = self.stacks(subject) if self.params.per_channel else []
        if "Gather" in self.params.op_types_to_quantize:
            self._embeddings = quantize_tables(subject, self._transfer)
        stored = {tensor.name: tensor for tensor in self.factors(subject).values()}
        coded: dict[str, list[Any]] = {}
        activations: set[str] = set()
        nodes: list[Any] = []
        for node in subject.graph.node:
            is_product = node.op_type in self.products - {"Gemm"} and graph.is_standard(node)
            if not is_product or node.name in self._excluded or node.input[1] not in stored:
                nodes.append(node)
                continue
            activation, weight = node.input[:2]
            if weight not in coded:
                coded[weight] = self._coded(stored[weight])
            if activation not in activations:
                activations.add(activation)
                nodes.append(_quantize_activation(activation))
            nodes += _product(node, activation, weight)
            if node.op_type == "Conv" and len(node.input) > 2:
                coded[weight].append(_bias_shape(node, len(stored[weight].dims)))
        subject.graph.initializer.extend(tensor for tensors in coded.values() for tensor in tensors)
        graph.replace_nodes(subject.graph, nodes)
        graph.drop_unread_weights(subject)
        graph.clear_value_info(subject)
        return subject

    def ensures(self, before: Mapping[str, Any], after: Any) -> dict[str, Any]:
        result = super().ensures(before, after)
        operators = graph.count_operators(after)
        names = ("MatMulInteger", "ConvInteger", "DynamicQuantizeLinear")
        result["operators"] = {name: operators.get(name, 0) for name in names}
        if self._stacks:
            result["per_tensor"] = self._stacks
        if "Gather" in self.params.op_types_to_quantize:
            result["embeddings"] = self._embeddings
        if self._transfer is not None:
            result["scales"] = self._transfer.report()
        return result

    @property
    def products(self) -> frozenset[str]:
        operators = frozenset(self.params.op_types_to_quantize) - {"Gather"}
        return operators | {"MatMul"} if "Gemm" in operators else operators

    @property
    def excluded(self) -> Collection[str]:
        return self._excluded

    def _coded(self, tensor: Any) -> list[Any]:
        """The tensors of a weight's codes, zero points and scales; a matrix alone has a scale for each channel, its columns."""
        import numpy as np
        import onnx

        weight = onnx.numpy_helper.to_array(tensor)
        axis = -1 if self.params.per_channel and weight.ndim == 2 else None
        is_signed = self.params.weight_type == "QInt8"
        limit = REDUCED_LIMIT if self.params.reduce_range else LIMIT
        low, high = (-limit, limit) if is_signed else (0, LIMIT if self.params.reduce_range else 255)
        if is_signed:
            steps = int8_scales(weight, axis, limit)
            codes = Codes(int8_codes(weight, steps), steps, np.zeros_like(steps))
        else:
            codes = _unsigned(weight, axis, high)

        def tensors(codes: Codes) -> list[Any]:
            shape = (-1,) if axis is not None else ()
            parts = {
                "quantized": codes.values,
                "zero_point": codes.zeros.astype(codes.values.dtype).reshape(shape),
                "scale": codes.scales.reshape(shape),
            }
            return [
                onnx.numpy_helper.from_array(array, f"{tensor.name}_{part}") for part, array in parts.items()
            ]

        own = tensors(codes)
        if self._transfer is None:
            return own
        return tensors(self._transfer.requantize(weight, codes, (low, high), own[0], own[2], own[1]))


def int8_scales(weight: Any, axis: int | None, limit: int = LIMIT) -> Any:
    """The float32 value of one code step, broadcastable to `weight`, for each index of `axis`.

    The largest magnitude by `limit`; 1 if that is not a normal number, as in a channel of zeros.

    Args:
        weight: float32 of any rank.
        axis: None for one scale for the whole tensor.
    """
    import numpy as np

    low, high = _range(weight, axis)
    wide = 2 * np.maximum(-low, high).astype(np.float64) / (2 * limit)
    return np.where(wide < np.finfo(np.float32).tiny, 1, wide).astype(np.float32)


def int8_codes(weight: Any, steps: Any) -> Any:
    """The int8 codes of a float32 weight; `steps` as `int8_scales` gives them."""
    import numpy as np

    scaled = weight / steps
    np.rint(scaled, out=scaled)
    np.clip(scaled, -128, 127, out=scaled)
    return scaled.astype(np.int8)


def _unsigned(weight: Any, axis: int | None, high: int) -> Codes:
    """The uint8 codes of a float32 weight, whose range with 0 in it is 0 to `high`."""
    import numpy as np

    least, most = (end.astype(np.float64) for end in _range(weight, axis))
    wide = (most - least) / high
    is_flat = wide < np.finfo(np.float32).tiny
    scales = np.where(is_flat, 1, wide)
    zeros = np.where(is_flat, 0, np.rint(-least / scales)).astype(np.float32)
    scales = scales.astype(np.float32)
    return Codes(np.clip(np.rint(weight / scales) + zeros, 0, 255).astype(np.uint8), scales, zeros)


def _range(weight: Any, axis: int | None) -> tuple[Any, Any]:
    """The smallest and the largest value, 0 included, for each index of `axis`."""
    others = tuple(at for at in range(weight.ndim) if axis is None or at != axis % weight.ndim)
    return tuple(end(axis=others, keepdims=True, initial=0) for end in (weight.min, weight.max))


def _quantize_activation(name: str) -> Any:
    import onnx

    outputs = [f"{name}_{part}" for part in ("quantized", "scale", "zero_point")]
    return onnx.helper.make_node("DynamicQuantizeLinear", [name], outputs, f"{name}_QuantizeLinear")


def _product(node: Any, activation: str, weight: str) -> Iterator[Any]:
    """The nodes that take the place of a MatMul or Conv: the product of integers, times both scales, and a Conv's bias."""
    import onnx

    make, output = onnx.helper.make_node, node.output[0]
    name = f"{node.name}_quant" if node.name else ""
    operands = [f"{one}_{part}" for part in ("quantized", "zero_point") for one in (activation, weight)]
    product, scales = f"{output}_output_quantized", f"{name or output}_scales_mul"
    bias = next((one for one in node.input[2:] if one), None)
    integers = make(f"{node.op_type}Integer", operands, [product], name)
    integers.attribute.extend(node.attribute)
    yield integers
    yield make("Cast", [product], [f"{product}_cast_output"], f"{product}_cast", to=onnx.TensorProto.FLOAT)
    yield make("Mul", [f"{activation}_scale", f"{weight}_scale"], [f"{scales}:0"], scales)
    factors, result = (
        [f"{product}_cast_output", f"{scales}:0"],
        f"{output}quant_scaled_output" if bias else output,
    )
    yield make("Mul", factors, [result], f"{name}_output_scale_mul" if name else "")
    if bias:
        across = f"{output}_bias_reshape_output"
        yield make("Reshape", [bias, f"{output}_bias_reshape_shape"], [across])
        yield make("Add", [result, across], [output], f"{output}_bias_add")


def _bias_shape(node: Any, rank: int) -> Any:
    """The shape in which the bias of a Conv is added to its output."""
    import numpy as np
    import onnx

    shape = np.array([1, -1, *[1] * (rank - 2)], np.int64)
    return onnx.numpy_helper.from_array(shape, f"{node.output[0]}_bias_reshape_shape")
