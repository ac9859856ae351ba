"""A small encoder as exporters write one, and its children as quantizers write them."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer
from onnxruntime.quantization.shape_inference import quant_pre_process
from onnxruntime.transformers.float16 import convert_float_to_float16

from onnxreg.converters.prove.prove import prove
from onnxreg.converters.runtime.sessions import quiet
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.gates.statements import FaithfulnessReport
from support.graphs import graph

HEADS, HIDDEN, WORDS, LABELS = 2, 32, 50, 5
BODY = """
  words = Gather (table, input_ids)
  places = Gather (positions, place_ids)
  embedded = Add (words, places)
  normal = LayerNormalization <axis = -1, epsilon = 1e-12> (embedded, gamma0, beta0)
  q_product = MatMul (normal, q_weight)
  query_sum = Add (q_product, q_bias)
  size = Shape (normal)
  batch = Gather (size, start)
  length = Gather (size, unit_place)
  batch_size = Unsqueeze (batch, zero_axis)
  length_size = Unsqueeze (length, zero_axis)
  split = Concat <axis = 0> (batch_size, length_size, heads, rest)
  joined = Concat <axis = 0> (batch_size, length_size, rest)
  query_heads = Reshape (query_sum, split)
  query = Transpose <perm = [0, 2, 1, 3]> (query_heads)
  k_product = MatMul (normal, k_weight)
  key = Add (k_bias, k_product)
  key_heads = Reshape (key, split)
  turned = Transpose <perm = [0, 2, 3, 1]> (key_heads)
  scores = MatMul (query, turned)
  scaled = Div (scores, root)
  wanted = Cast <to = 9> (attention_mask)
  mask = Unsqueeze (wanted, middle_axes)
  masked = Where (mask, scaled, lowest)
  weights = Softmax <axis = -1> (masked)
  v_product = MatMul (normal, v_weight)
  value = Add (v_product, v_bias)
  value_heads = Reshape (value, split)
  value_turned = Transpose <perm = [0, 2, 1, 3]> (value_heads)
  mixed_heads = MatMul (weights, value_turned)
  mixed_turned = Transpose <perm = [0, 2, 1, 3]> (mixed_heads)
  mixed = Reshape (mixed_turned, joined)
  summed = Add (mixed, normal)
  mean = ReduceMean (summed, last)
  centered = Sub (summed, mean)
  square = Pow (centered, two)
  variance = ReduceMean (square, last)
  stable = Add (variance, epsilon)
  deviation = Sqrt (stable)
  unit = Div (centered, deviation)
  stretched = Mul (unit, gamma1)
  second = Add (stretched, beta1)
  wide_product = MatMul (second, wide_weight)
  wide = Add (wide_product, wide_bias)
  divided = Div (wide, square_root)
  error = Erf (divided)
  plus = Add (error, unity)
  gated = Mul (wide, plus)
  active = Mul (gated, half)
  narrow = MatMul (active, narrow_weight)
  first = Gather <axis = 1> (narrow, start)
  logits = Gemm <transB = 1> (first, head_weight, head_bias)
"""


def parent(seed: int = 0) -> Any:
    """An `onnx.ModelProto` with every kind of weight that quantizers know but convolutions."""
    draw = np.random.default_rng(seed)

    def weight(*dims: int) -> Any:
        return draw.normal(size=dims).astype(np.float32) * np.float32(0.1)

    wide, square = (HIDDEN, 2 * HIDDEN), (HIDDEN, HIDDEN)
    shapes = {"q": square, "k": square, "v": square, "wide": wide}
    floats = {"root": HIDDEN**0.5, "two": 2, "epsilon": 1e-12, "square_root": 2**0.5, "unity": 1, "half": 0.5}
    tensors = {
        "table": weight(WORDS, HIDDEN),
        "positions": weight(16, HIDDEN),
        "narrow_weight": weight(2 * HIDDEN, HIDDEN),
        "head_weight": weight(LABELS, HIDDEN),
        "head_bias": weight(LABELS),
        **{f"{name}_weight": weight(*dims) for name, dims in shapes.items()},
        **{f"{name}_bias": weight(dims[1]) for name, dims in shapes.items()},
        **{f"gamma{at}": 1 + weight(HIDDEN) for at in (0, 1)},
        **{f"beta{at}": weight(HIDDEN) for at in (0, 1)},
        "lowest": np.array(np.finfo(np.float32).min),
        **{name: np.array(value, np.float32) for name, value in floats.items()},
        "middle_axes": [1, 2], "zero_axis": [0], "heads": [HEADS], "rest": [-1], "last": [-1], "unit_place": 1, "start": 0,
    }  # fmt: skip
    inputs = ", ".join(
        f"int64[batch, length] {name}" for name in ("input_ids", "attention_mask", "place_ids")
    )
    model = graph(BODY, inputs, f"float[batch, {LABELS}] logits", **tensors)
    for number, node in enumerate(model.graph.node):
        node.name = f"{node.op_type}_{number}"
    return onnx.shape_inference.infer_shapes(model)


def feeds(count: int = 3) -> Iterator[dict[str, Any]]:
    for seed in range(count):
        draw = np.random.default_rng(seed)
        mask = np.ones((2, 8), np.int64)
        mask[1, 5:] = 0
        yield {
            "input_ids": draw.integers(0, WORDS, (2, 8)),
            "attention_mask": mask,
            "place_ids": np.tile(np.arange(8), (2, 1)),
        }


class _Feeds(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self) -> None:
        self._feeds = feeds()

    def get_next(self) -> Any:
        return next(self._feeds, None)


Make = Callable[[Path, Path], None]


def dynamic(weight_type: str, per_channel: bool, reduce_range: bool) -> Make:
    def make(source: Path, target: Path) -> None:
        kind = QuantType[weight_type]
        quantize_dynamic(source, target, per_channel=per_channel, reduce_range=reduce_range, weight_type=kind)

    return make


def static(form: str, per_channel: bool) -> Make:
    def make(source: Path, target: Path) -> None:
        options = {"quant_format": QuantFormat[form], "per_channel": per_channel}
        quantize_static(source, target, _Feeds(), weight_type=QuantType.QInt8, **options)

    return make


def half(**options: Any) -> Make:
    def make(source: Path, target: Path) -> None:
        onnx.save(convert_float_to_float16(onnx.load(source), **options), target)

    return make


def quantized(source: Path, target: Path, **options: Any) -> None:
    quantizer = MatMulNBitsQuantizer(onnx.load(source), **options)
    quantizer.process()
    onnx.save(quantizer.model.model, target)


def blocks(bits: int, symmetric: bool, size: int = 32) -> Make:
    return partial(quantized, bits=bits, block_size=size, is_symmetric=symmetric)


def rows(symmetric: bool, form: str = "QOperator") -> Make:
    """4 bits by blocks, embedding tables too, or as pairs of operators."""
    operators = ("MatMul", "Gather") if form == "QOperator" else ("MatMul",)
    options = {"quant_format": QuantFormat[form], "op_types_to_quantize": operators}
    config = DefaultWeightOnlyQuantConfig(block_size=32, is_symmetric=symmetric, **options)
    return partial(quantized, algo_config=config)


def preprocessed(source: Path, target: Path) -> None:
    """The sizes of each Reshape, which the parent computes, are stored."""
    first = target.with_suffix(".first")
    quant_pre_process(source, first)
    quantize_dynamic(first, target, per_channel=True)


PROVEN: dict[str, Make] = {
    **{f"dynamic {kind}{' channels' * channels}{' reduced' * reduced}": dynamic(kind, channels, reduced)
       for kind in ("QInt8", "QUInt8") for channels in (False, True) for reduced in (False, True)},
    "float16": half(),
    "float16 io": half(keep_io_types=True),
    "float16 1e4": half(min_positive_val=1e-7, max_finite_val=1e4, keep_io_types=True),
    "float16 blocked": half(op_block_list=["Softmax", "Div", "Gemm"], keep_io_types=True),
    **{f"blocks {bits} {'symmetric' if even else 'range'}": blocks(bits, even) for bits in (4, 8) for even in (True, False)},
    "blocks 4 long": blocks(4, False, 128),
    "blocks 4 rows symmetric": rows(True),
    "blocks 4 rows": rows(False),
    "blocks 4 pairs": rows(False, "QDQ"),
    "sizes stored": preprocessed,
}  # fmt: skip
BOUNDED: dict[str, Make] = {
    f"static {form}{' channels' if channels else ''}": static(form, channels)
    for form in ("QDQ", "QOperator")
    for channels in (False, True)
}


def make_all(directory: Path) -> dict[str, Path]:
    """The parent under "" and every child by its name, as files."""
    source = directory / "parent.onnx"
    onnx.save(parent(), source)
    paths = {"": source}
    with quiet():
        for number, (name, make) in enumerate({**PROVEN, **BOUNDED}.items()):
            paths[name] = directory / f"child{number}.onnx"
            make(source, paths[name])
    return paths


def verdict_of(source: Path, child: Path) -> FaithfulnessReport:
    return prove(source, child, (Digest.of(b"parent"), Digest.of(b"child")))
