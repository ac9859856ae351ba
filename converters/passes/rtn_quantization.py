"""`OnnxBlockWiseRtnQuantization`: weights in 4 or 8 bits by blocks, round to nearest, no calibration data."""

from collections.abc import Mapping
from typing import Any, Literal

from onnxreg.converters.onnx.graph_operators import within
from onnxreg.converters.onnx.quiet import quiet
from onnxreg.converters.passes import base
from onnxreg.converters.passes.base import QuantizationPass
from onnxreg.converters.passes.tools import graph
from onnxreg.converters.passes.tools.gemm import Gemms
from onnxreg.converters.passes.tools.parent_scales import Codes, ScaleTransfer
from onnxreg.schema.core.errors import InputError, missing_extra


class RtnQuantizationParams(base.PassParams, title="Params"):
    bits: Literal[4, 8] = 4
    block_size: Literal[16, 32, 64, 128, 256] = 128
    is_symmetric: bool = True
    accuracy_level: Literal[0, 1, 2, 3, 4] = 0
    nodes_to_exclude: tuple[str, ...] = ()
    gemm: bool = False


class OnnxBlockWiseRtnQuantization(QuantizationPass):
    """Convert each MatMul with a constant matrix to a `MatMulNBits` of the domain `com.microsoft`.

    A block of `block_size` weights of one column shares a scale, and unless `is_symmetric` a zero point.
    `accuracy_level` is the type that activations may be rounded to while the model runs: 0 as the runtime likes,
    1 float32, 2 float16, 3 bfloat16, 4 int8. With `gemm` each Gemm with a constant matrix becomes a MatMul and an Add
    first. Activations and every other weight stay as they are.
    """

    id = "OnnxBlockWiseRtnQuantization"
    version = 2
    takes_scales = True

    Params = RtnQuantizationParams

    def requires(self, subject: Any) -> None:
        super().requires(subject)
        if self.scales is not None and self.params.bits != 8:
            raise InputError("scales of a parent are for 8 bits", "write bits: 8, or leave scales_from out")

    def prepare(self, subject: Any) -> None:
        if self.params.gemm:
            Gemms(subject).unfold(self.params.nodes_to_exclude)

    def apply(self, subject: Any) -> Any:
        try:
            with quiet():
                from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
        except ImportError as error:
            raise missing_extra("onnx-ir", "export", "quantizing by blocks") from error
        options = self.params.model_dump(exclude={"gemm", "nodes_to_exclude"})
        quantizer = MatMulNBitsQuantizer(
            graph.copy(subject),
            nodes_to_exclude=list(self.params.nodes_to_exclude),
            op_types_to_quantize=("MatMul",),
            **options,
        )
        with graph.blame_tool("ONNX Runtime could not quantize the graph"), quiet():
            quantizer.process()
        quantized = quantizer.model.model
        self._transfer = None if self.scales is None else ScaleTransfer(self.scales)
        if self._transfer is not None:
            _transfer_scales(quantized, self.factors(subject), self._transfer)
        graph.clear_value_info(quantized)
        graph.drop_unread_weights(quantized)
        return quantized

    def ensures(self, before: Mapping[str, Any], after: Any) -> dict[str, Any]:
        result = super().ensures(before, after)
        return result if self._transfer is None else {**result, "scales": self._transfer.report()}

    @property
    def products(self) -> frozenset[str]:
        return frozenset({"MatMul", "Gemm"} if self.params.gemm else {"MatMul"})

    @property
    def nothing_to_quantize(self) -> str:
        hint = "" if self.params.gemm else "; those of Gemm count with the parameter gemm"
        return f"the graph has no {' or '.join(sorted(self.products))} with a constant matrix{hint}"


def _transfer_scales(quantized: Any, weights: Mapping[str, Any], transfer: ScaleTransfer) -> None:
    """Quantize the matrices of each `MatMulNBits` of 8 bits again with the parent's scales.

    Codes are `[columns, blocks, size]`; the last block of a column is padded, and its padding keeps its codes.
    """
    import numpy as np
    import onnx

    for body in within(quantized.graph):
        stored = {tensor.name: tensor for tensor in body.initializer}
        for node in (node for node in body.node if node.op_type == "MatMulNBits"):
            tensors = [stored[name] for name in node.input[1:4] if name]
            values, scales, *zeros = map(onnx.numpy_helper.to_array, tensors)
            columns, blocks, size = values.shape
            shape = (columns, blocks, 1)
            middle = zeros[0].reshape(shape) if zeros else np.full(shape, 128)
            own = Codes(values, scales.reshape(shape).astype(np.float32), middle.astype(np.float32))
            matrix = onnx.numpy_helper.to_array(weights[node.input[1].removesuffix("_Q8")])
            rows = matrix.reshape(matrix.shape[-2:]).T.astype(np.float32)
            length = rows.shape[1]
            padded = np.pad(rows, ((0, 0), (0, blocks * size - length))).reshape(values.shape)
            codes = transfer.requantize(padded, own, (0, 255), *tensors)
            flat = codes.values.reshape(columns, -1).copy()
            flat[:, length:] = values.reshape(columns, -1)[:, length:]
            for tensor, array in zip(tensors, (flat, codes.scales, codes.zeros), strict=False):
                kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
                content = array.astype(kind).reshape(tensor.dims)
                tensor.CopyFrom(onnx.numpy_helper.from_array(content, tensor.name))
