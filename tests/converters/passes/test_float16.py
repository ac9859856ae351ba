"""Float16: what stays float32 on request, by need or by search, and what other runtimes would make of the rest."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator
from support.graphs import (
    all_outputs,
    contract,
    draw,
    graph,
    public_types,
    read,
    run,
    run_and_compare,
    store,
    stored,
)

from onnxreg.converters.passes import float16, models, samples
from onnxreg.converters.passes.float16 import OnnxFloatToFloat16, OrtMixedPrecision, minimize, to_float16
from onnxreg.converters.passes.quantization import OnnxDynamicQuantization
from onnxreg.schema.core.errors import ConversionError, InputError

FLOAT, FLOAT16 = 1, 10
NAMES = [f"n{index}" for index in range(12)]


def made(body: str, outputs: str = "float[n, 40] logits", **weights: Any) -> Any:
    weight = np.random.default_rng(0).normal(size=(40, 40)).astype(np.float32) / 6
    return graph(body, outputs=outputs, weight=weight, **weights)


def model() -> Any:
    body = "h = MatMul(x, weight) r = Relu(h) s = Softmax(h) a = Add(r, s) b = Add(h, a) logits = MatMul(b, weight)"
    subject = made(body, "float[n, 40] logits, float[n, 40] h")
    subject.graph.node[0].name = "first"
    return subject


def squares() -> Any:
    """Squares of values near 400 overflow float16; the products and the other multiplication do not."""
    body = """h = MatMul(x, weight) small = Mul(h, tenth) big = Mul(h, thousand) square = Mul(big, big)
        back = Mul(square, millionth) sum = Add(small, back) logits = MatMul(sum, weight)"""
    subject = made(body, tenth=0.1, thousand=1000.0, millionth=1e-6)
    for index, node in enumerate(subject.graph.node):
        node.name = f"{node.op_type}/{index}"
    return subject


def norm() -> Any:
    """The length of each row: values near 400, the squares of which float16 cannot hold."""
    body = """h = MatMul(x, weight) big = Mul(h, thousand) square = Mul(big, big)
        mean = ReduceMean(square, axes) length = Sqrt(mean) logits = Div(big, length)"""
    return made(body, thousand=1000.0, axes=np.array([-1]))


def long() -> Any:
    return made("h = MatMul(x, weight) r = Relu(h) s = Add(r, r) logits = MatMul(s, weight)")


TestHalf = contract(lambda: OnnxFloatToFloat16(op_block_list=["Add"]), model)
TestPlainHalf = contract(lambda: OnnxFloatToFloat16(keep_io_types=False), model)
TestMixed = contract(OrtMixedPrecision, squares)


def kinds(subject: Any) -> dict[str, int]:
    inferred = onnx.shape_inference.infer_shapes(subject).graph
    values = (*inferred.value_info, *inferred.output)
    return {value.name: value.type.tensor_type.elem_type for value in values}


@pytest.mark.parametrize(
    "params",
    [
        {"op_block_list": ["Add"]},
        {"op_block_list": ["Relu", "Softmax", "Add"]},
        {"node_block_list": ["first"]},
        {"op_include_list": ["MatMul"]},
        {"op_block_list": ["Add", "SkipSimplifiedLayerNormalization"]},
    ],
)
def test_two_readers_in_float32_of_one_value_do_not_collide(params):
    half, step = run_and_compare("fp16", OnnxFloatToFloat16(**params), model())
    onnx.checker.check_model(half, full_check=True)
    assert step.result["parity"]["outputs"]["logits"]["cosine"] > 0.999
    assert step.result["weight_bytes"] == {"before": 6400, "after": 3200}


def test_operators_that_stay_read_float32_and_their_weights_keep_their_values():
    half, _ = run("fp16", OnnxFloatToFloat16(op_include_list=["MatMul"]), model())
    found = kinds(half)
    read = {node.op_type: {found.get(name) for name in node.input} for node in half.graph.node}
    assert read["Softmax"] == read["Add"] == {FLOAT}
    weights = {"halved": (40, 40), "kept": (40, 40)}
    sides = "float[n, 40] x", "float[n, 40] y, float[n, 40] z"
    subject = graph("y = MatMul(x, halved) z = Add(y, kept)", *sides, **weights)
    before = stored(subject)
    half, step = run("fp16", OnnxFloatToFloat16(op_block_list=("Add",)), subject)
    assert (step.result["float16_weights"], step.result["float32_weights"]) == (1, 1)
    for name, array in stored(half).items():
        kind = np.float16 if name == "halved" else np.float32
        np.testing.assert_array_equal(array, before[name].astype(kind), strict=True)


def test_nodes_without_a_first_output_are_all_kept():
    body = """none, a = LSTM<hidden_size = 5>(x, weight, steps) other, b = LSTM<hidden_size = 5>(x, weight, again)
        sum = Add(a, b) y = MatMul(sum, head)"""
    recurrent: dict[str, Any] = {"steps": (1, 20, 5), "again": (1, 20, 5), "head": (5, 5)}
    subject = graph(body, "float[3, n, 8] x", "float[1, n, 5] y", weight=(1, 20, 8), **recurrent)
    for node in subject.graph.node[:2]:
        node.output[0] = ""
    run_and_compare("fp16", OnnxFloatToFloat16(op_block_list=["LSTM"]), subject)


@pytest.mark.parametrize(("keep", "kind"), [(True, FLOAT), (False, FLOAT16)])
def test_public_types(keep, kind):
    half, _ = run_and_compare("fp16", OnnxFloatToFloat16(keep_io_types=keep), model())
    assert public_types(half) == dict.fromkeys(["x", "logits", "h"], kind)


@pytest.mark.parametrize(
    "params",
    [
        {"op_block_list": ["Add"], "op_include_list": ["Relu"]},
        {"node_block_list": ["first"], "op_include_list": ["Relu"]},
        {"node_block_list": ["frist"]},
        {"op_include_list": ["Rleu"]},
        {"min_positive_val": 1e-9},
        {"max_finite_val": 1e6},
        {"keep_io_types": "logits"},
    ],
)
def test_invalid_parameters_are_refused(params):
    with pytest.raises(InputError):
        run("fp16", OnnxFloatToFloat16(**params), model())


def test_weights_are_bounded_as_asked():
    subject = model()
    store(subject, "weight", np.full((40, 40), -3e38, np.float32))
    half, _ = run("fp16", OnnxFloatToFloat16(max_finite_val=1e4), subject)
    assert set(stored(half)["weight"].reshape(-1).tolist()) == {-1e4}


def test_overflowing_nodes_stay_float32_and_are_recorded():
    """ONNX Runtime on a CPU does not show the overflow: without ranges the proof holds, and others get NaN or 0."""
    feed = {"x": np.random.default_rng(1).normal(size=(4, 40)).astype(np.float32)}
    expected = ReferenceEvaluator(norm()).run(None, feed)[0]
    near = partial(np.allclose, b=expected, rtol=1e-2, atol=1e-3)
    half, step = run_and_compare("fp16", OnnxFloatToFloat16(), norm())
    assert step.result["overflowing"] == ["Mul_2", "ReduceMean_3", "Sqrt_4"]
    assert near(ReferenceEvaluator(half).run(None, feed)[0])
    plain = models.to_proto(to_float16(read(norm())))
    assert near(all_outputs(plain, [feed], "the graph")[0]["logits"])
    with pytest.warns(RuntimeWarning, match="overflow encountered in multiply"):
        assert not near(ReferenceEvaluator(plain).run(None, feed)[0])
    small = [{"x": np.full((1, 40), 1e-4, np.float32)}]
    assert run("fp16", OnnxFloatToFloat16(small), norm())[1].result["overflowing"] == []
    with pytest.raises(ConversionError, match="Mul_2 are beyond float16"):
        run("fp16", OnnxFloatToFloat16(op_include_list=["MatMul", "Mul"]), norm())


def same_names() -> Any:
    weight = "<float[1, 2] w = {1, 2}>"
    branches = (
        f"<then_branch = t () => (float[n, 2] u) {weight} {{ u = MatMul(x, w) }},"
        f" else_branch = e () => (float[n, 2] v) {weight} {{ v = MatMul(x, w) }}>"
    )
    return graph(f"y = If(c) {branches}", "bool c, float[n, 1] x", "float[n, 2] y")


def halved() -> Any:
    return run("half", OnnxFloatToFloat16(), model())[0]


@pytest.mark.parametrize(
    ("subject", "error", "work"),
    [
        (same_names, ConversionError, OnnxFloatToFloat16),
        (lambda: graph("y = Add(x, x)"), ConversionError, OnnxFloatToFloat16),
        (lambda: made("h = MatMul(x, b) b = Relu(h) logits = MatMul(b, weight)"), InputError, OnnxFloatToFloat16),
        (halved, ConversionError, OnnxFloatToFloat16),
        (halved, ConversionError, OrtMixedPrecision),
    ],
    ids=["branches with weights of one name", "no weights", "a circle", "float16", "float16 for a search"],
)  # fmt: skip
def test_graphs_that_cannot_become_float16(subject, error, work):
    with pytest.raises(error):
        run("fp16", work(), subject())


@pytest.mark.parametrize("half", [OnnxFloatToFloat16, OrtMixedPrecision])
@pytest.mark.parametrize("is_half_first", [True, False])
def test_float16_and_dynamic_quantization_exclude_each_other_and_the_way_out_is_named(half, is_half_first):
    works = [half(), OnnxDynamicQuantization()][:: 1 if is_half_first else -1]
    changed, _ = run("first", works[0], model())
    with pytest.raises(InputError) as caught:
        run("second", works[1], changed)
    assert "input: STEP" in (caught.value.hint or "")


# The search of mixed precision


def test_only_what_overflows_or_loses_too_much_stays_float32():
    half, step = run_and_compare("mixed", OrtMixedPrecision(), squares())
    found = step.result
    assert found["overflowing"] == ["Mul/3", "Mul/4"] == found["float32_nodes"]
    assert (found["minimal"], found["trials"]) == (True, 1)
    assert found["distance"] <= step.params["atol"]
    assert found["float16_weights"] >= 1
    onnx.checker.check_model(half, full_check=True)
    makers = {name: node.name for node in half.graph.node for name in node.output}
    back = next(node for node in half.graph.node if node.name == "Mul/4")
    assert makers[back.input[0]] == "Mul/3"


def test_each_node_that_stays_is_needed():
    atol = 2e-4
    nodes = set(run("mixed", OrtMixedPrecision(atol=atol), squares())[1].result["float32_nodes"])
    assert nodes > {"Mul/3", "Mul/4"}
    feeds = draw(squares())
    expected = all_outputs(squares(), feeds, "parent")

    def distance(names: set[str]) -> float:
        trial = all_outputs(to_float16(read(squares()), None, names), feeds, "trial")
        return samples.relative_distance(expected, trial, "trial")

    assert distance(nodes) <= atol
    assert all(distance(nodes - {name}) > atol for name in nodes - {"Mul/3", "Mul/4"})


@pytest.mark.parametrize(
    ("params", "subject", "trials", "error"),
    [
        ({"search": False, "atol": 2e-4}, squares, None, ConversionError),
        ({"atol": 2e-4}, squares, 1, ConversionError),
        ({"atol": 1e-12}, lambda: made("logits = MatMul(x, weight)"), None, ConversionError),
        ({"data": [{"z": np.zeros((1, 40), np.float32)}]}, squares, None, InputError),
    ],
    ids=["no search", "one trial", "nothing is near enough", "data of another graph"],
)
def test_a_search_that_does_not_hold_is_an_error(params, subject, trials, error, monkeypatch):
    monkeypatch.setattr(float16, "MAX_TRIALS", trials or float16.MAX_TRIALS)
    with pytest.raises(error):
        run("mixed", OrtMixedPrecision(params.pop("data", None), **params), subject())


def test_a_search_that_ends_early_says_so_and_without_one_the_list_decides(monkeypatch):
    _, step = run("mixed", OrtMixedPrecision(search=False, op_block_list=["Mul"]), squares())
    assert step.result["float32_nodes"] == ["Mul/1", "Mul/2", "Mul/3", "Mul/4"]
    monkeypatch.setattr(float16, "MAX_TRIALS", 6)
    _, step = run("mixed", OrtMixedPrecision(atol=2e-4), squares())
    assert (step.result["minimal"], step.result["trials"]) == (False, 6)


@pytest.mark.parametrize("search", [True, False])
def test_listed_operators_stay_float32_though_the_search_needs_none(search):
    work = OrtMixedPrecision(op_block_list=["Relu", "Add"], search=search, atol=1)
    half, step = run_and_compare("mixed", work, long())
    assert step.result["float32_nodes"] == ["Add_2", "Relu_1"]
    found = kinds(half)
    for node in half.graph.node:
        if node.op_type in ("Relu", "Add"):
            assert {found[name] for name in (*node.input, *node.output)} == {FLOAT}
    assert any(node.op_type == "MatMul" and found[node.output[0]] == FLOAT16 for node in half.graph.node)


@given(st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(NAMES), min_size=1), st.integers(1, 8))
def test_of_a_minimum_nothing_more_can_be_left_out_and_one_that_ends_early_holds_all_the_same(
    needed, any_of, most
):
    asked = 0

    def holds(names: Sequence[str]) -> bool:
        return needed <= set(names) and bool(any_of & set(names))

    def holds_at_first(names: Sequence[str]) -> bool:
        nonlocal asked
        asked += 1
        return asked <= most and needed <= set(names)

    kept = minimize(NAMES, holds)
    assert holds(kept)
    assert not any(holds([each for each in kept if each != name]) for name in kept)
    assert needed <= set(minimize(NAMES, holds_at_first))


def test_values_that_a_contrib_operator_makes_are_beyond_float16():
    body = """a = MatMul(x, weight) b = com.microsoft.Gelu(a) big = Mul(b, million) c = com.microsoft.QuickGelu(big)
        small = Mul(c, millionth) logits = MatMul(small, weight)"""
    subject = made(body, million=1e6, millionth=1e-6)
    shapes = [onnx.helper.make_tensor_value_info(name, FLOAT, ["n", 40]) for name in ("a", "b", "big", "c")]
    subject.graph.value_info.extend(shapes)
    _, step = run("half", OnnxFloatToFloat16(), subject)
    assert step.result["overflowing"] == ["Mul_2", "Mul_4", "QuickGelu_3"]


def test_a_weight_as_output_is_refused():
    subject = made("logits = MatMul(x, weight)", "float[n, 40] logits, float[40, 40] weight")
    with pytest.raises(ConversionError, match="the graph cannot be edited: "):
        run("half", OnnxFloatToFloat16(), subject)
