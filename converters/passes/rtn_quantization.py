"""`OnnxBlockWiseRtnQuantization`: weights in 4 or 8 bits by blocks, round to nearest, no calibration data."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from onnxreg.converters.onnx.quiet import quiet
from onnxreg.converters.passes import base
from onnxreg.converters.passes.quantization_pass import QuantizationPass
from onnxreg.converters.passes.tools import gemm, graph, matmul_weights
from onnxreg.schema.core.errors import missing_extra


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

    Params = RtnQuantizationParams

    def prepare(self, subject: Any) -> None:
        if self.params.gemm:
            gemm.unfold(subject, self.params.nodes_to_exclude)

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
        with quiet():
            quantizer.process()
        quantized = quantizer.model.model
        graph.clear_value_info(quantized)
        graph.drop_unread_weights(quantized)
        return quantized

    def ensures(self, before: Mapping[str, Any], after: Any) -> dict[str, Any]:
        result = super().ensures(before, after)
        return {**result, "weight_error": _relative_error(before["factors"], after, self.params.bits)}

    @property
    def products(self) -> frozenset[str]:
        return frozenset({"MatMul", "Gemm"} if self.params.gemm else {"MatMul"})

    @property
    def lack(self) -> str:
        hint = "" if self.params.gemm else "; those of Gemm count with the parameter gemm"
        return f"the graph has no {' or '.join(sorted(self.products))} with a constant matrix{hint}"


def _relative_error(factors: Mapping[str, matmul_weights.Factor], after: Any, bits: int) -> float:
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

    stored = {tensor.name: tensor for body in graph.within(after.graph) for tensor in body.initializer}
    for body in graph.within(after.graph):
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
