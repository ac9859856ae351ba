"""`run_and_compare`: what runs, gives numbers and is near its parent, or nothing is emitted."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

from onnxreg.converters.passes.base import GraphPass
from onnxreg.converters.passes.pass_contract import run_and_compare
from onnxreg.converters.passes.tools import samples
from onnxreg.schema.core.errors import ConversionError, InputError


class Change(GraphPass):
    """Do to a graph what a test says."""

    id = "Change"
    change: Callable[[Any], None]

    def apply(self, subject: Any) -> Any:
        self.change(subject)
        return subject


def changing(change: Callable[[Any], None], tolerance: float | None = None) -> GraphPass:
    return type("Changing", (Change,), {"change": staticmethod(change), "tolerance": tolerance})()


def model() -> Any:
    parsed = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[n, 4] x) => (float[n, 4] y, bool[n, 4] z)'
        " { y = MatMul(x, weight) z = Less(y, x) }"
    )
    weight = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    parsed.graph.initializer.append(onnx.numpy_helper.from_array(weight, "weight"))
    return parsed


def scale(factor: float) -> Callable[[Any], None]:
    def change(subject: Any) -> None:
        weight = onnx.numpy_helper.to_array(subject.graph.initializer[0])
        subject.graph.initializer[0].raw_data = (weight * np.float32(factor)).tobytes()

    return change


@pytest.mark.parametrize(("kind", "step"), [(np.float32, 2.0**-23), (np.float16, 2.0**-10)], ids=str)
def test_a_tolerance_allows_a_few_roundings_of_the_weights_own_type(kind: Any, step: float) -> None:
    def subject() -> Any:
        graph = onnx.parser.parse_model(
            f'<ir_version: 8, opset_import: ["" : 18]> g ({onnx_name(kind)}[n, 4] x) => ({onnx_name(kind)}[n, 4] y)'
            " { y = Mul(x, weight) }"
        )
        graph.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(4, kind), "weight"))
        return graph

    def off(steps: float) -> Callable[[Any], None]:
        def change(graph: Any) -> None:
            weight = np.full(4, 1 + steps * step, kind)
            graph.graph.initializer[0].raw_data = weight.tobytes()

        return change

    feeds = [{"x": np.full((1, 4), 1, kind)}]
    run_and_compare("few", changing(off(4), 1e-6), subject(), feeds=feeds)
    with pytest.raises(ConversionError, match="from the parent's, the most is"):
        run_and_compare("many", changing(off(20), 1e-6), subject(), feeds=feeds)


def onnx_name(kind: Any) -> str:
    return {np.float32: "float", np.float16: "float16"}[kind]


def mystery(subject: Any) -> None:
    subject.graph.node[0].op_type = "Mystery"


def lost(subject: Any) -> None:
    del subject.graph.output[1]


def opset(subject: Any) -> None:
    subject.opset_import[0].version = 17


def double(subject: Any) -> None:
    subject.graph.output[1].type.tensor_type.elem_type = 1


def taller(subject: Any) -> None:
    node = onnx.helper.make_node("Unsqueeze", ["inner", "first"], ["y"])
    subject.graph.node[0].output[0] = "inner"
    subject.graph.node[1].input[0] = "inner"
    subject.graph.node.append(node)
    subject.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0]), "first"))
    subject.graph.output[0].type.tensor_type.ClearField("shape")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (mystery, "cannot load the result of Change"),
        (lost, "changed the inputs and outputs"),
        (opset, "changed the opset: 18 became 17"),
        (double, "changed the public types"),
        (taller, "another shape than the parent's"),
        (scale(np.nan), "NaN or infinity in the output y"),
        (scale(np.inf), "NaN or infinity in the output y"),
        (scale(-1), "not the parent's: their cosine is -1"),
        (scale(0), "not the parent's: their cosine is 0"),
    ],
)
def test_forbidden_changes_of_a_pass_are_refused(change: Callable[[Any], None], message: str) -> None:
    with pytest.raises(ConversionError, match=message):
        run_and_compare("x", changing(change), model())


def test_a_difference_is_on_record_and_limited_where_the_pass_says() -> None:
    _, step = run_and_compare("x", changing(scale(1.01)), model())
    found = step.result["parity"]
    assert found["samples"] == 2
    assert found["outputs"]["y"]["cosine"] == pytest.approx(1)
    assert found["outputs"]["y"]["max_abs_diff"] > 0.01
    with pytest.raises(ConversionError, match=r"the output y is .* from the parent's, the most is"):
        run_and_compare("x", changing(scale(1.01), 1e-3), model())


def test_a_parent_that_gives_no_numbers_is_named() -> None:
    broken = model()
    scale(np.nan)(broken)
    with pytest.raises(ConversionError, match="the graph that Change was given has NaN"):
        run_and_compare("x", changing(lambda subject: None), broken)


def test_a_parent_that_does_not_load_is_named() -> None:
    broken = model()
    broken.graph.node[0].domain = "com.example"
    broken.opset_import.add(domain="com.example", version=1)
    with pytest.raises(ConversionError, match="cannot load the graph that Change was given"):
        run_and_compare("x", changing(lambda subject: None), broken)


def test_a_graph_that_is_not_valid_is_an_input_error() -> None:
    broken = model()
    broken.graph.node[0].input[0] = "nothing"
    with pytest.raises(InputError, match="not a valid graph"):
        run_and_compare("x", changing(lambda subject: None), broken)


def test_drawn_samples_fit_the_graph_and_repeat() -> None:
    graph = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]>'
        " g (int64[batch, sequence] ids, int64[batch, sequence] mask, float16[batch, 3] f, bool[2] b) => (float[a, b, c] y)"
        " { cast = Cast<to = 6>(ids) y = Gather(table, cast) }"
    )
    table = np.zeros((5, 2), np.float32)
    graph.graph.initializer.append(onnx.numpy_helper.from_array(table, "table"))
    drawn = samples.draw(graph)
    assert [feed["ids"].shape for feed in drawn] == [(1, 8), (2, 12)]
    assert {int(feed["ids"].max()) for feed in drawn} <= {3, 4}
    assert all((feed["mask"] == 1).all() and feed["b"].all() for feed in drawn)
    assert {str(feed["f"].dtype) for feed in drawn} == {"float16"}
    assert samples.digest(drawn) == samples.digest(samples.draw(graph))
