"""`OnnxBlockWiseRtnQuantization`: weights in 4 or 8 bits by blocks, round to nearest, no calibration data."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from onnxreg.converters.onnx.graph_operators import within
from onnxreg.converters.onnx.quiet import quiet
from onnxreg.converters.passes import base
from onnxreg.converters.passes.base import QuantizationPass
from onnxreg.converters.passes.tools import graph
from onnxreg.converters.passes.tools.gemm import unfold_gemms
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
    takes_scales = True

    Params = RtnQuantizationParams

    def requires(self, subject: Any) -> None:
        super().requires(subject)
        if self.scales is not None and self.params.bits != 8:
            raise InputError("scales of a parent are for 8 bits", "write bits: 8, or leave scales_from out")

    def prepare(self, subject: Any) -> None:
        if self.params.gemm:
            unfold_gemms(subject, self.params.nodes_to_exclude)

    def apply(self, subject: Any) -> Any:
        try:
            with quiet():
                from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
        except ImportError as error:
            raise missing_extra("onnx-ir", "export", "quantizing by blocks") from error
        params = self.params
        quantizer = MatMulNBitsQuantizer(
            graph.copy(subject),
            bits=params.bits,
            block_size=params.block_size,
            is_symmetric=params.is_symmetric,
            accuracy_level=params.accuracy_level,
            nodes_to_exclude=list(params.nodes_to_exclude),
            op_types_to_quantize=("MatMul",),
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
        result["weight_error"] = _relative_error(before["factors"], after, self.params.bits)
        if self._transfer is not None:
            result["scales"] = self._transfer.report()
        return result

    @property
    def products(self) -> frozenset[str]:
        return frozenset({"MatMul", "Gemm"} if self.params.gemm else {"MatMul"})

    @property
    def lack(self) -> str:
        hint = "" if self.params.gemm else "; those of Gemm count with the parameter gemm"
        return f"the graph has no {' or '.join(sorted(self.products))} with a constant matrix{hint}"


def _transfer_scales(quantized: Any, factors: Mapping[str, graph.Factor], transfer: ScaleTransfer) -> None:
    """Quantize the matrices of each `MatMulNBits` of 8 bits again with the parent's scales."""
    import numpy as np
    import onnx

    for body in within(quantized.graph):
        stored = {tensor.name: tensor for tensor in body.initializer}
        for node in (node for node in body.node if node.op_type == "MatMulNBits"):
            tensors = [stored[name] for name in node.input[1:4] if name]
            parent = transfer.find(tensors)
            if parent is None:
                continue
            matrix = onnx.numpy_helper.to_array(factors[node.input[1].removesuffix("_Q8")].tensor)
            own = _blocks(*map(onnx.numpy_helper.to_array, tensors))
            columns, blocks, size = own.values.shape
            rows = matrix.reshape(matrix.shape[-2:]).T.astype(np.float32)
            padded = np.pad(rows, ((0, 0), (0, blocks * size - rows.shape[1]))).reshape(own.values.shape)
            codes = transfer.requantize(padded, own, _blocks(*parent), (0, 255))
            values = codes.values.reshape(columns, -1)
            values[:, rows.shape[1] :] = own.values.reshape(columns, -1)[:, rows.shape[1] :]
            for tensor, array in zip(tensors, (codes.values, codes.scales, codes.zeros), strict=False):
                content = array.astype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)).reshape(
                    tensor.dims
                )
                tensor.CopyFrom(onnx.numpy_helper.from_array(content, tensor.name))


def _blocks(packed: Any, scales: Any, zeros: Any = None) -> Codes:
    """The codes of a matrix of 8 bits, `[columns, blocks, size]`, as `MatMulNBits` says they are to be read."""
    import numpy as np

    columns, blocks, _ = packed.shape
    shape = (columns, blocks, 1)
    middle = np.full(shape, 128, np.float32) if zeros is None else zeros.reshape(shape).astype(np.float32)
    return Codes(packed, scales.reshape(shape).astype(np.float32), middle)


def _relative_error(factors: Mapping[str, graph.Factor], after: Any, bits: int) -> float:
    """The root of the squared error over the squared weights, all of them together; four significant digits."""
    import numpy as np
    import onnx

    energy = lost = 0.0
    restored = dict(_restore(after, bits))
    for name, factor in factors.items():
        weight = onnx.numpy_helper.to_array(factor.tensor).astype(np.float32, copy=False)
        weight = weight.reshape(weight.shape[-2:])
        energy += float(np.square(weight, dtype=np.float64).sum())
        lost += float(np.square(weight - restored[name], dtype=np.float64).sum())
    return float(f"{(lost / energy) ** 0.5 if energy else 0.0:.4g}")


def _restore(after: Any, bits: int) -> Iterator[tuple[str, Any]]:
    """Each quantized matrix by its former name, as float32 `[K, N]`, as `MatMulNBits` says it is to be read."""
    import numpy as np
    import onnx

    stored = {tensor.name: tensor for body in within(after.graph) for tensor in body.initializer}
    for body in within(after.graph):
        for node in (node for node in body.node if node.op_type == "MatMulNBits"):
            packed, scales, *zeros = (
                onnx.numpy_helper.to_array(stored[name]) for name in node.input[1:4] if name
            )
            sizes = {entry.name: entry.i for entry in node.attribute}
            columns, blocks, _ = packed.shape
            codes = _unpack(packed, bits).reshape(columns, blocks, -1).astype(np.float32)
            zero = (
                _unpack(zeros[0].reshape(columns, -1), bits)[:, :blocks, None].astype(np.float32)
                if zeros
                else np.float32(2 ** (bits - 1))
            )
            values = (codes - zero) * scales.reshape(columns, blocks, 1).astype(np.float32)
            name = node.input[1].removesuffix(f"_Q{bits}")
            yield name, values.reshape(columns, -1)[:, : sizes["K"]].T


def _unpack(packed: Any, bits: int) -> Any:
    """The codes of the last axis, the low half of each byte first if there are two in it."""
    import numpy as np

    if bits == 8:
        return packed
    return np.stack([packed & 0xF, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)
