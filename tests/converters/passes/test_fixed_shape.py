"""`DynamicToFixedShape`: by axis and by input, and the ways to ask for what is not there."""

from typing import Any

import numpy as np
import onnx
import pytest

from onnxreg.converters.passes.base import run
from onnxreg.converters.passes.graph_passes import DynamicToFixedShape
from onnxreg.converters.passes.pass_contract import PassContract, run_and_compare
from onnxreg.converters.passes.tools import samples
from onnxreg.schema.core.errors import InputError


def model() -> Any:
    """Its values' shapes hold an expression of an axis, as exporters leave them."""
    parsed = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]>'
        " g (int64[batch, sequence] ids, int64[batch, sequence] mask) => (float[batch, sequence, 4] y, float[a, b] z)"
        " { rows = Gather(table, ids) y = Relu(rows) z = ReduceMax<keepdims = 0>(y, axes) }"
    )
    table = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)
    parsed.graph.initializer.append(onnx.numpy_helper.from_array(table, "table"))
    parsed.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "axes"))
    stale = onnx.helper.make_tensor_value_info("rows", 1, ["batch", "Min(512, sequence)", 4])
    parsed.graph.value_info.append(stale)
    return parsed


class TestContract(PassContract):
    def make(self) -> DynamicToFixedShape:
        return DynamicToFixedShape(dim_param=["batch", "sequence"], dim_value=[2, 8])

    def subject(self) -> Any:
        return model()


WAYS = (
    {"dim_param": ["batch", "sequence"], "dim_value": [3, 7]},
    {"input_dim": ["batch", "sequence"], "dim_value": [3, 7]},
    {"input_name": ["ids"], "input_shape": [[3, 7]]},
    {"input_name": ["mask", "ids"], "input_shape": [[3, 7], [3, 7]]},
)


def test_every_way_gives_the_same_bytes_and_true_shapes() -> None:
    found = set()
    for way in WAYS:
        after, step = run_and_compare("fixed", DynamicToFixedShape(**way), model())
        assert step.result["shapes"] == {"ids": [3, 7], "mask": [3, 7], "y": [3, 7, 4], "z": [3, 4]}
        assert step.result["parity"]["outputs"]["y"]["max_abs_diff"] == 0
        found.add(after.SerializeToString(deterministic=True))
    assert len(found) == 1
    assert b"sequence" not in found.pop()


def test_one_axis_stays_dynamic() -> None:
    _, step = run_and_compare("fixed", DynamicToFixedShape(dim_param=["batch"], dim_value=[1]), model())
    assert step.result["shapes"]["y"] == [1, "sequence", 4]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "give either"),
        ({**WAYS[0], **WAYS[2]}, "give either"),
        ({"dim_param": ["batch"]}, "as many names"),
        ({"dim_value": [1]}, "as many names"),
        ({"dim_param": ["batch"], "dim_value": [1, 2]}, "as many names"),
        ({"dim_param": [], "dim_value": []}, "as many names"),
        ({"dim_param": ["batch", "batch"], "dim_value": [1, 2]}, "twice"),
        ({"dim_param": ["batch"], "dim_value": [0]}, "greater than 0"),
        ({"input_name": ["ids"], "input_shape": [[0, 1]]}, "greater than 0"),
        ({"dim_param": ["bacth"], "dim_value": [1]}, "no input has an axis called 'bacth'"),
        ({"input_name": ["idz"], "input_shape": [[1, 2]]}, "no input 'idz' has 2 axes"),
        ({"input_name": ["ids"], "input_shape": [[1, 2, 3]]}, "no input 'ids' has 3 axes"),
        ({"input_name": ["ids", "mask"], "input_shape": [[1, 2], [1, 3]]}, "cannot be 3, it is 2"),
    ],
)
def test_invalid_parameters_are_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run("fixed", DynamicToFixedShape(**params), model())


def test_a_size_that_contradicts_a_fixed_axis() -> None:
    after, _ = run("fixed", DynamicToFixedShape(**WAYS[0]), model())
    with pytest.raises(InputError, match="cannot be 4, it is 7"):
        run("fixed", DynamicToFixedShape(input_name=["ids"], input_shape=[[3, 4]]), after)


def test_a_size_of_minus_one_is_a_dynamic_axis() -> None:
    subject = model()
    for value in (*subject.graph.input, *subject.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_value = -1
    assert samples.draw(subject)[0]["ids"].shape == (8, 8)
    work = DynamicToFixedShape(input_name=["ids", "mask"], input_shape=[[3, 7], [3, 7]])
    _, step = run_and_compare("fixed", work, subject)
    assert step.result["shapes"] == {"ids": [3, 7], "mask": [3, 7], "y": [3, 7, 4], "z": [3, 4]}


def test_an_axis_of_an_output_that_has_the_name_of_another() -> None:
    """PyTorch's exporter calls the height of a padded image `batch` too."""
    graph = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[batch, 3, 4, 4] x) => (float[batch, 3, batch, width] y) {'
        " pads = Constant<value_ints = [0, 0, 2, 1, 0, 0, 1, 1]>() y = Pad(x, pads) }"
    )
    _, step = run_and_compare("fixed", DynamicToFixedShape(dim_param=["batch"], dim_value=[2]), graph)
    assert step.result["shapes"] == {"x": [2, 3, 4, 4], "y": [2, 3, 7, 6]}


def test_an_axis_that_only_a_run_can_tell() -> None:
    graph = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[batch, 3] x, int64[2] size) => (float[batch, rows] y) {'
        " y = Expand(x, size) }"
    )
    feeds = [{"x": np.ones((1, 3), np.float32), "size": np.array([1, 3])}]
    work = DynamicToFixedShape(feeds, dim_param=["batch"], dim_value=[1])
    _, step = run_and_compare("fixed", work, graph, feeds=feeds)
    assert step.result["shapes"]["y"][0] == 1
