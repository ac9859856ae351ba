"""Every rewrite of `MobileSafeRewrite` gives the same values, NaN and dtype included, in operators of the safe set."""

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from onnxreg.converters.onnx.mobile_rules import MOBILE_SAFE_OPS
from onnxreg.converters.passes.base import run
from onnxreg.converters.passes.mobile_safe import MobileSafeRewrite
from onnxreg.converters.passes.tools.graph import count_operators
from onnxreg.schema.core.errors import ConversionError

NAN, INF = np.nan, np.inf
A = np.array([[0, 1, -2, NAN, INF, -INF, NAN]], np.float32)
B = np.array([[0], [2], [NAN], [-INF]], np.float32)
ROWS = np.array([[1, 0, 1, 1], [5, -1, 0, 2]], np.int64)


def model(body: str, inputs: str, outputs: str) -> Any:
    text = f'<ir_version: 8, opset_import: ["" : 18]> g ({inputs}) => ({outputs}) {{ {body} }}'
    parsed = onnx.parser.parse_model(text)
    onnx.checker.check_model(parsed)
    return parsed


def outputs(graph: Any, feed: dict[str, Any]) -> list[Any]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(graph.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feed))


def assert_same(graph: Any, feed: dict[str, Any]) -> dict[str, int]:
    before = outputs(graph, feed)
    rewritten, step = run("x", MobileSafeRewrite(), graph)
    onnx.checker.check_model(rewritten)
    after = outputs(rewritten, feed)
    for old, new in zip(before, after, strict=True):
        assert (old.dtype, old.shape) == (new.dtype, new.shape)
        np.testing.assert_array_equal(old, new)
    assert step.result["unsupported"] == []
    assert count_operators(rewritten).keys() <= MOBILE_SAFE_OPS
    return count_operators(rewritten)


@pytest.mark.parametrize("op", ["Greater", "GreaterOrEqual", "LessOrEqual"])
@pytest.mark.parametrize("dtype", ["float", "int64", "int32"])
def test_comparison(op: str, dtype: str) -> None:
    kind = {"float": np.float32, "int64": np.int64, "int32": np.int32}[dtype]
    graph = model(f"y = {op}(a, b)", f"{dtype}[n, m] a, {dtype}[k, l] b", "bool[p, q] y")
    a, b = (A, B) if dtype == "float" else (np.array([[0, 1, -2]], kind), np.array([[0], [2], [-2]], kind))
    assert_same(graph, {"a": a, "b": b})


@pytest.mark.parametrize("op", ["Max", "Min"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_extremes(op: str, count: int) -> None:
    names = ["a", "b", "c"][:count]
    graph = model(
        f"y = {op}({', '.join(names)})",
        ", ".join(f"float[n{i}, m{i}] {x}" for i, x in enumerate(names)),
        "float[p, q] y",
    )
    values = {"a": A, "b": B, "c": np.array([[NAN], [1], [3], [-1]], np.float32)}
    assert_same(graph, {name: values[name] for name in names})


def test_integer_maximum_needs_no_nan_check() -> None:
    graph = model("y = Max(a, b)", "int64[n] a, int64[n] b", "int64[n] y")
    found = assert_same(graph, {"a": np.array([1, -5, 2**40]), "b": np.array([0, -4, 7])})
    assert found == {"Less": 1, "Where": 1}


def test_is_nan() -> None:
    assert_same(model("y = IsNaN(a)", "float[n, m] a", "bool[n, m] y"), {"a": A})


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_flatten(axis: int) -> None:
    graph = model(f"y = Flatten<axis = {axis}>(x)", "float[a, b, c] x", "float[p, q] y")
    assert_same(graph, {"x": np.arange(24, dtype=np.float32).reshape(2, 3, 4)})


@pytest.mark.parametrize(("axis", "dtype"), [(1, "int64"), (-1, "int32")])
def test_integer_cumulative_sum(axis: int, dtype: str) -> None:
    body = f"i = Constant<value = int64 {{{axis}}}>() y = CumSum(x, i)"
    graph = model(body, f"{dtype}[n, m] x", f"{dtype}[n, m] y")
    assert_same(graph, {"x": ROWS.astype(dtype)})


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
def test_operators_without_an_exact_rewrite_stay_and_are_reported(body: str, dtype: str) -> None:
    graph = model(body, f"{dtype}[n, m] x", f"{'int64' if 'NonZero' in body else dtype}[p, q] y")
    before = count_operators(graph)
    after, step = run("x", MobileSafeRewrite(), graph)
    assert count_operators(after) == before == step.result["operators_before"]
    assert len(step.result["unsupported"]) == 1


def test_subgraphs_are_rewritten() -> None:
    graph = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (bool c, float[n] a, float[n] b) => (bool[n] y) {'
        " y = If(c) <then_branch = t () => (bool[n] u) { u = GreaterOrEqual(a, b) },"
        " else_branch = e () => (bool[n] v) { v = IsNaN(a) }> }"
    )
    after, step = run("x", MobileSafeRewrite(), graph)
    onnx.checker.check_model(after)
    assert step.result["unsupported"] == ["If"]
    values = np.array([1, NAN, 3], np.float32), np.array([1, 1, NAN], np.float32)
    assert outputs(after, {"c": np.array(True), "a": values[0], "b": values[1]})[0].tolist() == [
        True,
        False,
        False,
    ]
    assert outputs(after, {"c": np.array(False), "a": values[0], "b": values[1]})[0].tolist() == [
        False,
        True,
        False,
    ]


def test_a_type_without_where_keeps_its_maximum() -> None:
    graph = model("y = Max(a, b)", "uint64[n] a, uint64[n] b", "uint64[n] y")
    after, step = run("x", MobileSafeRewrite(), graph)
    assert (count_operators(after), step.result["unsupported"]) == ({"Max": 1}, ["Max"])
    feed = {"a": np.array([1, 2**63], np.uint64), "b": np.array([2, 5], np.uint64)}
    assert outputs(after, feed)[0].tolist() == [2, 2**63]


FUNCTION = """
<ir_version: 8, opset_import: ["" : 18, "local" : 1]>
g (int64[n, m] x, float[p, q, r] z) => (bool[s, t] y) { k = Identity(x) y = local.f<axis = 2>(z) }
<domain: "local", opset_import: ["" : 18]>
f <axis> (k) => (y) { x = Flatten<axis: int = @axis>(k) y = GreaterOrEqual(x, x) }
"""


def test_a_function_means_its_own_names_and_attributes() -> None:
    """Its x is a float though the graph's x is an integer: NaN >= NaN is false. Its axis is the caller's."""
    graph = onnx.parser.parse_model(FUNCTION)
    onnx.checker.check_model(graph)
    z = np.array([[[1, NAN], [3, 4], [5, 6]]] * 2, np.float32)
    feed = {"x": ROWS, "z": z}
    before = outputs(graph, feed)
    after, step = run("x", MobileSafeRewrite(), graph)
    assert step.result["unsupported"] == ["Flatten", "local:f"]
    np.testing.assert_array_equal(before[0], outputs(after, feed)[0])
    assert before[0].tolist()[0] == [True, False]


def test_an_opset_without_slices_of_shapes_is_refused() -> None:
    graph = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 14]> g (float[n] a) => (bool[n] y) { y = IsNaN(a) }'
    )
    with pytest.raises(ConversionError, match="needs opset 15 or later, the graph has 14"):
        run("x", MobileSafeRewrite(), graph)


def test_a_safe_graph_keeps_its_bytes() -> None:
    graph = model("y = Add(a, a)", "float[n] a", "float[n] y")
    before = graph.SerializeToString(deterministic=True)
    after, _ = run("x", MobileSafeRewrite(), graph)
    assert after.SerializeToString(deterministic=True) == before
