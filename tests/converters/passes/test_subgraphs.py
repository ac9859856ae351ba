"""Weights inside branches and loops: a pass reaches them, or says that it does not."""

from typing import Any

import numpy as np
import onnx
import pytest

from onnxreg.converters.onnx.graph_operators import within
from onnxreg.converters.passes.pass_catalog import BUILT_IN
from onnxreg.converters.passes.pass_contract import run_and_compare
from onnxreg.converters.passes.tools.graph import factors
from onnxreg.schema.core.errors import ConversionError

HEADER = '<ir_version: 8, opset_import: ["" : 18]>'
BRANCHES = (
    f"{HEADER} g (bool c, float[n, 40] x) => (float[n, 40] y) {{ h = MatMul(x, outside) y = If(c)"
    " <then_branch = t () => (float[n, 40] u) { u = MatMul(h, w) },"
    " else_branch = e () => (float[n, 40] v) { v = Relu(h) }> }"
)
LOOP = (
    f"{HEADER} g (float[n, 40] x, float[n, 40] c) => (float[n, 40] y) {{ h = MatMul(c, outside)"
    " three = Constant<value = int64 {3}>() yes = Constant<value = bool {1}>() y = Loop(three, yes, h) <body ="
    " b (int64 i, bool k, float[n, 40] a) => (bool more, float[n, 40] next)"
    " { more = Identity(k) next = MatMul(a, w) }> }"
)
REACHES = (
    "OnnxFloatToFloat16",
    "OrtMixedPrecision",
    "OnnxBlockWiseRtnQuantization",
    "OnnxOpVersionConversion",
)
REFUSES = ("OnnxDynamicQuantization", "OnnxStaticQuantization")


def model(text: str, inside: bool) -> Any:
    """`inside`: the weight is stored in the branch itself."""
    parsed = onnx.parser.parse_model(text)
    weight = np.random.default_rng(0).normal(size=(40, 40)).astype(np.float32) / 6
    parsed.graph.initializer.append(onnx.numpy_helper.from_array(weight, "outside"))
    body = parsed.graph.node[1].attribute[0].g if inside else parsed.graph
    body.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    return parsed


def feeds(subject: Any) -> list[dict[str, Any]]:
    rows = np.random.default_rng(1).normal(size=(3, 40)).astype(np.float32)
    is_branch = subject.graph.input[0].name == "c"
    return [{"c": np.array(True) if is_branch else rows, "x": rows}]


PLACES = [(BRANCHES, False), (BRANCHES, True), (LOOP, False)]


@pytest.mark.parametrize("place", PLACES, ids=["branch", "branch's own", "loop"])
@pytest.mark.parametrize("name", REACHES)
def test_reached(name: str, place: tuple[str, bool]) -> None:
    subject = model(*place)
    given = feeds(subject)
    _, step = run_and_compare("x", BUILT_IN[name](given), subject, feeds=given)
    assert step.result["parity"]["outputs"]["y"]["cosine"] > 0.95
    if name != "OnnxOpVersionConversion":
        assert step.result.get("float16_weights", step.result.get("weights")) == 2


@pytest.mark.parametrize("place", PLACES, ids=["branch", "branch's own", "loop"])
@pytest.mark.parametrize("name", REFUSES)
def test_refused(name: str, place: tuple[str, bool]) -> None:
    subject = model(*place)
    with pytest.raises(ConversionError, match="left weights in floating point: w"):
        run_and_compare("x", BUILT_IN[name](feeds(subject)), subject, feeds=feeds(subject))


@pytest.mark.parametrize("place", PLACES[:2], ids=["branch", "branch's own"])
def test_a_gemm_in_a_branch_is_reached_by_blocks(place: tuple[str, bool]) -> None:
    subject = model(BRANCHES.replace("MatMul(h, w)", "Gemm <transB = 1> (h, w)"), place[1])
    work = BUILT_IN["OnnxBlockWiseRtnQuantization"](gemm=True)
    after, step = run_and_compare("x", work, subject, feeds=feeds(subject))
    assert step.result["weights"] == 2
    assert step.result["parity"]["outputs"]["y"]["cosine"] > 0.95
    assert not any(node.op_type == "Gemm" for body in within(after.graph) for node in body.node)
    assert "w" not in {tensor.name for body in within(after.graph) for tensor in body.initializer}


def test_branches_may_pass_values_on_under_the_same_names() -> None:
    subject = onnx.parser.parse_model(
        f"{HEADER} g (bool c, float[2, 2] x) => (float[2, 2] y)"
        " <float[2, 2] w = {1, 2, 3, 4}> { y = If(c)"
        " <then_branch = t () => (float[2, 2] u) { a = Relu(x) b = Identity(a) u = MatMul(b, x) },"
        " else_branch = e () => (float[2, 2] v) { b = Identity(w) a = Identity(b) v = MatMul(x, a) }> }"
    )
    onnx.checker.check_model(subject, full_check=True)
    assert factors(subject, {"MatMul"}).keys() == {"w"}
