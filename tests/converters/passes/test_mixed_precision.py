"""`OrtMixedPrecision`: what must stay float32 is found, and no more than that."""

from typing import Any

import numpy as np
import onnx
import pytest

from onnxreg.converters.passes import float16
from onnxreg.converters.passes.base import run
from onnxreg.converters.passes.float16 import OrtMixedPrecision, to_float16
from onnxreg.converters.passes.pass_contract import PassContract, run_and_compare
from onnxreg.converters.passes.tools import samples
from onnxreg.schema.core.errors import ConversionError, InputError


def model() -> Any:
    """Squares of values near 400 overflow float16; the products and the other multiplication do not."""
    parsed = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[n, 40] x) => (float[n, 40] logits) {'
        " h = MatMul(x, weight) small = Mul(h, tenth) big = Mul(h, thousand) square = Mul(big, big)"
        " back = Mul(square, millionth) sum = Add(small, back) logits = MatMul(sum, weight) }"
    )
    for index, node in enumerate(parsed.graph.node):
        node.name = f"{node.op_type}/{index}"
    weight = np.random.default_rng(0).normal(size=(40, 40)).astype(np.float32) / 6
    parsed.graph.initializer.append(onnx.numpy_helper.from_array(weight, "weight"))
    for name, value in {"tenth": 0.1, "thousand": 1000, "millionth": 1e-6}.items():
        parsed.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(value), name))
    return parsed


class TestContract(PassContract):
    def make(self) -> OrtMixedPrecision:
        return OrtMixedPrecision()

    def subject(self) -> Any:
        return model()


def test_only_what_overflows_or_loses_too_much_stays_float32() -> None:
    half, step = run_and_compare("mixed", OrtMixedPrecision(), model())
    found = step.result
    assert found["overflowing"] == ["Mul/3", "Mul/4"] == found["float32_nodes"]
    assert (found["minimal"], found["trials"]) == (True, 1)
    assert found["distance"] <= step.params["atol"]
    assert found["float16_weights"] >= 1
    onnx.checker.check_model(half, full_check=True)


def test_between_float32_nodes_no_value_is_halved() -> None:
    half, _ = run("mixed", OrtMixedPrecision(), model())
    makers = {name: node for node in half.graph.node for name in node.output}
    back = next(node for node in half.graph.node if node.name == "Mul/4")
    assert makers[back.input[0]].name == "Mul/3"


def test_each_node_that_stays_is_needed() -> None:
    atol = 2e-4
    nodes = set(run("mixed", OrtMixedPrecision(atol=atol), model())[1].result["float32_nodes"])
    assert nodes > {"Mul/3", "Mul/4"}
    feeds = samples.draw(model())
    expected = samples.all_outputs(model(), feeds, "parent")

    def distance(names: set[str]) -> float:
        return samples.relative_distance(
            expected, samples.all_outputs(to_float16(model(), None, names), feeds, "trial"), "trial"
        )

    assert distance(nodes) <= atol
    for name in nodes - {"Mul/3", "Mul/4"}:
        assert distance(nodes - {name}) > atol


def easy() -> Any:
    parsed = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[n, 40] x) => (float[n, 40] y) { y = MatMul(x, weight) }'
    )
    parsed.graph.initializer.append(model().graph.initializer[0])
    return parsed


def test_without_a_search_the_list_decides_or_fails() -> None:
    with pytest.raises(ConversionError, match="no choice of float32 operators"):
        run("mixed", OrtMixedPrecision(search=False, atol=2e-4), model())
    _, step = run("mixed", OrtMixedPrecision(search=False, op_block_list=["Mul"]), model())
    assert step.result["float32_nodes"] == ["Mul/1", "Mul/2", "Mul/3", "Mul/4"]


@pytest.mark.parametrize("search", [True, False])
def test_listed_operators_stay_float32_though_the_search_needs_none(search: bool) -> None:
    work = OrtMixedPrecision(op_block_list=["Relu", "Add"], search=search, atol=1)
    half, step = run_and_compare("mixed", work, long())
    assert step.result["float32_nodes"] == ["Add_2", "Relu_1"]
    inferred = onnx.shape_inference.infer_shapes(half).graph
    kinds = {
        value.name: value.type.tensor_type.elem_type for value in (*inferred.value_info, *inferred.output)
    }
    for node in (node for node in half.graph.node if node.op_type in ("Relu", "Add")):
        assert {kinds[name] for name in (*node.input, *node.output)} == {1}
    assert any(node.op_type == "MatMul" and kinds[node.output[0]] == 10 for node in half.graph.node)


def long() -> Any:
    parsed = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[n, 40] x) => (float[n, 40] y)'
        " { h = MatMul(x, weight) r = Relu(h) s = Add(r, r) y = MatMul(s, weight) }"
    )
    parsed.graph.initializer.append(model().graph.initializer[0])
    return parsed


def test_a_search_that_ends_before_it_holds_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(float16, "MAX_TRIALS", 1)
    assert run("mixed", OrtMixedPrecision(), model())[1].result["trials"] == 1
    with pytest.raises(ConversionError, match="no choice of float32 operators"):
        run("mixed", OrtMixedPrecision(atol=2e-4), model())


def test_a_tolerance_that_nothing_meets_is_an_error() -> None:
    with pytest.raises(ConversionError, match="no other could become it"):
        run("mixed", OrtMixedPrecision(atol=1e-12), easy())


def test_a_search_that_ends_early_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(float16, "MAX_TRIALS", 6)
    _, step = run("mixed", OrtMixedPrecision(atol=2e-4), model())
    assert (step.result["minimal"], step.result["trials"]) == (False, 6)


def test_data_of_another_graph_is_an_input_error() -> None:
    with pytest.raises(InputError, match="the graph takes x; given were z"):
        run("mixed", OrtMixedPrecision([{"z": np.zeros((1, 40), np.float32)}]), model())
