"""Graphs beyond a small encoder: convolutions, subgraphs, functions, external data, bfloat16; and hostile ones."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime import InferenceSession
from onnxruntime.quantization import QuantType, quantize_dynamic
from support.graphs import store
from support.prove.children import verdict_of
from support.prove.graphs import SCALE, WEIGHT, build, verdict

from onnxreg.converters.prove import operators
from onnxreg.converters.runtime.sessions import quiet
from onnxreg.schema.core.canonical import Digest

SQUARE, IMAGE = "float[n, 8, 8] x => float[n, 8, 8] y", "float[n, 3, 8, 8] x => float[n, 4, m, k] y"
PAIR, TURNED = (
    "float[n, 8] x => float[n, 8] y, float[n, 8] z",
    "float[n, 8] x => float[n, 8] z, float[n, 8] y",
)
BRANCHES = """c = ReduceSum <keepdims = 0> (x) t = Greater (c, zero)
  y = If (t) <then_branch = g1 () => (float[n, 8] t) {{ t = MatMul (x, {}) }}, else_branch = g2 () => (float[n, 8] e) {{ e = {} (x, {}) }}>"""
BRANCH = BRANCHES.format("w", "Add", "b")
TWICE = (
    '<domain: "local", opset_import: ["" : 18]> Twice (a, b) => (c) { h = MatMul (a, b) c = MatMul (h, b) }'
)
CODED = "v = DequantizeLinear ({}) y = MatMul (x, v)"
SHARED = "v = DequantizeLinear (q, s, z) h = MatMul (x, v) u = DequantizeLinear ({}) y = MatMul (h, u)"
DYNAMIC = "c, d, k = DynamicQuantizeLinear (x) i = MatMulInteger (c, q, k) f = Cast <to = 1> (i) t = Mul (d, scale) y = Mul (f, t)"
OWN = """r = Relu (x) p, t, k = DynamicQuantizeLinear (r) c, d, e = DynamicQuantizeLinear (x)
  i = MatMulInteger (c, q, {}) f = Cast <to = 1> (i) m = Mul ({}, s) y = Mul (f, m)"""
CONSTANT_FIRST = """c, d, k = DynamicQuantizeLinear (x) i = MatMulInteger (q, c, , k) f = Cast <to = 1> (i)
  t = Mul (scale, d) y = Mul (f, t)"""
CODED_CONV = "y = QLinearConv (x, step, u8, kernel, s, z, s, u8, bias)"
CONV = {"kernel": np.ones((4, 3, 1, 1), np.int8), "bias": np.zeros(4, np.int32)}
DIAGONAL, COLUMNS = np.diag(np.full(512, 127, np.float32)), np.abs(WEIGHT).max(axis=0) / np.float32(127)
EMBEDDED = "i = Cast <to = 6> (x) e, m = com.microsoft.EmbedLayerNormalization (i, , w, w, , a, a) {}"
INTEGER = "i = Cast <to = 6> (x) g = Gemm (i, i7) h = Gemm (i, i2) {}"
GELU = "{before} r = Div (h, root) e = Erf (r) f = Add (e, one) m = Mul (h, f) y = Mul (m, half)"
RELU, PRODUCT = "h = Relu (x)", "h = MatMul (x, w)"
NORMAL = """m = ReduceMean (x, last) d = Sub (x, m) p = Pow (d, two) v = ReduceMean (p, last)
  e = Add (v, epsilon) r = Sqrt (e) n = Div (d, r) g = Mul (n, a) y = Add (g, a)"""
CHOICE = "r = Relu (x) g = Greater (x, r) {}"
PROVEN, BOUNDED, OTHER = ("proven", "bounded", "not-provable")
Row = tuple[str, str, str, str, dict[str, Any], dict[str, Any]]


def row(parent: str, child: str, state: str, reason: str = "", both: Any = None, **of_child: Any) -> Row:
    """A parent, a child, and what is expected; `both` are arguments of `build` for both, the others for the child."""
    return parent, child, state, reason, both or {}, of_child


ROWS = [
    row(BRANCH, BRANCH, PROVEN),
    row(BRANCH, BRANCHES.format("w", "Sub", "b"), OTHER),
    row(BRANCH, BRANCHES.format("w", "Add", "x"), OTHER),
    row(BRANCH, BRANCHES.format("v", "Add", "b"), OTHER, "v differs from the parent's"),
    row("h = MatMul (x, w) y = MatMul (h, w)", "y = local.Twice (x, w)", PROVEN, more=TWICE),
    # versions of operators
    row("y = Softmax (x)", "y = Softmax (x)", OTHER, opset=12),
    row("y = Relu (x)", "y = Relu (x)", PROVEN, opset=12),
    row("y = local.Any (x)", "y = local.Any (x)", PROVEN),
    row("y = local.Any (x)", "y = local.Any (x)", OTHER, "is of operator version 7, in the parent 1", local=7),
    # hostile and random graphs
    row("y = Add (x, a)", "y = MatMul (x, nothing)", OTHER),
    row("y = Add (x, a)", "r = RandomNormalLike (x) y = Add (x, r)", OTHER),
    row("y = Add (x, a)", "y = local.Nothing (x)", OTHER),
    row("y = Add (x, a)", "v = ConstantOfShape (sizes) y = Add (x, v)", OTHER),
    row("y = Relu (x)", "h = Add (x, k) k = Relu (h) y = Add (h, k)", OTHER),
    *(row(body, body, OTHER, "is random") for body in (
        "r = RandomNormalLike (x) y = Add (x, r)", "y = Dropout (x, ratio, on)", "y = local.Noise <seed = 1.0> (x)",
        "c = ReduceSum <keepdims = 0> (x) t = Greater (c, ratio) y = Dropout (x, ratio, t)",
        "y, m = com.microsoft.BitmaskDropout (x, ratio, on)",
    )),
    row("y = Identity (x)", "y = Dropout (x, ratio, off)", PROVEN),
    # names, order and number of inputs and outputs
    row("y = Relu (x)", "z = Relu (x)", OTHER, "outputs differ: the child has z; the parent has y", head="float[n, 8] x => float[n, 8] z"),
    row("y = Relu (x)", "y = Relu (k)", OTHER, "inputs differ: the child has k; the parent has x", head="float[n, 8] k => float[n, 8] y"),
    row("y = Relu (x)", "y = Relu (x)", OTHER, "x is int64, in the parent float32", head="int64[n, 8] x => float[n, 8] y"),
    row("y = Relu (x) z = Sigmoid (x)", "y = Relu (x) z = Sigmoid (x)", OTHER, "outputs differ: the child has z, y; the parent has y, z", {"head": PAIR}, head=TURNED),
    row("y = Relu (x) z = Sigmoid (x)", "z = Relu (x) y = Sigmoid (x)", OTHER, both={"head": PAIR}),
    row("p, q = Split <axis = 1> (x) y = Relu (p)", "p, q, r, s = Split <axis = 1> (x) y = Relu (p)", OTHER, "number of outputs", {"opset": 13}),
    row("y, m, v, n, w = BatchNormalization (x, a, a, a, a)", "y = BatchNormalization (x, a, a, a, a)", OTHER, "number of outputs", {"opset": 9}),
    row("y, z = local.Parts (x)", "y, z, w = local.Parts (x)", OTHER, "number of outputs"),
    row("y, z = com.microsoft.Parts (x)", "y = com.microsoft.Parts (x)", OTHER, "number of outputs"),
    row("y = MaxPool <kernel_shape = [2, 2]> (x)", "y, places = MaxPool <kernel_shape = [2, 2]> (x)", PROVEN, both={"head": "float[n, 3, 8, 8] x => float[n, 3, k, l] y"}),
    row("y = local.Any <a = 1> (x)", "y = local.Any <a = 1.0> (x)", OTHER, "differs from the parent's local:Any 'y' in a"),
    row("y = local.Any <a = 0.0> (x)", "y = local.Any <a = -0.0> (x)", OTHER, "differs from the parent's local:Any 'y' in a"),
    row("y = Concat <axis = 0> (x, h)", "y = Concat <axis = 0> (x, h)", PROVEN, both={"h": np.zeros((0, 8), np.float32)}, h=np.zeros((0, 8), np.float16)),
    # numbers beside values
    row("h = Add (x, twos) y = Mul (h, ones)", "y = Add (x, twos)", PROVEN),
    row("y = Mul (x, one)", "y = Identity (x)", PROVEN),
    row("y = Mul (x, two)", "y = Identity (x)", OTHER),
    row("y = Mul (x, ones)", "y = Identity (x)", OTHER, "", {"head": "float x => float[1] y"}, head="float x => float y"),
    row("y = Relu (x)", "s = Add (x, zeros) y = Relu (s)", OTHER, both={"head": SQUARE}),
    row(GELU.format(before=RELU), RELU + " y = com.microsoft.Gelu (h)", PROVEN),
    *(row(GELU.format(before=RELU), GELU.format(before=RELU), OTHER, **{name: np.full((1, 1, 1), value, np.float32)})
      for name, value in {"half": 0.5, "one": 1, "root": 2**0.5}.items()),
    *(row(PRODUCT + " y = com.microsoft.Gelu (h)", GELU.format(before=PRODUCT), PROVEN, **{name: np.full(1, value, np.float32)})
      for name, value in {"half": 0.5, "one": 1, "root": 2**0.5}.items()),
    row(GELU.format(before=RELU), "h = Relu (x) r = Div (h, root) e = Erf (r) f = Add (e, one) m = Mul (h, half) y = Mul (m, f)", PROVEN),
    row(GELU.format(before=RELU), GELU.format(before=RELU), OTHER, root=1.5),
    row("d = Div (x, twos) y = Erf (d)", "d = Div (x, two) y = Erf (d)", PROVEN),
    row("d = Div (x, twos) y = Erf (d)", "d = Div (x, two) y = Erf (d)", OTHER, both={"head": "float x => float[1] y"}),
    row("y = LayerNormalization (x, a, a)", NORMAL, PROVEN),
    row("y = LayerNormalization (x, a, a)", NORMAL, OTHER, epsilon=np.full((1, 1, 1), 1e-5, np.float32)),
    row("y = SimplifiedLayerNormalization (x, b)", "y = SimplifiedLayerNormalization <epsilon = 0.1> (x, b)", OTHER, both={"head": SQUARE}),
    # casts that may cut a fraction
    row(EMBEDDED.format("y = Cast <to = 1> (e)"), EMBEDDED.format("f = Cast <to = 6> (e) y = Cast <to = 1> (f)"), OTHER),
    row("v = com.microsoft.QuantizeLinear (x, s, u8) y = Cast <to = 1> (v)", "v = com.microsoft.QuantizeLinear (x, s, u8) r = Cast <to = 3> (v) y = Cast <to = 1> (r)", OTHER),
    row(INTEGER.format("k = Cast <to = 1> (g) l = Cast <to = 1> (h) y = Div (k, l)"), INTEGER.format("d = Div (g, h) y = Cast <to = 1> (d)"), OTHER),
    row("u = local.Any (x) y = Cast <to = 1> (u)", "u = local.Any (x) v = Cast <to = 6> (u) y = Cast <to = 1> (v)", OTHER),
    # codes, scales and zero points
    row("y = MatMul (x, w)", CODED.format("q, s"), PROVEN),
    row("y = MatMul (x, w)", CODED.format("q, s, z"), PROVEN, z=np.zeros((1, 1), np.int8)),
    row("y = MatMul (x, w)", CODED.format("q, s"), BOUNDED, "no known rule gives the scales of q", q=np.zeros((8, 8), np.int8), s=100.0),
    row("y = MatMul (x, w)", CODED.format("q, s"), OTHER, "a scale that is not a number", s=np.float32(np.nan)),
    row("y = MatMul (x, w)", CODED.format("q, s"), OTHER, "a scale of zero for weights that are not zero", s=0.0),
    row("y = MatMul (x, w)", CODED.format("q, s").replace("Linear", "Linear <axis = 1>"), OTHER, "a scale of zero for weights that are not zero",
        s=np.r_[np.ones(7), 0].astype(np.float32), q=np.zeros((8, 8), np.int8)),
    *(row("y = MatMul (x, w)", CODED.format("q, s"), OTHER, "values that are not numbers", {"w": np.where(np.eye(8), np.float32(value), WEIGHT)})
      for value in (np.nan, np.inf)),
    row("y = MatMul (x, w)", CODED.format("q, one"), BOUNDED, "by up to 1 steps at [511, 511]", {"head": "float[n, 512] x => float[n, 512] y", "w": DIAGONAL},
        q=np.diag(np.r_[np.full(511, 127), 126]).astype(np.int8)),
    row("h = MatMul (x, w) y = MatMul (h, w)", SHARED.format("q, s, z"), PROVEN),
    row("h = MatMul (x, w) y = MatMul (h, w)", SHARED.format("q, t, z"), OTHER, t=2 * SCALE),
    row("h = MatMul (x, w) y = MatMul (h, w)", SHARED.format("q, s, k"), OTHER, k=np.int8(90)),
    row("y = MatMul (x, w)", DYNAMIC, PROVEN, scale=SCALE),
    row("y = MatMul (x, w)", DYNAMIC, PROVEN, scale=SCALE.reshape(1)),
    row("y = MatMul (x, w)", DYNAMIC, OTHER, scale=SCALE.reshape(1, 1, 1)),
    row("y = MatMul (w, x)", CONSTANT_FIRST, PROVEN, both={"head": "float[8, 8] x => float[8, 8] y"}, scale=SCALE),
    row("y = MatMul (w, x)", CONSTANT_FIRST, OTHER, both={"head": "float[8, 8] x => float[8, 8] y"}, scale=COLUMNS, q=np.rint(WEIGHT / COLUMNS).astype(np.int8)),
    row(CODED_CONV, CODED_CONV, PROVEN, both={"head": "uint8[n, 3, 8, 8] x, float step => uint8[n, 4, 8, 8] y", **CONV}),
    row("y = MatMul (x, w)", OWN.format("e", "d"), PROVEN),
    row("y = MatMul (x, w)", OWN.format("e", "t"), OTHER),
    row("y = MatMul (x, w)", OWN.format("k", "d"), OTHER),
    row("p = QuantizeLinear (x, half, u8) d = DequantizeLinear (p, half, u8) y = Relu (d)", "y = Relu (x)", BOUNDED, "activations of the parent have a fixed range"),
    # optimizers
    *(row(f"k = Shape (x) e = {name} (x, k) y = Relu (e)", "y = Relu (x)", PROVEN) for name in ("Expand", "Reshape")),
    row("t = Transpose <perm=[1,0]> (x) k = Shape (t) e = Reshape (x, k) y = Relu (e)", "y = Relu (x)", OTHER),
    row("t = Transpose <perm=[0,2,1]> (x) y = Relu (t)", "r = Relu (x) y = Transpose <perm=[0,2,1]> (r)", PROVEN, both={"head": SQUARE}),
    row("t = Transpose <perm=[0,2,1]> (x) y = MatMul (t, w)", "y = com.microsoft.FusedMatMul <transA=1> (x, w)", PROVEN, both={"head": SQUARE}),
    row("c = Concat <axis=2> (x, x) y = Transpose <perm=[0,2,1]> (c)", "t = Transpose <perm=[0,2,1]> (x) y = Concat <axis=1> (t, t)", PROVEN, both={"head": SQUARE}),
    row("c = Concat <axis=2> (x, x) y = Transpose <perm=[0,2,1]> (c)", "t = Transpose <perm=[0,2,1]> (x) y = Concat <axis=2> (t, t)", OTHER, both={"head": SQUARE}),
    row("c = Slice (x, onei, three, twoi) y = Transpose <perm=[0,2,1]> (c)", "t = Transpose <perm=[0,2,1]> (x) y = Slice (t, onei, three, onei)", PROVEN, both={"head": SQUARE}),
    row("c = Slice (x, i, j) y = Transpose <perm=[1,0,2]> (c)", "t = Transpose <perm=[1,0,2]> (x) y = Slice (t, i, j)", OTHER,
        both={"head": SQUARE, "i": np.array([1, 0]), "j": np.array([3, 4])}),
    row("t = Transpose <perm=[0,2,1]> (x) y = Add (t, b)", "k = Add (x, b) y = Transpose <perm=[0,2,1]> (k)", OTHER, both={"head": SQUARE}),
    row("t = Softmax (x) y = Transpose <perm=[0,2,1]> (t)", "t = Transpose <perm=[0,2,1]> (x) y = Softmax (t)", OTHER, both={"head": SQUARE}),
    row("y = MatMul (x, w)", "y = com.microsoft.FusedMatMul <transA=1> (x, w)", OTHER, both={"head": SQUARE}),
    row("y = MatMul (x, w)", "y = com.microsoft.FusedMatMul <transBatchA=1> (x, w)", OTHER, both={"head": SQUARE}),
    row(CHOICE.format("n = Not (g) y = Where (n, x, r)"), CHOICE.format("y = Where (g, r, x)"), PROVEN),
    row(CHOICE.format("n = Not (g) y = Where (n, x, r)"), CHOICE.format("y = Where (g, x, r)"), OTHER),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ROWS)), ids=lambda number: f"{number} {ROWS[number][1][:60]}")
def test_a_child_of_another_graph(tmp_path, number):
    parent, child, state, reason, both, of_child = ROWS[number]
    models = build(parent, **both), build(child, **{**both, **of_child})
    actual, reasons = verdict(tmp_path, *models)
    assert (actual, reason in reasons) == (state, True), reasons
    assert state != PROVEN or not reasons


def test_types_of_contrib_operators_are_those_of_onnx_runtime():
    """The first output has the type of the first operand that is floating point."""
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    schemas = {item.name: item for item in get_all_operator_schema() if item.domain == operators.CONTRIB}
    for name in operators.CONTRIB_FLOATS:
        floats = {
            item.type_param_str: "tensor(float)" in item.allowed_type_strs
            for item in schemas[name].type_constraints
        }
        first = next(item.typeStr for item in schemas[name].inputs if floats.get(item.typeStr))
        assert first == schemas[name].outputs[0].typeStr, name


@pytest.mark.parametrize("kind", ["convolution", "both factors"])
def test_children_of_a_quantizer(tmp_path, kind):
    parent = build("p = MatMul (w, v) y = Add (x, p)")
    options: dict[str, Any] = {"extra_options": {"MatMulConstBOnly": False}}
    if kind == "convolution":
        weight = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
        body = "h = Conv <pads = [1, 1, 1, 1]> (x, kernel, bias) y = Relu (h)"
        parent = build(body, IMAGE, kernel=weight, bias=weight[:, 0, 0, 0])
        options = {"weight_type": QuantType.QUInt8}
    onnx.save(parent, tmp_path / "source.onnx")
    with quiet():
        quantize_dynamic(tmp_path / "source.onnx", tmp_path / "small.onnx", **options)
    child = onnx.load(tmp_path / "small.onnx")
    (node,) = (one for one in child.graph.node if one.op_type in ("ConvInteger", "MatMulInteger"))
    assert verdict(tmp_path, parent, child) == (PROVEN, "")
    if kind == "convolution":
        (pads,) = (item for item in node.attribute if item.name == "pads")
        pads.ints[0], pads.ints[2] = 0, 2
    else:
        store(child, "w_scale", SCALE * np.float32(1.5))
    assert verdict(tmp_path, parent, child)[0] != PROVEN


@pytest.mark.parametrize("wrong", [False, True])
def test_bfloat16_is_the_nearest_value(tmp_path, wrong):
    bits = WEIGHT.view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    rounded[3, 4] += wrong
    child = build("h = Cast <to = 1> (k) y = MatMul (x, h)")
    child.graph.initializer.append(
        onnx.TensorProto(
            name="k", data_type=onnx.TensorProto.BFLOAT16, dims=[8, 8], raw_data=rounded.tobytes()
        )
    )
    state, reason = verdict(tmp_path, "y = MatMul (x, w)", child)
    assert (state, "[3, 4]" in reason) == ((BOUNDED, True) if wrong else (PROVEN, False))


def test_external_data_is_read_where_it_is(tmp_path):
    parent, child = build("y = MatMul (x, w)"), tmp_path / "child.onnx"
    onnx.save(parent, tmp_path / "parent.onnx")
    onnx.save(parent, child, save_as_external_data=True, location="w.bin", size_threshold=0)
    report = verdict_of(tmp_path / "parent.onnx", child)
    assert (report.verdict, report.nodes, report.tensors, report.weights) == (PROVEN, 2, 1, 64)
    assert [*report.external_data.values()] == [(Digest.of((tmp_path / "w.bin").read_bytes()),)]
    data = bytearray((tmp_path / "w.bin").read_bytes())
    data[5] ^= 1
    (tmp_path / "w.bin").write_bytes(data)
    assert verdict_of(tmp_path / "parent.onnx", child).verdict == OTHER


def test_clipped_weights_are_counted(tmp_path):
    scale = SCALE * np.float32(0.95)
    codes = np.clip(np.rint(WEIGHT / scale), -128, 127).astype(np.int8)
    clipped = int((np.abs(WEIGHT / scale) > 127.5).sum())
    state, reason = verdict(tmp_path, "y = MatMul (x, w)", build(CODED.format("q, s"), q=codes, s=scale))
    expected = f"no known rule gives the scales of q; {clipped} of 64 weights are clipped"
    assert (state, reason) == (BOUNDED, expected)


@pytest.mark.more
def test_a_long_chain_needs_no_stack_and_levels_no_time(tmp_path):
    """Sixty levels that use a value twice are 2**60 paths."""
    chains = [
        ["v0 = Relu (x)", *(f"v{at} = Sigmoid (v{at - 1})" for at in range(1, 5000)), "y = Relu (v4999)"]
    ]
    for name in ("Add", "Mul"):
        steps = [f"v{at} = {name} (v{at - 1}, v{at - 1})" for at in range(1, 60)]
        chains.append(["v0 = Relu (x)", *steps, "m = Mul (v59, ones) y = Add (m, x)"])
    for chain in chains:
        body = " ".join(chain)
        assert verdict(tmp_path, body, body) == (PROVEN, "")
        assert verdict(tmp_path, body, body.replace("v0 = Relu", "v0 = Tanh"))[0] == OTHER


def test_a_name_without_end_is_cut(tmp_path):
    child = build("y = MatMul (x, w)", w=WEIGHT[::-1])
    child.graph.initializer[0].name = child.graph.node[0].input[1] = "w" * 100_000
    state, reason = verdict(tmp_path, "y = MatMul (x, w)", child)
    assert (state, len(reason)) == (OTHER, 1000)


@pytest.mark.parametrize("first", [False, True])
def test_a_second_tensor_of_one_name_is_not_read(tmp_path, first):
    """ONNX Runtime reads the first, the protobuf's libraries the last."""
    child = build("y = MatMul (x, w)")
    child.graph.initializer.insert(int(first), onnx.numpy_helper.from_array(WEIGHT[::-1].copy(), "w"))
    state, reason = verdict(tmp_path, "y = MatMul (x, w)", child)
    assert (state, "two stored tensors have the name 'w'" in reason) == (OTHER, True)


@pytest.mark.parametrize("alias", ["", "ai.onnx"])
def test_a_second_version_of_an_operator_set_is_not_chosen(tmp_path, alias):
    child = build("y = Softmax (x)", opset=11)
    child.opset_import.add(domain=alias, version=18)
    state, reason = verdict(tmp_path, "y = Softmax (x)", child)
    assert (state, "two versions of one operator set" in reason) == (OTHER, True)


@pytest.mark.parametrize(("shape", "expected"), [((8, 5), PROVEN), ((8, 8, 5), OTHER), ((8,), OTHER)])
def test_rows_of_scales_fit_rows_of_a_matrix(tmp_path, shape, expected):
    """A row of scales beside a matrix of codes scales each row of the matrix by another number."""
    head, codes = "int64[n] x => float y", np.full(shape, 127, np.int8)
    parent = build("y = Gather (table, x)", head, table=np.ones(shape, np.float32))
    body = "c = Gather (codes, x) f = Cast <to = 1> (c) s = Gather (scales, x) y = Mul (f, s)"
    child = build(body, head, codes=codes, scales=np.full((8, 1), 1 / 127, np.float32))
    assert verdict(tmp_path, parent, child)[0] == expected


@pytest.mark.parametrize(("kind", "zero"), [("uint4", 0), ("uint8", 8)])
def test_codes_without_zero_points_have_the_one_of_their_type(tmp_path, kind, zero):
    codes = np.random.default_rng(0).integers(0, 16, (8, 16)).astype(np.uint8)
    packed = (codes[:, ::2] | codes[:, 1::2] << 4).tobytes()
    tensor = onnx.helper.make_tensor("codes", onnx.TensorProto.UINT4, codes.shape, packed, raw=True)
    if kind == "uint8":
        tensor.data_type, tensor.dims[1] = onnx.TensorProto.UINT8, 8
    head, gather = "int64[n] x => float[n, 16] y", "com.microsoft.GatherBlockQuantized <block_size = 16>"
    child = build(f"y = {gather} (codes, x, scales)", head, opset=21, scales=np.full((8, 1), 0.5, np.float32))
    child.graph.initializer.append(tensor)
    expected = ((codes.astype(np.float32) - zero) * 0.5)[:2]
    session = InferenceSession(child.SerializeToString())
    assert np.array_equal(session.run(None, {"x": np.array([0, 1])})[0], expected)
    for middle in (0, 8):
        table = (codes.astype(np.float32) - middle) * np.float32(0.5)
        parent = build("y = Gather (table, x)", head, opset=21, table=table)
        assert (verdict(tmp_path, parent, child)[0] == OTHER) == (middle != zero)


@pytest.mark.parametrize(
    ("kind", "change", "expected"),
    [
        (np.float16, 1.001, True),
        (np.float16, 1.01, False),
        (np.float16, 1.3, False),
        (np.float32, 1.001, False),
    ],
)
def test_a_factor_of_a_product_is_as_precise_as_its_type(tmp_path, kind, change, expected):
    """Two factors that are joined differ by the rounding of the coarser one at most."""
    head, turned = "float[2, 8] x => float[2, 2] y", "Transpose <perm = [1, 0]>"
    parent = build(f"t = {turned} (x) k = Mul (x, f) y = MatMul (k, t)", head, f=0.3)
    number = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    body = f"h = Cast <to = {number}> (x) u = {turned} (h) p = MatMul (h, u) m = Mul (p, f) d = Div (m, g) y = Cast <to = 1> (d)"
    child = build(body, head, f=np.array(0.3 * change, kind), g=np.array(1.0, kind))
    assert (verdict(tmp_path, parent, child)[0] != OTHER) == expected
