"""Small graphs with the operators of ONNX Runtime that passes, optimizers and model builders write."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from onnxreg.schema.query.runtimes import DOMAIN

Feeds = dict[str, Any]
ROWS, WIDTH, HEADS = 2, 32, 2
"""Tokens, features and attention heads of the graphs."""
FLOAT16 = TensorProto.FLOAT16
NUMBERS = np.random.default_rng(0)


def weights(*shape: int) -> Any:
    return (NUMBERS.standard_normal(shape) * 0.2).astype(np.float32)


def codes(low: int, high: int, *shape: int, dtype: Any = np.uint8) -> Any:
    return NUMBERS.integers(low, high, shape).astype(dtype)


def graph(
    operator: str,
    feeds: Feeds,
    *constants: Any,
    domain: str = DOMAIN,
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
    return model([node], inputs, results, stored, 17, 8), feeds


def model(nodes: Any, inputs: Any, results: Any, stored: Any, opset: int, version: int) -> Any:
    body = helper.make_graph(nodes, "g", inputs, results, stored)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(body, opset_imports=imports, ir_version=version)


def by_blocks(bits: int, *more: Any, dtype: Any = np.float32, **attributes: Any) -> tuple[Any, Feeds]:
    """A `MatMulNBits` of a [32, 16] matrix in blocks of 32."""
    scales = (np.abs(weights(16)) / 100).astype(dtype)
    given = {"result": FLOAT16 if dtype == np.float16 else TensorProto.FLOAT, "bits": bits} | attributes
    constants = (codes(0, 256, 16, 1, WIDTH * bits // 8), scales, *more)
    feeds = {"x": weights(ROWS, WIDTH).astype(dtype)}
    return graph("MatMulNBits", feeds, *constants, K=WIDTH, N=16, block_size=32, **given)


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
    version = 8 if opset < 19 else 9 if opset < 21 else 10
    return model(nodes, [value("x", 1, [4])], [value("y", 1, [4])], stored, opset, version), {"x": weights(4)}


def gather(stored: Any, **attributes: Any) -> tuple[Any, Feeds]:
    """A look-up in a table of 10 rows of `WIDTH` values, in blocks of 32."""
    constants = (stored, codes(0, 10, 1, ROWS, dtype=np.int64), np.abs(weights(10, 1)))
    return graph("GatherBlockQuantized", {}, *constants, block_size=32, quantize_axis=1, **attributes)


def half(array: Any) -> Any:
    return array.astype(np.float16)


def cases() -> Iterator[tuple[str, Any, Feeds]]:
    """Each graph by a name, with its feeds."""
    for made in (weights_in_blocks(), integers(), layers(), attention(), dequantized()):
        for name, (found, feeds) in made.items():
            yield name, found, feeds


Made = dict[str, tuple[Any, Feeds]]


def weights_in_blocks() -> Made:
    more = {
        "": {},
        ", accuracy level 1": {"accuracy_level": 1},
        ", accuracy level 4": {"accuracy_level": 4},
        ", float16": {"dtype": np.float16},
        ", accuracy level 4, float16": {"dtype": np.float16, "accuracy_level": 4},
    }
    made = {
        f"{bits}-bit weights{name}": by_blocks(bits, **each) for bits in (4, 8) for name, each in more.items()
    }
    nibbles = codes(0, 256, 10, WIDTH // 2)
    constants = (codes(0, 256, 256), np.abs(weights(16)))
    attributes = {"K": WIDTH, "N": 16, "block_size": 32, "quant_type": 1}
    return made | {
        "2-bit weights": by_blocks(2),
        "4-bit weights, zero points": by_blocks(4, codes(0, 16, 16)),
        "4-bit weights, bias": by_blocks(4, weights(16), absent=(3, 4)),
        "8-bit weights, zero points": by_blocks(8, codes(0, 256, 16)),
        "GatherBlockQuantized, int4": gather(packed_tensor(TensorProto.INT4, 10, WIDTH)),
        "GatherBlockQuantized, uint4": gather(packed_tensor(TensorProto.UINT4, 10, WIDTH)),
        "GatherBlockQuantized, uint8": gather(nibbles),
        "GatherBlockQuantized, bits 4": gather(nibbles, bits=4),
        "GatherBlockQuantized, bits 8": gather(codes(0, 256, 10, WIDTH), bits=8),
        "MatMulBnb4": graph("MatMulBnb4", {"x": weights(ROWS, WIDTH)}, *constants, **attributes),
    }


def integers() -> Made:
    rows = {"x": weights(ROWS, WIDTH)}
    numbers = {"x": codes(0, 256, ROWS, WIDTH)}
    matrix = codes(0, 256, WIDTH, 16)
    scale, zero = np.float32(0.02), np.uint8(128)
    columns = (matrix.astype(np.int8), np.abs(weights(16)), np.zeros(16, np.int8))
    gemm = (scale, zero, matrix, scale, zero, codes(0, 9, 16, dtype=np.int32))
    wide, mask = (codes(0, 256, WIDTH, 3 * WIDTH), weights(3 * WIDTH)), np.ones((1, ROWS), np.int32)
    attention = (*wide, scale, scale, mask, zero, zero)
    return {
        "DynamicQuantizeMatMul": graph("DynamicQuantizeMatMul", rows, matrix, scale, zero),
        "DynamicQuantizeMatMul, columns": graph("DynamicQuantizeMatMul", rows, *columns),
        "MatMulIntegerToFloat": graph("MatMulIntegerToFloat", numbers, matrix, scale, scale, zero, zero),
        "QGemm": graph("QGemm", numbers, *gemm),
        "QAttention": graph("QAttention", {"x": codes(0, 256, 1, ROWS, WIDTH)}, *attention, num_heads=HEADS),
    }


def layers() -> Made:
    tokens = {"x": weights(1, ROWS, WIDTH)}
    two, halves = {**tokens, "s": tokens["x"]}, {"x": half(tokens["x"])}
    features, matrix = weights(WIDTH), weights(16, WIDTH)
    ids = {"x": codes(0, 10, 1, ROWS, dtype=np.int32), "s": np.zeros((1, ROWS), np.int32)}
    tables = (weights(10, WIDTH), weights(4, WIDTH), weights(2, WIDTH), features, features, ids["s"] + 1)
    gemm = ({"x": weights(ROWS, WIDTH)}, weights(WIDTH, 16), weights(16))
    skip, norm = "SkipLayerNormalization", "LayerNormalization"
    f16 = {"result": FLOAT16}
    both = {**halves, "s": halves["x"]}
    return {
        "EmbedLayerNormalization": graph("EmbedLayerNormalization", ids, *tables, outputs=2),
        f"{norm}, float16": graph(norm, halves, *[half(features)] * 2, domain="", **f16),
        skip: graph(skip, two, *[features] * 3),
        f"{skip}, float16": graph(skip, both, *[half(features)] * 3, **f16),
        f"Simplified{norm}": graph(f"Simplified{norm}", tokens, features, domain=""),
        f"SkipSimplified{norm}": graph(f"SkipSimplified{norm}", two, features),
        "Gelu": graph("Gelu", tokens),
        "Gelu, float16": graph("Gelu", halves, **f16),
        "FastGelu": graph("FastGelu", tokens, features),
        "FastGelu, float16": graph("FastGelu", halves, half(features), **f16),
        "BiasGelu": graph("BiasGelu", tokens, features),
        "QuickGelu": graph("QuickGelu", tokens),
        "FusedMatMul": graph("FusedMatMul", tokens, matrix, transB=1, alpha=0.5),
        "FusedMatMul, float16": graph("FusedMatMul", halves, half(matrix), transB=1, **f16),
        "FusedGemm": graph("FusedGemm", *gemm, activation="Relu"),
    }


def attention() -> Made:
    tokens = {"x": weights(1, ROWS, WIDTH)}
    wide = weights(WIDTH, 3 * WIDTH), weights(3 * WIDTH)
    mask = np.ones((1, ROWS), np.int32)
    halves = ({"x": half(tokens["x"])}, *map(half, wide))
    head = WIDTH // HEADS
    angles = np.cos(weights(8, head // 2)), np.sin(weights(8, head // 2))
    qkv = {name: weights(1, ROWS, WIDTH) for name in "qkv"}
    past = {name: weights(1, HEADS, 4, head) for name in ("pk", "pv")}
    lengths = np.array([ROWS - 1], np.int32), np.array(4, np.int32)
    rotary = {"": {}, ", num_heads": {"num_heads": HEADS, "rotary_embedding_dim": 0}}
    rotary[", is_packed_batching"] = {"is_packed_batching": 0}
    grouped: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
        "": ((), {}),
        ", do_rotary": (angles, {"do_rotary": 1, "local_window_size": -1}),
        ", smooth_softmax": ((), {"smooth_softmax": 1}),
        ", softcap": ((), {"softcap": 5.0}),
        ", attention bias": ((weights(1, HEADS, ROWS, 4),), {"absent": (7, 8, 9)}),
        ", head sink": ((weights(HEADS),), {"absent": (7, 8, 9, 10)}),
    }
    heads = {"outputs": 3, "num_heads": HEADS, "kv_num_heads": HEADS}
    many, gqa, turn = "MultiHeadAttention", "GroupQueryAttention", "RotaryEmbedding"
    return {
        "Attention": graph("Attention", tokens, *wide, mask, num_heads=HEADS),
        "Attention, float16": graph("Attention", *halves, num_heads=HEADS, result=FLOAT16),
        many: graph(many, qkv, num_heads=HEADS),
        f"{many}, unidirectional": graph(many, qkv, num_heads=HEADS, unidirectional=1),
        **{turn + name: graph(turn, tokens, np.array([0]), *angles, **each) for name, each in rotary.items()},
        **{
            gqa + name: graph(gqa, qkv | past, *lengths, *more, **each, **heads)
            for name, (more, each) in grouped.items()
        },
    }


def dequantized() -> Made:
    made = {}
    for kind in ("INT16", "UINT16", "INT4", "UINT4", "INT8"):
        number, opset = TensorProto.DataType.Value(kind), 17 if kind == "INT8" else 21
        made[f"DequantizeLinear, {kind.lower()}"] = dequantize(number, opset)
        made[f"{DOMAIN}:DequantizeLinear, {kind.lower()}"] = dequantize(number, 17, DOMAIN)
    for kind in ("FLOAT8E4M3FN", "FLOAT8E5M2"):
        made[f"DequantizeLinear, {kind.lower()}"] = dequantize(TensorProto.DataType.Value(kind), 19)
    return made
