"""A model is written in the bytes that protobuf gives, one weight at a time."""

import io

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxreg.converters.onnx.weightless import write_model

WEIGHTS = {
    "none": (),
    "empty": (0,),
    "one": (1,),
    "two lengths of a varint": (1, 33, 5000),
    "many": (300, 2, 40000),
}


def model(lengths: tuple[int, ...]) -> onnx.ModelProto:
    """A graph with a field before and after its weights, in a model with fields before and after its graph."""
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    weights = [
        numpy_helper.from_array(np.arange(length, dtype=np.float32), f"w{index}")
        for index, length in enumerate(lengths)
    ]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "graph", [value], [], weights)
    graph.output.add(name="y")
    graph.value_info.append(value)
    graph.metadata_props.add(key="a", value="b")
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], producer_name="maker")
    helper.set_model_props(made, {"zeta": "1", "alpha": "2"})
    body = [helper.make_node("Neg", ["a"], ["b"])]
    made.functions.append(helper.make_function("own", "F", ["a"], ["b"], body, [helper.make_opsetid("", 18)]))
    return made


@pytest.mark.parametrize("name", WEIGHTS)
def test_the_bytes_are_those_of_protobuf(name: str) -> None:
    made, file = model(WEIGHTS[name]), io.BytesIO()
    before = made.SerializeToString(deterministic=True)
    write_model(made, file)
    assert file.getvalue() == before
    assert made.SerializeToString(deterministic=True) == before
    read = onnx.ModelProto.FromString(file.getvalue())
    assert [len(tensor.raw_data) // 4 for tensor in read.graph.initializer] == list(WEIGHTS[name])


def test_weights_that_are_not_raw() -> None:
    made, file = model(()), io.BytesIO()
    made.graph.initializer.append(helper.make_tensor("w", TensorProto.INT64, [3], [1, 2, 300]))
    write_model(made, file)
    assert file.getvalue() == made.SerializeToString(deterministic=True)


@pytest.mark.parametrize("size", [0, 4, 12, 16])
def test_a_weight_of_another_size_than_its_shape(size: int) -> None:
    made, file = model((3, 3)), io.BytesIO(b"before")
    made.graph.initializer[1].raw_data = bytes(size)
    file.seek(6)
    write_model(made, file)
    assert file.getvalue() == b"before" + made.SerializeToString(deterministic=True)


@pytest.mark.parametrize("dims", [[-1], [], [2**40, 2**40]])
def test_a_weight_of_an_invalid_shape(dims: list[int]) -> None:
    made, file = model((3,)), io.BytesIO()
    made.graph.initializer[0].dims[:] = dims
    write_model(made, file)
    assert file.getvalue() == made.SerializeToString(deterministic=True)


def test_every_field_of_a_weight() -> None:
    made, file = model((3,)), io.BytesIO()
    weight = made.graph.initializer[0]
    weight.doc_string = "a weight"
    weight.data_location = TensorProto.EXTERNAL
    weight.segment.begin = 1
    weight.external_data.add(key="location", value="w.bin")
    weight.metadata_props.add(key="a", value="b")
    write_model(made, file)
    assert file.getvalue() == made.SerializeToString(deterministic=True)


UNKNOWN = b"\xfa\x3f\x01a"
"""A field of number 1023, as a later schema may have."""


@pytest.mark.parametrize("part", ["model", "graph", "weight"])
def test_fields_of_a_later_schema_are_kept(part: str) -> None:
    made, file = model((3,)), io.BytesIO()
    {"model": made, "graph": made.graph, "weight": made.graph.initializer[0]}[part].MergeFromString(UNKNOWN)
    write_model(made, file)
    assert UNKNOWN in file.getvalue()
    assert file.getvalue() == made.SerializeToString(deterministic=True)


def test_a_model_without_a_graph_gets_none() -> None:
    file = io.BytesIO()
    write_model(onnx.ModelProto(producer_name="maker"), file)
    assert not onnx.ModelProto.FromString(file.getvalue()).HasField("graph")
