"""Every rewrite of `MobileSafeRewrite` gives the same values, NaN and dtype included, in operators of the safe set."""

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from support.graphs import count_operators, graph, read, run

from onnxreg.converters.onnx.mobile_rules import MOBILE_SAFE_OPS
from onnxreg.converters.passes import models
from onnxreg.converters.passes.mobile_safe import MobileSafeRewrite
from onnxreg.schema.core.errors import ConversionError

NAN, INF = np.nan, np.inf
A = np.array([[0, 1, -2, NAN, INF, -INF, NAN]], np.float32)
B = np.array([[0], [2], [NAN], [-INF]], np.float32)
ROWS = np.array([[1, 0, 1, 1], [5, -1, 0, 2]], np.int64)


def model(body: str, inputs: str, outputs: str, **more: Any) -> Any:
    parsed = graph(body, inputs, outputs, **more)
    onnx.checker.check_model(parsed)
    return parsed


def outputs(subject: Any, feed: dict[str, Any]) -> list[Any]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(subject.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feed))


def assert_same(subject: Any, feed: dict[str, Any]) -> dict[str, int]:
    before = outputs(subject, feed)
    rewritten, step = run("x", MobileSafeRewrite(), subject)
    onnx.checker.check_model(rewritten)
    for old, new in zip(before, outputs(rewritten, feed), strict=True):
        np.testing.assert_array_equal(old, new, strict=True)
    assert step.result["unsupported"] == []
    assert count_operators(rewritten).keys() <= MOBILE_SAFE_OPS
    return count_operators(rewritten)


@pytest.mark.parametrize("op", ["Greater", "GreaterOrEqual", "LessOrEqual"])
@pytest.mark.parametrize(("dtype", "kind"), [("float", "f4"), ("int64", "i8"), ("int32", "i4")])
def test_comparison(op, dtype, kind):
    whole = np.array([[0, 1, -2]], kind), np.array([[0], [2], [-2]], kind)
    a, b = (A, B) if dtype == "float" else whole
    subject = model(f"y = {op}(a, b)", f"{dtype}[n, m] a, {dtype}[k, l] b", "bool[p, q] y")
    assert_same(subject, {"a": a, "b": b})


@pytest.mark.parametrize("op", ["Max", "Min"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_extremes(op, count):
    names = ["a", "b", "c"][:count]
    inputs = ", ".join(f"float[n{i}, m{i}] {name}" for i, name in enumerate(names))
    values = {"a": A, "b": B, "c": np.array([[NAN], [1], [3], [-1]], np.float32)}
    subject = model(f"y = {op}({', '.join(names)})", inputs, "float[p, q] y")
    assert_same(subject, {name: values[name] for name in names})


def test_integer_maximum_needs_no_nan_check():
    subject = model("y = Max(a, b)", "int64[n] a, int64[n] b", "int64[n] y")
    found = assert_same(subject, {"a": np.array([1, -5, 2**40]), "b": np.array([0, -4, 7])})
    assert found == {"Less": 1, "Where": 1}


@pytest.mark.parametrize(
    ("body", "inputs", "outputs", "feed"),
    [
        ("y = IsNaN(x)", "float[n, m] x", "bool[n, m] y", A),
        *((f"y = Flatten<axis = {axis}>(x)", "float[a, b, c] x", "float[p, q] y", np.ones((2, 3, 4), np.float32).cumsum().reshape(2, 3, 4))
          for axis in range(4)),
        *((f"i = Constant<value = int64 {{{axis}}}>() y = CumSum(x, i)", f"{kind}[n, m] x", f"{kind}[n, m] y", ROWS.astype(kind))
          for axis, kind in ((1, "int64"), (-1, "int32"))),
    ],
)  # fmt: skip
def test_is_nan_flatten_and_cumulative_sums(body, inputs, outputs, feed):
    assert_same(model(body, inputs, outputs), {"x": feed})


@pytest.mark.parametrize(
    ("body", "dtype"),
    [
        ("i = Constant<value = int64 {1}>() y = CumSum(x, i)", "float"),
        ("i = Constant<value = int64 {0}>() y = CumSum(x, i)", "int64"),
        ("i = Constant<value = int64 {1}>() y = CumSum<exclusive = 1>(x, i)", "int64"),
        ("i = Constant<value = int64 {1}>() y = CumSum<reverse = 1>(x, i)", "int64"),
        ("y = Flatten<axis = -1>(x)", "float"),
        ("y = NonZero(x)", "int64"),
    ],
)
def test_operators_without_an_exact_rewrite_stay_and_are_reported(body, dtype):
    subject = model(body, f"{dtype}[n, m] x", f"{'int64' if 'NonZero' in body else dtype}[p, q] y")
    before = count_operators(subject)
    after, step = run("x", MobileSafeRewrite(), subject)
    assert count_operators(after) == before == step.result["operators_before"]
    assert len(step.result["unsupported"]) == 1


def test_subgraphs_are_rewritten():
    body = """y = If(c) <then_branch = t () => (bool[n] u) { u = GreaterOrEqual(a, b) },
        else_branch = e () => (bool[n] v) { v = IsNaN(a) }>"""
    subject = model(body, "bool c, float[n] a, float[n] b", "bool[n] y")
    after, step = run("x", MobileSafeRewrite(), subject)
    onnx.checker.check_model(after)
    assert step.result["unsupported"] == ["If"]
    a, b = np.array([1, NAN, 3], np.float32), np.array([1, 1, NAN], np.float32)
    for yes, expected in ((True, [True, False, False]), (False, [False, True, False])):
        assert outputs(after, {"c": np.array(yes), "a": a, "b": b})[0].tolist() == expected


def test_a_type_without_where_keeps_its_maximum():
    subject = model("y = Max(a, b)", "uint64[n] a, uint64[n] b", "uint64[n] y")
    after, step = run("x", MobileSafeRewrite(), subject)
    assert (count_operators(after), step.result["unsupported"]) == ({"Max": 1}, ["Max"])
    feed = {"a": np.array([1, 2**63], np.uint64), "b": np.array([2, 5], np.uint64)}
    assert outputs(after, feed)[0].tolist() == [2, 2**63]


def test_a_function_means_its_own_names_and_attributes():
    """Its x is a float though the graph's x is an integer: NaN >= NaN is false. Its axis is the caller's."""
    subject = model(
        "k = Identity(x) y = local.f<axis = 2>(z)", "int64[n, m] x, float[p, q, r] z", "bool[s, t] y",
        more="""<domain: "local", opset_import: ["" : 18]>
        f <axis> (k) => (y) { x = Flatten<axis: int = @axis>(k) y = GreaterOrEqual(x, x) }""",
    )  # fmt: skip
    feed = {"x": ROWS, "z": np.array([[[1, NAN], [3, 4], [5, 6]]] * 2, np.float32)}
    before = outputs(subject, feed)
    after, step = run("x", MobileSafeRewrite(), subject)
    assert step.result["unsupported"] == ["Flatten", "local:f"]
    np.testing.assert_array_equal(before[0], outputs(after, feed)[0])
    assert before[0].tolist()[0] == [True, False]


def test_an_opset_without_slices_of_shapes_is_refused_and_a_safe_graph_keeps_its_bytes():
    with pytest.raises(ConversionError, match="needs opset 15 or later, the graph has 14"):
        run("x", MobileSafeRewrite(), model("y = IsNaN(a)", "float[n] a", "bool[n] y", opset=14))
    safe = model("y = Add(a, a)", "float[n] a", "float[n] y")
    after, _ = run("x", MobileSafeRewrite(), safe)
    assert after == models.to_proto(read(safe))
