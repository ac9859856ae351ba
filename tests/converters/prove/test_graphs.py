"""Graphs beyond a small encoder: convolutions, subgraphs, functions, external data, bfloat16; and hostile ones."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime import InferenceSession
from onnxruntime.quantization import QuantType, quantize_dynamic
from support.prove.children import verdict_of

from onnxreg.converters.onnx.quiet import quiet
from onnxreg.converters.prove import operators


def weight(name: str, *dims: int, seed: int = 0) -> Any:
    draw = np.random.default_rng(seed)
    return onnx.numpy_helper.from_array(draw.normal(size=dims).astype(np.float32), name)


def build(
    body: str,
    *tensors: Any,
    opset: int = 18,
    local: int = 1,
    head: str = "(float[n, 8] x) => (float[n, 8] y)",
    more: str = "",
) -> Any:
    model = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : {opset}, "com.microsoft" : 1, "local" : {local}]> g {head} {{ {body} }} {more}'
    )
    model.graph.initializer.extend(tensors)
    return model


def verdict(tmp_path: Path, parent: Any, child: Any) -> tuple[str, str]:
    for name, model in (("parent", parent), ("child", child)):
        onnx.save(model, tmp_path / f"{name}.onnx")
    report = verdict_of(tmp_path / "parent.onnx", tmp_path / "child.onnx")
    return report.verdict, " ".join(report.reasons)


IMAGE = "(float[n, 3, 8, 8] x) => (float[n, 4, m, k] y)"


def test_a_convolution_with_a_bias_is_proven(tmp_path: Path) -> None:
    body = "h = Conv <pads = [1, 1, 1, 1]> (x, w, b) y = Relu (h)"
    parent = build(body, weight("w", 4, 3, 3, 3), weight("b", 4), head=IMAGE)
    onnx.save(parent, tmp_path / "source.onnx")
    with quiet():
        quantize_dynamic(tmp_path / "source.onnx", tmp_path / "small.onnx", weight_type=QuantType.QUInt8)
    child = onnx.load(tmp_path / "small.onnx")
    assert any(node.op_type == "ConvInteger" for node in child.graph.node)
    assert verdict(tmp_path, parent, child) == ("proven", "")
    pads = next(
        a for n in child.graph.node if n.op_type == "ConvInteger" for a in n.attribute if a.name == "pads"
    )
    pads.ints[0], pads.ints[2] = 0, 2
    assert verdict(tmp_path, parent, child)[0] == "not-provable"


BRANCHES = """
  c = ReduceSum <keepdims = 0> (x)
  is_high = Greater (c, zero)
  y = If (is_high) <
    then_branch = one () => (float[n, 8] t) { t = MatMul (x, w) },
    else_branch = two () => (float[n, 8] e) { e = Add (x, b) }
  >
"""


def test_weights_and_nodes_of_subgraphs_count(tmp_path: Path) -> None:
    zero = onnx.numpy_helper.from_array(np.array(0, np.float32), "zero")
    tensors = (weight("w", 8, 8), weight("b", 8, seed=1), zero)
    parent = build(BRANCHES, *tensors)
    assert verdict(tmp_path, parent, parent) == ("proven", "")
    for change in ("e = Sub (x, b)", "e = Add (x, x)"):
        child = build(BRANCHES.replace("e = Add (x, b)", change), *tensors)
        assert verdict(tmp_path, parent, child)[0] == "not-provable"
    other = build(BRANCHES, weight("w", 8, 8, seed=2), *tensors[1:])
    assert "w differs from the parent's" in verdict(tmp_path, parent, other)[1]


def test_local_functions_are_their_bodies(tmp_path: Path) -> None:
    function = '<domain: "local", opset_import: ["" : 18]> Twice (a, b) => (c) { h = MatMul (a, b) c = MatMul (h, b) }'
    parent = build("h = MatMul (x, w) y = MatMul (h, w)", weight("w", 8, 8))
    child = build("y = local.Twice (x, w)", weight("w", 8, 8), more=function)
    assert verdict(tmp_path, parent, child) == ("proven", "")


@pytest.mark.parametrize("wrong", [False, True])
def test_bfloat16_is_the_nearest_value(tmp_path: Path, wrong: bool) -> None:
    parent = build("y = MatMul (x, w)", weight("w", 8, 8))
    values = onnx.numpy_helper.to_array(parent.graph.initializer[0])
    bits = values.view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    rounded[3, 4] += wrong
    half = onnx.TensorProto(
        name="w", data_type=onnx.TensorProto.BFLOAT16, dims=[8, 8], raw_data=rounded.tobytes()
    )
    child = build("v = Cast <to = 1> (w) y = MatMul (x, v)", half)
    state, reason = verdict(tmp_path, parent, child)
    assert (state, "[3, 4]" in reason) == (("bounded", True) if wrong else ("proven", False))


def test_external_data_is_read_where_it_is(tmp_path: Path) -> None:
    parent = build("y = MatMul (x, w)", weight("w", 8, 8))
    child = tmp_path / "child.onnx"
    onnx.save(parent, tmp_path / "parent.onnx")
    onnx.save(parent, child, save_as_external_data=True, location="w.bin", size_threshold=0)
    assert verdict_of(tmp_path / "parent.onnx", child).verdict == "proven"
    data = bytearray((tmp_path / "w.bin").read_bytes())
    data[5] ^= 1
    (tmp_path / "w.bin").write_bytes(data)
    assert verdict_of(tmp_path / "parent.onnx", child).verdict == "not-provable"


def test_other_versions_of_an_operator_are_told_apart(tmp_path: Path) -> None:
    """Softmax flattens its operand before opset 13; Relu is the same since opset 6."""
    for body, expected in (("y = Softmax (x)", "not-provable"), ("y = Relu (x)", "proven")):
        assert verdict(tmp_path, build(body), build(body, opset=12))[0] == expected


def test_coarse_scales_are_not_proven(tmp_path: Path) -> None:
    """Every weight is within half a step of a scale that is large enough."""
    parent = build("y = MatMul (x, w)", weight("w", 8, 8))
    tensors = [array("q", np.zeros((8, 8)), np.int8), array("s", 100), array("z", 0, np.int8)]
    child = build("v = DequantizeLinear (q, s, z) y = MatMul (x, v)", *tensors)
    assert verdict(tmp_path, parent, child) == ("bounded", "no known rule gives the scales of q")


def test_clipped_weights_are_counted(tmp_path: Path) -> None:
    parent = build("y = MatMul (x, w)", weight("w", 8, 8))
    values = onnx.numpy_helper.to_array(parent.graph.initializer[0])
    scale = np.float32(np.abs(values).max() / 127 * 0.95)
    codes = np.clip(np.rint(values / scale), -128, 127).astype(np.int8)
    tensors = [array("q", codes, np.int8), array("s", scale)]
    child = build("v = DequantizeLinear (q, s) y = MatMul (x, v)", *tensors)
    state, reason = verdict(tmp_path, parent, child)
    clipped = int((np.abs(values / scale) > 127.5).sum())
    assert (state, reason) == (
        "bounded",
        f"no known rule gives the scales of q; {clipped} of 64 weights are clipped",
    )


HOSTILE = {
    "an unknown value": "y = MatMul (x, nothing)",
    "a random operator": "r = RandomNormalLike (x) y = Add (x, r)",
    "an unknown operator": "y = local.Nothing (x)",
    "a huge constant": "v = ConstantOfShape (sizes) y = Add (x, v)",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_child_is_not_proven(tmp_path: Path, case: str) -> None:
    sizes = onnx.numpy_helper.from_array(np.array([2**40, 2**20]), "sizes")
    parent = build("y = Add (x, v)", weight("v", 8))
    assert verdict(tmp_path, parent, build(HOSTILE[case], sizes))[0] == "not-provable"


def test_the_same_random_operator_is_not_proven(tmp_path: Path) -> None:
    model = build(HOSTILE["a random operator"])
    assert verdict(tmp_path, model, model) == ("not-provable", "RandomNormalLike 'r' is random")


def test_nodes_in_a_ring_are_not_proven(tmp_path: Path) -> None:
    child = build("h = Add (x, k) k = Relu (h) y = Add (h, k)")
    assert verdict(tmp_path, build("y = Relu (x)"), child)[0] == "not-provable"


def test_a_long_chain_needs_no_stack(tmp_path: Path) -> None:
    body = " ".join(
        ["v0 = Relu (x)", *(f"v{at} = Sigmoid (v{at - 1})" for at in range(1, 5000)), "y = Relu (v4999)"]
    )
    assert verdict(tmp_path, build(body), build(body)) == ("proven", "")


def test_other_names_of_inputs_and_outputs_are_refused(tmp_path: Path) -> None:
    parent = build("y = Relu (x)")
    child = build("z = Relu (x)", head="(float[n, 8] x) => (float[n, 8] z)")
    assert "outputs differ: the child has z; the parent has y" in verdict(tmp_path, parent, child)[1]


def test_shared_codes_are_read_with_each_of_their_scales(tmp_path: Path) -> None:
    """The first reader of the codes has the right scale, the second one twice that."""
    parent = build("h = MatMul (x, w) y = MatMul (h, w)", weight("w", 8, 8))
    values = onnx.numpy_helper.to_array(parent.graph.initializer[0])
    scale = np.float32(2 * np.abs(values).max() / 254)
    codes = np.rint(values / scale).astype(np.int8)
    arrays = {"q": codes, "s": scale.reshape(()), "t": (2 * scale).reshape(())}
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    body = "v = DequantizeLinear (q, s) h = MatMul (x, v) u = DequantizeLinear (q, {}) y = MatMul (h, u)"
    assert verdict(tmp_path, parent, build(body.format("s"), *tensors)) == ("proven", "")
    assert verdict(tmp_path, parent, build(body.format("t"), *tensors))[0] == "not-provable"


def test_weights_and_scales_that_are_not_numbers_are_not_proven(tmp_path: Path) -> None:
    parent = build("y = MatMul (x, w)", weight("w", 8, 8))
    for value, scale in ((np.nan, 1.0), (1.0, np.nan), (np.inf, 1.0), (1.0, 0.0)):
        broken = onnx.numpy_helper.to_array(parent.graph.initializer[0]).copy()
        broken[0, 0] *= np.float32(value)
        arrays = {"q": np.ones((8, 8), np.int8), "s": np.array(scale, np.float32)}
        tensors = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
        child = build("v = DequantizeLinear (q, s) y = MatMul (x, v)", *tensors)
        other = build("y = MatMul (x, w)", onnx.numpy_helper.from_array(broken, "w"))
        assert verdict(tmp_path, other, child)[0] != "proven"


def test_a_name_without_end_is_cut(tmp_path: Path) -> None:
    child = build("y = MatMul (x, w)", weight("w", 8, 8, seed=3))
    child.graph.initializer[0].name = child.graph.node[0].input[1] = "w" * 100_000
    state, reason = verdict(tmp_path, build("y = MatMul (x, w)", weight("w", 8, 8)), child)
    assert (state, len(reason)) == ("not-provable", 1000)


def test_a_product_with_one_keeps_its_shape(tmp_path: Path) -> None:
    one, ones, two = array("one", 1), array("ones", [1]), array("two", [2])
    parent = build("h = Add (x, two) y = Mul (h, ones)", two, ones)
    assert verdict(tmp_path, parent, build("y = Add (x, two)", two)) == ("proven", "")
    assert verdict(tmp_path, build("y = Mul (x, one)", one), build("y = Identity (x)")) == ("proven", "")
    assert verdict(tmp_path, build("y = Mul (x, two)", two), build("y = Identity (x)"))[0] == "not-provable"
    scalar = "(float s) => (float[1] y)"
    plain = build("y = Identity (s)", head="(float s) => (float y)")
    assert verdict(tmp_path, build("y = Mul (s, ones)", ones, head=scalar), plain)[0] == "not-provable"


def test_two_stored_factors_may_both_be_codes(tmp_path: Path) -> None:
    parent = build("p = MatMul (a, b) y = Add (x, p)", weight("a", 8, 8), weight("b", 8, 8, seed=1))
    onnx.save(parent, tmp_path / "source.onnx")
    with quiet():
        quantize_dynamic(
            tmp_path / "source.onnx", tmp_path / "small.onnx", extra_options={"MatMulConstBOnly": False}
        )
    child = onnx.load(tmp_path / "small.onnx")
    assert any(node.op_type == "MatMulInteger" for node in child.graph.node)
    assert not any(node.op_type == "DynamicQuantizeLinear" for node in child.graph.node)
    assert verdict(tmp_path, parent, child) == ("proven", "")
    for tensor in child.graph.initializer:
        if tensor.name == "a_scale":
            value = onnx.numpy_helper.to_array(tensor) * np.float32(1.5)
            tensor.CopyFrom(onnx.numpy_helper.from_array(value, tensor.name))
    assert verdict(tmp_path, parent, child)[0] != "proven"


@pytest.mark.parametrize("operator", ["Add", "Mul"])
def test_values_that_are_used_twice_at_every_level_cost_no_more(tmp_path: Path, operator: str) -> None:
    """Sixty levels are 2**60 paths."""
    one = onnx.numpy_helper.from_array(np.array([1], np.float32), "one")
    steps = [f"v{at} = {operator} (v{at - 1}, v{at - 1})" for at in range(1, 60)]
    body = " ".join(["v0 = Relu (x)", *steps, "m = Mul (v59, one) y = Add (m, x)"])
    assert verdict(tmp_path, build(body, one), build(body, one)) == ("proven", "")
    other = build(body.replace("Relu", "Sigmoid"), one)
    assert verdict(tmp_path, build(body, one), other)[0] == "not-provable"


def array(name: str, value: Any, kind: Any = np.float32) -> Any:
    return onnx.numpy_helper.from_array(np.asarray(value, kind), name)


ONE_OUTPUT = "p, q = Split <axis = 1> (x) y = Relu (p)"
TRAINED = "y, m, v, n, w = BatchNormalization (x, a, a, a, a)"


@pytest.mark.parametrize(
    ("parent", "child", "opset"),
    [
        (ONE_OUTPUT, "p, q, r, s = Split <axis = 1> (x) y = Relu (p)", 13),
        (TRAINED, "y = BatchNormalization (x, a, a, a, a)", 9),
        ("y, z = local.Parts (x)", "y, z, w = local.Parts (x)", 18),
        ("y, z = com.microsoft.Parts (x)", "y = com.microsoft.Parts (x)", 18),
    ],
)
def test_a_node_with_another_number_of_outputs_is_another_one(
    tmp_path: Path, parent: str, child: str, opset: int
) -> None:
    one, other = (build(body, array("a", np.ones(8)), opset=opset) for body in (parent, child))
    assert verdict(tmp_path, one, one) == ("proven", "")
    state, reason = verdict(tmp_path, one, other)
    assert (state, "number of outputs" in reason) == ("not-provable", True)


def test_outputs_that_change_no_result_do_not_count(tmp_path: Path) -> None:
    """The second output of MaxPool is the place of the first."""
    head = "(float[n, 3, 8, 8] x) => (float[n, 3, k, k] y)"
    one, other = (
        build(f"{outputs} = MaxPool <kernel_shape = [2, 2]> (x)", head=head) for outputs in ("y", "y, places")
    )
    assert verdict(tmp_path, one, other) == ("proven", "")


EMBEDDED = "i = Cast <to = 6> (x) e, m = com.microsoft.EmbedLayerNormalization (i, , w, w, , a, a) {}"
INTEGER = """
  i = Cast <to = 6> (x) g = Gemm (i, p) h = Gemm (i, q)
  {}
"""


@pytest.mark.parametrize(
    ("parent", "child"),
    [
        (
            EMBEDDED.format("y = Cast <to = 1> (e)"),
            EMBEDDED.format("f = Cast <to = 6> (e) y = Cast <to = 1> (f)"),
        ),
        (
            "v = com.microsoft.QuantizeLinear (x, s, z) y = Cast <to = 1> (v)",
            "v = com.microsoft.QuantizeLinear (x, s, z) r = Cast <to = 3> (v) y = Cast <to = 1> (r)",
        ),
        (
            INTEGER.format("k = Cast <to = 1> (g) l = Cast <to = 1> (h) y = Div (k, l)"),
            INTEGER.format("d = Div (g, h) y = Cast <to = 1> (d)"),
        ),
        (
            "u = local.Any (x) y = Cast <to = 1> (u)",
            "u = local.Any (x) v = Cast <to = 6> (u) y = Cast <to = 1> (v)",
        ),
    ],
)
def test_a_cast_that_may_cut_a_fraction_stays(tmp_path: Path, parent: str, child: str) -> None:
    tensors = [weight("w", 8, 8), array("a", np.ones(8)), array("s", 0.1), array("z", 128, np.uint8)]
    tensors += [array("p", np.eye(8) * 7, np.int32), array("q", np.eye(8) * 2 + 1, np.int32)]
    one, other = (build(body, *tensors) for body in (parent, child))
    assert verdict(tmp_path, one, one) == ("proven", "")
    assert verdict(tmp_path, one, other)[0] == "not-provable"


def test_types_of_contrib_operators_are_those_of_onnx_runtime() -> None:
    """The first output has the type of the first operand that is floating point, and of no other type."""
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    schemas = {item.name: item for item in get_all_operator_schema() if item.domain == operators.CONTRIB}
    for name in operators.CONTRIB_FLOATS:
        allowed = {item.type_param_str: item.allowed_type_strs for item in schemas[name].type_constraints}
        kind = schemas[name].outputs[0].typeStr
        first = next(
            item.typeStr for item in schemas[name].inputs if "tensor(float)" in allowed[item.typeStr]
        )
        assert first == kind, name


GELU = "r = {root} e = Erf (r) f = Add (e, one) m = Mul (h, f) y = Mul (m, half)"
NUMBERS = {"half": 0.5, "one": 1.0, "two": 2**0.5}


def spelled(name: str, shape: tuple[int, ...], before: str = "h = Relu (x)") -> Any:
    tensors = [array(key, np.full(shape if key == name else (), value)) for key, value in NUMBERS.items()]
    return build(f"{before} {GELU.format(root='Div (h, two)')}", *tensors, weight("w", 8, 8))


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_adds_an_axis_makes_another_graph(tmp_path: Path, name: str) -> None:
    parent = spelled(name, ())
    assert verdict(tmp_path, parent, spelled(name, (1, 1, 1)))[0] == "not-provable"
    assert verdict(tmp_path, parent, build("h = Relu (x) y = com.microsoft.Gelu (h)")) == ("proven", "")
    product = "h = MatMul (x, w)"
    fused = build(f"{product} y = com.microsoft.Gelu (h)", weight("w", 8, 8))
    assert verdict(tmp_path, spelled(name, (1,), product), fused) == ("proven", "")


@pytest.mark.parametrize(
    ("shape", "expected"), [((), "proven"), ((1,), "proven"), ((1, 1, 1), "not-provable")]
)
def test_a_scale_that_adds_an_axis_makes_another_graph(
    tmp_path: Path, shape: tuple[int, ...], expected: str
) -> None:
    parent = build("y = MatMul (x, w)", weight("w", 8, 8))
    values = onnx.numpy_helper.to_array(parent.graph.initializer[0])
    scale = np.float32(2 * np.abs(values).max() / 254)
    tensors = array("q", np.rint(values / scale), np.int8), array("s", np.full(shape, scale))
    body = """
      c, d, z = DynamicQuantizeLinear (x) i = MatMulInteger (c, q, z)
      f = Cast <to = 1> (i) t = Mul (d, s) y = Mul (f, t)
    """
    assert verdict(tmp_path, parent, build(body, *tensors))[0] == expected


def test_an_epsilon_with_axes_makes_another_graph(tmp_path: Path) -> None:
    body = """
      m = ReduceMean (x, last) d = Sub (x, m) p = Pow (d, two) v = ReduceMean (p, last)
      e = Add (v, epsilon) r = Sqrt (e) n = Div (d, r) g = Mul (n, a) y = Add (g, a)
    """
    tensors = array("last", [-1], np.int64), array("two", 2), array("a", np.ones(8))
    fused = build("y = LayerNormalization (x, a, a)", tensors[2])
    for shape, expected in (((), "proven"), ((1, 1, 1), "not-provable")):
        child = build(body, *tensors, array("epsilon", np.full(shape, 1e-5)))
        assert verdict(tmp_path, fused, child)[0] == expected


def test_an_unknown_domain_has_other_versions(tmp_path: Path) -> None:
    one, other = (build("y = local.Any (x)", local=version) for version in (1, 7))
    assert verdict(tmp_path, one, one) == ("proven", "")
    assert "is of operator version 7, in the parent 1" in verdict(tmp_path, one, other)[1]


@pytest.mark.parametrize(
    "body",
    [
        "y = Dropout (x, ratio, on)",
        "c = ReduceSum <keepdims = 0> (x) t = Greater (c, ratio) y = Dropout (x, ratio, t)",
        "y, m = com.microsoft.BitmaskDropout (x, ratio, on)",
        "y = local.Noise <seed = 1.0> (x)",
    ],
)
def test_an_operator_that_may_be_random_is_not_proven(tmp_path: Path, body: str) -> None:
    model = build(body, array("ratio", 0.5), array("on", True, bool))
    state, reason = verdict(tmp_path, model, model)
    assert (state, reason.endswith("is random")) == ("not-provable", True)


def test_dropout_outside_of_training_is_its_input(tmp_path: Path) -> None:
    model = build("y = Dropout (x, ratio, off)", array("ratio", 0.5), array("off", False, bool))
    assert verdict(tmp_path, build("y = Identity (x)"), model) == ("proven", "")


def test_a_range_of_the_parent_alone_is_a_doubt(tmp_path: Path) -> None:
    tensors = array("s", 0.1), array("z", 128, np.uint8)
    parent = build("q = QuantizeLinear (x, s, z) d = DequantizeLinear (q, s, z) y = Relu (d)", *tensors)
    state, reason = verdict(tmp_path, parent, build("y = Relu (x)"))
    assert (state, "activations of the parent have a fixed range" in reason) == ("bounded", True)


@pytest.mark.parametrize("zero", ["all", "one"])
def test_a_scale_of_zero_is_not_bounded(tmp_path: Path, zero: str) -> None:
    parent = build("y = MatMul (x, w)", weight("w", 8, 8))
    scales = np.where(zero == "all", 0, np.r_[np.ones(7), 0])
    body = "v = DequantizeLinear <axis = 1> (q, s) y = MatMul (x, v)"
    child = build(body, array("q", np.zeros((8, 8)), np.int8), array("s", scales * np.ones(8)))
    state, reason = verdict(tmp_path, parent, child)
    assert (state, reason) == ("not-provable", "q has a scale of zero for weights that are not zero")


def test_shared_codes_are_read_with_each_of_their_zero_points(tmp_path: Path) -> None:
    parent = build("h = MatMul (x, w) y = MatMul (h, w)", weight("w", 8, 8))
    values = onnx.numpy_helper.to_array(parent.graph.initializer[0])
    scale = np.float32(2 * np.abs(values).max() / 254)
    tensors = [array("q", np.rint(values / scale), np.int8), array("s", scale)]
    tensors += [array("z", 0, np.int8), array("t", 90, np.int8)]
    body = (
        "v = DequantizeLinear (q, s, z) h = MatMul (x, v) u = DequantizeLinear (q, s, {}) y = MatMul (h, u)"
    )
    assert verdict(tmp_path, parent, build(body.format("z"), *tensors)) == ("proven", "")
    assert verdict(tmp_path, parent, build(body.format("t"), *tensors))[0] == "not-provable"


PAIR = "(float[n, 8] x) => (float[n, 8] y, float[n, 8] z)"


def test_outputs_in_another_order_are_others(tmp_path: Path) -> None:
    """ONNX Runtime gives them in the order of the file."""
    body = "y = Relu (x) z = Sigmoid (x)"
    turned = build(body, head="(float[n, 8] x) => (float[n, 8] z, float[n, 8] y)")
    state, reason = verdict(tmp_path, build(body, head=PAIR), turned)
    assert (state, reason) == ("not-provable", "the outputs are in another order: z, y")
    exchanged = build("z = Relu (x) y = Sigmoid (x)", head=PAIR)
    assert verdict(tmp_path, build(body, head=PAIR), exchanged)[0] == "not-provable"


def test_a_second_tensor_of_one_name_is_not_read(tmp_path: Path) -> None:
    """ONNX Runtime reads the first, the protobuf's libraries the last."""
    parent, tensors = (
        build("y = MatMul (x, w)", weight("w", 8, 8)),
        [weight("w", 8, 8), weight("w", 8, 8, seed=1)],
    )
    for pair in (tensors, tensors[::-1]):
        state, reason = verdict(tmp_path, parent, build("y = MatMul (x, w)", *pair))
        assert (state, "two stored tensors have the name 'w'" in reason) == ("not-provable", True)


@pytest.mark.parametrize("alias", ["", "ai.onnx"])
def test_a_second_version_of_an_operator_set_is_not_chosen(tmp_path: Path, alias: str) -> None:
    child = build("y = Softmax (x)", opset=11)
    child.opset_import.add(domain=alias, version=18)
    state, reason = verdict(tmp_path, build("y = Softmax (x)"), child)
    assert (state, "two versions of one operator set" in reason) == ("not-provable", True)


@pytest.mark.parametrize(("one", "other"), [("1", "1.0"), ("0.0", "-0.0")])
def test_equal_numbers_of_attributes_may_be_others(tmp_path: Path, one: str, other: str) -> None:
    parent, child = (build(f"y = local.Any <a = {value}> (x)") for value in (one, other))
    assert verdict(tmp_path, parent, parent) == ("proven", "")
    assert "differs from the parent's local:Any 'y' in a" in verdict(tmp_path, parent, child)[1]


SQUARE = "(float[n, 8, 8] x) => (float[n, 8, 8] y)"


@pytest.mark.parametrize(
    ("parent", "child", "expected"),
    [
        ("t = Transpose <perm=[0,2,1]> (x) y = Relu (t)", "r = Relu (x) y = Transpose <perm=[0,2,1]> (r)", True),
        ("t = Transpose <perm=[0,2,1]> (x) y = MatMul (t, w)", "y = com.microsoft.FusedMatMul <transA=1> (x, w)", True),
        ("c = Concat <axis=2> (x, x) y = Transpose <perm=[0,2,1]> (c)", "t = Transpose <perm=[0,2,1]> (x) y = Concat <axis=1> (t, t)", True),
        ("c = Concat <axis=2> (x, x) y = Transpose <perm=[0,2,1]> (c)", "t = Transpose <perm=[0,2,1]> (x) y = Concat <axis=2> (t, t)", False),
        ("t = Transpose <perm=[0,2,1]> (x) y = Add (t, b)", "a = Add (x, b) y = Transpose <perm=[0,2,1]> (a)", False),
        ("t = Softmax (x) y = Transpose <perm=[0,2,1]> (t)", "t = Transpose <perm=[0,2,1]> (x) y = Softmax (t)", False),
        ("y = MatMul (x, w)", "y = com.microsoft.FusedMatMul <transA=1> (x, w)", False),
        ("y = MatMul (x, w)", "y = com.microsoft.FusedMatMul <transBatchA=1> (x, w)", False),
        ("r = Relu (x) g = Greater (x, r) n = Not (g) y = Where (n, x, r)", "r = Relu (x) g = Greater (x, r) y = Where (g, r, x)", True),
        ("r = Relu (x) g = Greater (x, r) n = Not (g) y = Where (n, x, r)", "r = Relu (x) g = Greater (x, r) y = Where (g, x, r)", False),
        ("y = Relu (x)", "s = Add (x, zeros) y = Relu (s)", False),
        ("y = SimplifiedLayerNormalization (x, b)", "y = SimplifiedLayerNormalization <epsilon=0.1> (x, b)", False),
    ],
)  # fmt: skip
def test_rewrites_of_optimizers(tmp_path: Path, parent: str, child: str, expected: bool) -> None:
    tensors = weight("w", 8, 8), weight("b", 8), array("zeros", np.zeros((1, 1, 1, 1)))
    one, other = (build(body, *tensors, head=SQUARE) for body in (parent, child))
    assert (verdict(tmp_path, one, other)[0] == "proven") == expected


@pytest.mark.parametrize(("kind", "zero"), [("uint4", 0), ("uint8", 8)])
def test_codes_without_zero_points_have_the_one_of_their_type(tmp_path: Path, kind: str, zero: int) -> None:
    codes = np.random.default_rng(0).integers(0, 16, (8, 16)).astype(np.uint8)
    packed = (codes[:, ::2] | codes[:, 1::2] << 4).tobytes()
    stored = onnx.helper.make_tensor("codes", onnx.TensorProto.UINT4, codes.shape, packed, raw=True)
    if kind == "uint8":
        stored.data_type, stored.dims[1] = onnx.TensorProto.UINT8, 8
    scales = array("scales", np.full((8, 1), 0.5))
    gather = "com.microsoft.GatherBlockQuantized <block_size = 16>"
    head = "(int64[n] x) => (float[n, 16] y)"
    child = build(f"y = {gather} (codes, x, scales)", stored, scales, head=head, opset=21)
    session = InferenceSession(child.SerializeToString())
    expected = ((codes.astype(np.float32) - zero) * 0.5)[:2]
    assert np.array_equal(session.run(None, {"x": np.array([0, 1])})[0], expected)
    for middle in (0, 8):
        table = array("table", (codes.astype(np.float32) - middle) * 0.5)
        parent = build("y = Gather (table, x)", table, head=head, opset=21)
        assert (verdict(tmp_path, parent, child)[0] == "not-provable") == (middle != zero)


@pytest.mark.parametrize(
    ("scale", "zero", "expected"), [("s", "z", True), ("t", "z", False), ("s", "k", False)]
)
def test_codes_have_the_scale_and_zero_point_of_their_own_value(
    tmp_path: Path, scale: str, zero: str, expected: bool
) -> None:
    parent = build("y = MatMul (x, w)", weight("w", 8, 8))
    values = onnx.numpy_helper.to_array(parent.graph.initializer[0])
    step = np.float32(2 * np.abs(values).max() / 254)
    body = (
        "r = Relu (x) p, t, k = DynamicQuantizeLinear (r) q, s, z = DynamicQuantizeLinear (x) "
        f"i = MatMulInteger (q, c, {zero}) f = Cast <to = 1> (i) m = Mul ({scale}, d) y = Mul (f, m)"
    )
    codes = array("c", np.rint(values / step), np.int8)
    state, _ = verdict(tmp_path, parent, build(body, codes, array("d", step)))
    assert (state == "proven") == expected


@pytest.mark.parametrize(
    ("kind", "change", "expected"),
    [
        (np.float16, 1.001, True),
        (np.float16, 1.01, False),
        (np.float16, 1.3, False),
        (np.float32, 1.001, False),
    ],
)
def test_a_factor_of_a_product_is_as_precise_as_its_type(
    tmp_path: Path, kind: Any, change: float, expected: bool
) -> None:
    """Two factors that are joined differ by the rounding of the coarser one at most."""
    head, factor = "(float[2, 8] x) => (float[2, 2] y)", 0.3
    turned = "t = Transpose <perm = [1, 0]> (x)"
    parent = build(f"{turned} a = Mul (x, s) y = MatMul (a, t)", array("s", factor), head=head)
    stored = onnx.numpy_helper.from_array(np.array(factor * change, kind), "s")
    number = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    body = f"h = Cast <to = {number}> (x) u = Transpose <perm = [1, 0]> (h) p = MatMul (h, u)"
    child = build(f"{body} m = Mul (p, s) d = Div (m, k) y = Cast <to = 1> (d)", stored, head=head)
    child.graph.initializer.append(onnx.numpy_helper.from_array(np.array(1.0, kind), "k"))
    assert (verdict(tmp_path, parent, child)[0] != "not-provable") == expected
