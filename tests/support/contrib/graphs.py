"""Small graphs with the operators of ONNX Runtime that passes, optimizers and model builders write."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

Feeds = dict[str, Any]
ROWS, WIDTH, HEADS = 2, 32, 2
"""Tokens, features and attention heads of the graphs."""
NUMBERS = np.random.default_rng(0)


def weights(*shape: int) -> Any:
    return (NUMBERS.standard_normal(shape) * 0.2).astype(np.float32)


def codes(low: int, high: int, *shape: int, dtype: Any = np.uint8) -> Any:
    return NUMBERS.integers(low, high, shape).astype(dtype)


def graph(
    operator: str,
    feeds: Feeds,
    constants: Iterable[Any] = (),
    *,
    domain: str = "com.microsoft",
    opset: int = 17,
    outputs: int = 1,
    result: int = TensorProto.FLOAT,
    absent: tuple[int, ...] = (),
    **attributes: Any,
) -> tuple[Any, Feeds]:
    """A model of one node: the feeds are its first operands, then the constants; the places in `absent` stay empty."""
    stored = [item if isinstance(item, TensorProto) else numpy_helper.from_array(item) for item in constants]
    for number, tensor in enumerate(stored):
        tensor.name = f"c{number}"
    operands = [*feeds, *(tensor.name for tensor in stored)]
    for place in absent:
        operands.insert(place, "")
    names = [f"y{number}" for number in range(outputs)]
    node = helper.make_node(operator, operands, names, domain=domain, **attributes)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    results = [helper.make_tensor_value_info(names[0], result, None)]
    body = helper.make_graph([node], "g", inputs, results, stored)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(body, opset_imports=imports, ir_version=8 if opset < 20 else 10), feeds


def by_blocks(bits: int, *more: Any, dtype: Any = np.float32, **attributes: Any) -> tuple[Any, Feeds]:
    """A `MatMulNBits` of a [32, 16] matrix in blocks of 32."""
    columns = 16
    packed = codes(0, 256, columns, 1, WIDTH * bits // 8)
    result = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return graph(
        "MatMulNBits",
        {"x": weights(ROWS, WIDTH).astype(dtype)},
        [packed, (np.abs(weights(columns)) / 100).astype(dtype), *more],
        **({"result": result, "K": WIDTH, "N": columns, "bits": bits, "block_size": 32} | attributes),
    )


def packed_tensor(kind: int, *shape: int) -> Any:
    """A tensor of a type that numpy does not have, with values 0 and 1."""
    return helper.make_tensor("c", kind, shape, codes(0, 2, *shape).flatten().tolist())


def dequantize(kind: int, opset: int, domain: str = "") -> tuple[Any, Feeds]:
    """`x + DequantizeLinear(constant)`, with a zero point: the scheme of static quantization."""
    zero = helper.make_tensor("z", kind, [], [0])
    stored = [packed_tensor(kind, 4), numpy_helper.from_array(np.float32(0.5)), zero]
    for name, tensor in zip("qsz", stored, strict=True):
        tensor.name = name
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], domain=domain),
        helper.make_node("Add", ["x", "d"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    body = helper.make_graph(nodes, "g", [value("x", 1, [4])], [value("y", 1, [4])], stored)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(
        body, opset_imports=imports, ir_version=8 if opset < 19 else 9 if opset < 21 else 10
    ), {"x": weights(4)}


def cases() -> Iterator[tuple[str, Any, Feeds]]:
    """Each graph by a name, with its feeds."""
    for name, (model, feeds) in _cases().items():
        yield name, model, feeds


def _cases() -> dict[str, tuple[Any, Feeds]]:
    tokens = {"x": weights(1, ROWS, WIDTH)}
    halves = {"x": tokens["x"].astype(np.float16)}
    half = {"result": TensorProto.FLOAT16}
    int8 = np.int8
    head = WIDTH // HEADS
    cache = np.cos(weights(8, head // 2)), np.sin(weights(8, head // 2))
    qkv = {name: weights(1, ROWS, WIDTH) for name in "qkv"}
    past = weights(1, HEADS, 4, head), weights(1, HEADS, 4, head)
    lengths = np.array([ROWS - 1], np.int32), np.array(4, np.int32)
    grouped = {"outputs": 3, "num_heads": HEADS, "kv_num_heads": HEADS}
    step = {**qkv, "pk": past[0], "pv": past[1]}
    table = weights(10, WIDTH)
    quantized = codes(0, 256, WIDTH, 16)
    scale, zero = np.float32(0.02), np.uint8(128)
    rows = {"x": weights(ROWS, WIDTH)}
    bytes_ = {"x": codes(0, 256, ROWS, WIDTH)}
    places = {"x": codes(0, 10, 1, ROWS, dtype=np.int64)}
    made = {
        "4-bit weights": by_blocks(4),
        "4-bit weights, zero points": by_blocks(4, codes(0, 16, 16)),
        "4-bit weights, accuracy level 1": by_blocks(4, accuracy_level=1),
        "4-bit weights, accuracy level 4": by_blocks(4, accuracy_level=4),
        "4-bit weights, float16": by_blocks(4, dtype=np.float16),
        "4-bit weights, accuracy level 4, float16": by_blocks(4, dtype=np.float16, accuracy_level=4),
        "4-bit weights, bias": by_blocks(4, weights(16), absent=(3, 4)),
        "8-bit weights": by_blocks(8),
        "8-bit weights, zero points": by_blocks(8, codes(0, 256, 16)),
        "8-bit weights, accuracy level 1": by_blocks(8, accuracy_level=1),
        "8-bit weights, accuracy level 4": by_blocks(8, accuracy_level=4),
        "8-bit weights, float16": by_blocks(8, dtype=np.float16),
        "8-bit weights, accuracy level 4, float16": by_blocks(8, dtype=np.float16, accuracy_level=4),
        "2-bit weights": by_blocks(2),
        "DynamicQuantizeMatMul": graph("DynamicQuantizeMatMul", rows, [quantized, scale, zero]),
        "DynamicQuantizeMatMul, columns": graph(
            "DynamicQuantizeMatMul", rows, [quantized.astype(int8), np.abs(weights(16)), np.zeros(16, int8)]
        ),
        "MatMulIntegerToFloat": graph("MatMulIntegerToFloat", bytes_, [quantized, scale, scale, zero, zero]),
        "QGemm": graph(
            "QGemm",
            {"x": bytes_["x"]},
            [scale, zero, quantized, scale, zero, codes(0, 9, 16, dtype=np.int32)],
        ),
        "QAttention": graph(
            "QAttention",
            {"x": codes(0, 256, 1, ROWS, WIDTH)},
            [
                codes(0, 256, WIDTH, 3 * WIDTH),
                weights(3 * WIDTH),
                scale,
                scale,
                np.ones((1, ROWS), np.int32),
                zero,
                zero,
            ],
            num_heads=HEADS,
        ),
        "EmbedLayerNormalization": graph(
            "EmbedLayerNormalization",
            {"x": codes(0, 10, 1, ROWS, dtype=np.int32), "s": np.zeros((1, ROWS), np.int32)},
            [
                table,
                weights(4, WIDTH),
                weights(2, WIDTH),
                weights(WIDTH),
                weights(WIDTH),
                np.ones((1, ROWS), np.int32),
            ],
            outputs=2,
        ),
        "LayerNormalization, float16": graph(
            "LayerNormalization", halves, [weights(WIDTH).astype(np.float16)] * 2, domain="", **half
        ),
        "SkipLayerNormalization": graph(
            "SkipLayerNormalization", {**tokens, "s": tokens["x"]}, [weights(WIDTH)] * 3
        ),
        "SkipLayerNormalization, float16": graph(
            "SkipLayerNormalization",
            {**halves, "s": halves["x"]},
            [weights(WIDTH).astype(np.float16)] * 3,
            **half,
        ),
        "SimplifiedLayerNormalization": graph(
            "SimplifiedLayerNormalization", tokens, [weights(WIDTH)], domain=""
        ),
        "SkipSimplifiedLayerNormalization": graph(
            "SkipSimplifiedLayerNormalization", {**tokens, "s": tokens["x"]}, [weights(WIDTH)]
        ),
        "Gelu": graph("Gelu", tokens),
        "Gelu, float16": graph("Gelu", halves, **half),
        "FastGelu": graph("FastGelu", tokens, [weights(WIDTH)]),
        "FastGelu, float16": graph("FastGelu", halves, [weights(WIDTH).astype(np.float16)], **half),
        "BiasGelu": graph("BiasGelu", tokens, [weights(WIDTH)]),
        "QuickGelu": graph("QuickGelu", tokens),
        "FusedMatMul": graph("FusedMatMul", tokens, [weights(16, WIDTH)], transB=1, alpha=0.5),
        "FusedMatMul, float16": graph(
            "FusedMatMul", halves, [weights(16, WIDTH).astype(np.float16)], transB=1, **half
        ),
        "FusedGemm": graph("FusedGemm", rows, [weights(WIDTH, 16), weights(16)], activation="Relu"),
        "Attention": graph(
            "Attention",
            tokens,
            [weights(WIDTH, 3 * WIDTH), weights(3 * WIDTH), np.ones((1, ROWS), np.int32)],
            num_heads=HEADS,
        ),
        "Attention, float16": graph(
            "Attention",
            halves,
            [weights(WIDTH, 3 * WIDTH).astype(np.float16), weights(3 * WIDTH).astype(np.float16)],
            num_heads=HEADS,
            **half,
        ),
        "MultiHeadAttention": graph("MultiHeadAttention", qkv, num_heads=HEADS),
        "MultiHeadAttention, unidirectional": graph(
            "MultiHeadAttention", qkv, num_heads=HEADS, unidirectional=1
        ),
        "RotaryEmbedding": graph("RotaryEmbedding", tokens, [np.array([0]), *cache]),
        "RotaryEmbedding, num_heads": graph(
            "RotaryEmbedding", tokens, [np.array([0]), *cache], num_heads=HEADS, rotary_embedding_dim=0
        ),
        "RotaryEmbedding, is_packed_batching": graph(
            "RotaryEmbedding", tokens, [np.array([0]), *cache], is_packed_batching=0
        ),
        "GroupQueryAttention": graph("GroupQueryAttention", step, lengths, **grouped),
        "GroupQueryAttention, do_rotary": graph(
            "GroupQueryAttention", step, [*lengths, *cache], do_rotary=1, local_window_size=-1, **grouped
        ),
        "GroupQueryAttention, smooth_softmax": graph(
            "GroupQueryAttention", step, lengths, smooth_softmax=1, **grouped
        ),
        "GroupQueryAttention, softcap": graph("GroupQueryAttention", step, lengths, softcap=5.0, **grouped),
        "GroupQueryAttention, attention bias": graph(
            "GroupQueryAttention", step, [*lengths, weights(1, HEADS, ROWS, 4)], absent=(7, 8, 9), **grouped
        ),
        "GroupQueryAttention, head sink": graph(
            "GroupQueryAttention", step, [*lengths, weights(HEADS)], absent=(7, 8, 9, 10), **grouped
        ),
        "GatherBlockQuantized, int4": _gather(packed_tensor(TensorProto.INT4, 10, WIDTH), places),
        "GatherBlockQuantized, uint4": _gather(packed_tensor(TensorProto.UINT4, 10, WIDTH), places),
        "GatherBlockQuantized, uint8": _gather(codes(0, 256, 10, WIDTH // 2), places),
        "GatherBlockQuantized, bits 4": _gather(codes(0, 256, 10, WIDTH // 2), places, bits=4),
        "GatherBlockQuantized, bits 8": _gather(codes(0, 256, 10, WIDTH), places, bits=8),
        "MatMulBnb4": graph(
            "MatMulBnb4",
            rows,
            [codes(0, 256, 256), np.abs(weights(16))],
            K=WIDTH,
            N=16,
            block_size=32,
            quant_type=1,
        ),
    }
    for kind in ("INT16", "UINT16", "INT4", "UINT4"):
        number = TensorProto.DataType.Value(kind)
        made[f"DequantizeLinear, {kind.lower()}"] = dequantize(number, 21)
        made[f"com.microsoft:DequantizeLinear, {kind.lower()}"] = dequantize(number, 17, "com.microsoft")
    made["DequantizeLinear, int8"] = dequantize(TensorProto.INT8, 17)
    made["com.microsoft:DequantizeLinear, int8"] = dequantize(TensorProto.INT8, 17, "com.microsoft")
    for kind in ("FLOAT8E4M3FN", "FLOAT8E5M2"):
        made[f"DequantizeLinear, {kind.lower()}"] = dequantize(TensorProto.DataType.Value(kind), 19)
    return made


def _gather(stored: Any, places: Feeds, **attributes: Any) -> tuple[Any, Feeds]:
    """A look-up in a table of 10 rows of `WIDTH` values, in blocks of 32; indices are a feed, the table comes first."""
    indices = numpy_helper.from_array(places["x"] % 10, "i")
    model, _ = graph(
        "GatherBlockQuantized",
        {},
        [stored, indices, np.abs(weights(10, 1))],
        block_size=32,
        quantize_axis=1,
        **attributes,
    )
    return model, {}
