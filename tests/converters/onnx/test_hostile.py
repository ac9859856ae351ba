"""ONNX and ORT-format files that are made to harm: each is one clear error that names the file, soon and in little memory."""

import os
import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper
from support.sampling import sampled

from onnxreg.converters.onnx import ort_file
from onnxreg.converters.onnx.facts import inspect_file
from onnxreg.schema.core.errors import InputError

DEFAULT, LOCAL = helper.make_opsetid("", 18), helper.make_opsetid("local", 1)
node, YES = helper.make_node, helper.make_tensor("k", TensorProto.BOOL, [], [True])


def value(name: str) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 4))


def model_of(nodes: list[Any], tensors: tuple[Any, ...] = (), functions: tuple[Any, ...] = ()) -> Any:
    graph = helper.make_graph(nodes, "g", [value("x")], [value("y")], tensors)
    return helper.make_model(graph, opset_imports=[DEFAULT, LOCAL], functions=functions, ir_version=10)


def function(name: str, *nodes: Any) -> Any:
    return helper.make_function("local", name, ["a"], ["c"], nodes, [DEFAULT, LOCAL])


def calling(called: str, *functions: Any) -> Any:
    return model_of([node(called, ["x"], ["y"], domain="local")], (), functions)


def caller(name: str, called: str, times: int) -> Any:
    """A function that calls another one a few times."""
    names = [f"b{index}" for index in range(times)]
    calls = (node(called, ["a"], [name], domain="local") for name in names)
    return function(name, *calls, node("Sum", names, ["c"]))


def chain(length: int, times: int) -> Any:
    """Functions each of which calls the next one; the last computes."""
    functions = [caller(f"f{index}", f"f{index + 1}", times) for index in range(length)]
    return calling("f0", *functions, function(f"f{length}", node("Relu", ["a"], ["c"])))


def branch(*nodes: Any, gives: str = "o") -> Any:
    return helper.make_graph(nodes, "b", [], [value(gives)])


def recursion_in_a_branch() -> Any:
    calls, other = branch(node("f", ["a"], ["o"], domain="local")), branch(node("Identity", ["a"], ["o"]))
    choice = node("If", ["k"], ["c"], then_branch=calls, else_branch=other)
    return calling("f", function("f", node("Constant", [], ["k"], value=YES), choice))


def much_text() -> Any:
    """A function with a megabyte of text that is called a thousand times."""
    text = node("Constant", [], ["k"], value_string=b"x" * 2**20)
    names = ["x", *(f"v{index}" for index in range(999)), "y"]
    calls = [node("f", [a], [b], domain="local") for a, b in pairwise(names)]
    return model_of(calls, (), (function("f", text, node("Identity", ["a"], ["c"])),))


def two_of_one_name() -> Any:
    return calling("f", *[function("f", node("Relu", ["a"], ["c"]))] * 2)


def many_branches() -> Any:
    side = branch(node("Identity", ["x"], ["o"]))
    choices = [node("If", ["k"], [f"v{at}"], then_branch=side, else_branch=side) for at in range(6000)]
    return model_of([*choices, node("Relu", ["x"], ["y"])], (YES,))


def stored(dims: tuple[int, ...], data: bytes = bytes(16)) -> Any:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, raw_data=data)
    return model_of([node("Add", ["x", "w"], ["y"])], (tensor,))


def listed(kind: int, dims: tuple[int, ...], **values: Any) -> Any:
    """A graph with an attribute whose tensor is stored value by value."""
    tensor = TensorProto(data_type=kind, dims=dims, **values)
    return model_of([node("Constant", [], ["w"], value=tensor), node("Relu", ["x"], ["y"])])


def no_attribute_type() -> Any:
    axis = onnx.AttributeProto(name="axis", i=1)
    return model_of([onnx.NodeProto(op_type="Softmax", input=["x"], output=["y"], attribute=[axis])])


def a_branch_that_makes_nothing() -> Any:
    side = branch(gives="x")
    return model_of([node("If", ["k"], ["y"], then_branch=side, else_branch=side)], (YES,))


def external(dims: tuple[int, ...] = (4,), **entries: str) -> Any:
    model = stored(dims)
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in ({"location": "w.bin"} | entries).items():
        tensor.external_data.add(key=key, value=text)
    return model


def versions(version: int) -> Any:
    model = model_of([node("Relu", ["x"], ["y"])])
    model.opset_import[0].version = version
    return model


def nested(depth: int) -> bytes:
    """Subgraphs in each other, deeper than any library would write them."""
    suffix, size = b"\x12\x01g", 3  # the name of each graph
    heads: list[bytes] = []  # its field numbers and lengths
    for _ in range(depth):
        head = b""
        for number, before in ((6, b"\x0a\x0bthen_branch"), (5, b"\x22\x02If"), (1, b"")):
            head = before + bytes([number << 3 | 2]) + varint(size + len(head)) + head
        heads.append(head)
        size += len(head) + len(suffix)
    graph = b"".join(reversed(heads)) + suffix * (depth + 1)
    whole: bytes = model_of([node("Relu", ["x"], ["y"])]).SerializeToString()
    return whole + bytes([7 << 3 | 2]) + varint(len(graph)) + graph


def varint(number: int) -> bytes:
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def a_map() -> Any:
    """What a classifier of scikit-learn gives by default."""
    model = model_of([node("Relu", ["x"], ["y"])])
    kind = model.graph.output.add(name="z").type.sequence_type.elem_type.map_type
    kind.key_type = TensorProto.INT64
    kind.value_type.tensor_type.elem_type = TensorProto.FLOAT
    return model


FLOAT, INT4, COMPLEX = TensorProto.FLOAT, TensorProto.INT4, TensorProto.COMPLEX64
HOSTILE: dict[str, tuple[Callable[[], Any], str]] = {
    "functions that call each other twice": (lambda: chain(60, 2), "more than 250,000 nodes once its local functions"),
    "functions in a long row": (lambda: chain(500, 1), "call each other more than 200 deep"),
    "a function that calls itself in a branch": (recursion_in_a_branch, "a local function calls itself"),
    "a function that calls itself": (lambda: calling("f", caller("f", "f", 1)), "a local function calls itself"),
    "two functions of one name": (two_of_one_name, "two local functions have one name"),
    "a long text in a function that is called often": (much_text, "more than 512 MiB of nodes once"),
    "many branches": (many_branches, "more than 10,000 subgraphs"),
    "10 MB of branches in each other": (lambda: nested(250_000), "is not an ONNX file"),
    "nodes in a ring": (lambda: model_of([node("Add", ["x", "y"], ["y"])]), "not a valid graph"),
    "an attribute without a type": (no_attribute_type, "an attribute has no type"),
    "a branch that makes nothing": (a_branch_that_makes_nothing, "a value that it does not make"),
    "a negative dimension": (lambda: stored((-1,)), "a negative dimension"),
    "a negative dimension of external data": (lambda: external((-4,)), "a negative dimension"),
    "more elements than there can be": (lambda: stored((2**62, 4)), "values of 16 bytes"),
    "axes without end": (lambda: stored((2**62,) * 100_000), "a tensor with more than 64 axes"),
    "axes of external data without end": (lambda: external((2**62,) * 100_000), "a tensor with more than 64 axes"),
    "too few bytes": (lambda: stored((4,), bytes(15)), "values of 15 bytes, its shape takes 16"),
    "too many bytes": (lambda: stored((4,), bytes(17)), "values of 17 bytes, its shape takes 16"),
    "too few values": (lambda: listed(FLOAT, (4,), float_data=[1.0] * 3), "values of 12 bytes"),
    "too few packed values": (lambda: listed(INT4, (5,), int32_data=[1, 2]), "values of 2 bytes"),
    "half a complex number": (lambda: listed(COMPLEX, (1,), float_data=[1.0]), "not a valid graph"),
    "more external elements than there can be": (lambda: external((2**40, 2**20)), "is cut short"),
    "an offset of 5000 digits": (lambda: external(offset="9" * 5000), "offset or length is not a number"),
    "an offset of 19 digits": (lambda: external(offset="9" * 19), "offset or length is not a number"),
    "an offset in Arabic digits": (lambda: external(offset="٣"), "offset or length is not a number"),
    "a length that is too short": (lambda: external((8,), length="16"), "needs 32 bytes of w.bin, it names 16"),
    "a pipe as external data": (lambda: external(location="pipe"), "which is missing"),
    "a device as external data": (lambda: external(location="zeros"), "a link that leads out of its folder"),
    "a map": (a_map, "values that are maps; export the classifier without them (zipmap: False)"),
    "an operator set of version 2**62": (lambda: versions(2**62), "which no operator set has"),
}  # fmt: skip


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.more if "10 MB" in case else ()) for case in HOSTILE]
)
def test_each_is_one_error_that_names_the_file(case, tmp_path):
    make, message = HOSTILE[case]
    made = make()
    (tmp_path / "w.bin").write_bytes(bytes(64))
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    path = tmp_path / "hostile.onnx"
    path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
    with pytest.raises(InputError) as caught:
        inspect_file(path)
    assert "hostile.onnx" in caught.value.message
    assert str(tmp_path) not in caught.value.message + caught.value.hint
    assert message in caught.value.message


def test_functions_that_are_called_often_are_read(tmp_path):
    onnx.save(chain(10, 2), tmp_path / "m.onnx")
    facts = inspect_file(tmp_path / "m.onnx")
    assert facts.operator_names == ("Relu", "Sum")


BERT = Path(__file__).parents[2] / "fixtures/openmed-v1/bert/model.ort"
WHOLE = BERT.read_bytes()
GRAPH = {"initializers": 4, "node_args": 6, "nodes": 8, "inputs": 14, "outputs": 16}
"""Places in the table `Graph` of ort.fbs, as the generated bindings have them."""

Spoil = Callable[[], bytes]


def ort_graph() -> Any:
    ort_file.register_bindings()
    from ort_flatbuffers_py.fbs.InferenceSession import InferenceSession

    return InferenceSession.GetRootAs(WHOLE).Model().Graph()


def field(table: Any, slot: int) -> int:
    """Where a field of a table is in the file."""
    return int(table._tab.Pos + table._tab.Offset(slot))


def vector(table: Any, slot: int) -> int:
    """Where the length of a vector is in the file."""
    return int(table._tab.Vector(table._tab.Offset(slot)) - 4)


def put(at: int, value: int, kind: str = "<I") -> bytes:
    data = bytearray(WHOLE)
    struct.pack_into(kind, data, at, value)
    return bytes(data)


def long_vector(slot: int, length: int) -> Spoil:
    return lambda: put(vector(ort_graph(), slot), length)


def one_node_many_times() -> bytes:
    """A vector of 10,000 nodes, all of which are the same one, which has 10,000 inputs: 10^8 names in 80 kB."""
    times, at = 10_000, field(ort_graph(), GRAPH["nodes"])
    start = (len(WHOLE) + 3) // 4 * 4
    table = start + 4 + 4 * times + 24  # behind the vector of nodes, and the table of its fields
    nodes = [table - (start + 4 + 4 * index) for index in range(times)]
    fields = struct.pack("<12H", 24, 8, *(0,) * 8, 4, 0)  # its inputs alone, 4 bytes into the table
    inputs = struct.pack(f"<iII{times}I", 24, 4, times, *(0,) * times)
    data = put(at, start - at) + bytes(start - len(WHOLE))
    return data + struct.pack(f"<{times + 1}I", times, *nodes) + fields + inputs


def dimension(size: int) -> bytes:
    """The first size of the first initializer that has one."""
    table = ort_graph()
    tensors = map(table.Initializers, range(table.InitializersLength()))
    return put(vector(next(tensor for tensor in tensors if tensor.DimsLength()), 8) + 4, size, "<q")


HOSTILE_ORT: dict[str, Spoil] = {
    "nothing": lambda: b"",
    "seven bytes": lambda: WHOLE[:7],
    "the header alone": lambda: WHOLE[:8],
    "cut in the middle": lambda: WHOLE[: len(WHOLE) // 2],
    "cut before the last weights": lambda: WHOLE[:-200],
    "another identifier": lambda: WHOLE[:4] + b"TFL3" + WHOLE[8:],
    "zeros behind the identifier": lambda: WHOLE[:8] + bytes(len(WHOLE) - 8),
    "a root beyond the file": lambda: put(0, 2**31),
    "a root at the last byte": lambda: put(0, len(WHOLE) - 1),
    "a table of operations far behind": lambda: put(ort_graph()._tab.Pos, -(2**31), "<i"),
    "nodes beyond the file": lambda: put(field(ort_graph(), GRAPH["nodes"]), 2**31 - 1),
    "4 billion nodes": long_vector(GRAPH["nodes"], 2**32 - 1),
    "4 billion weights": long_vector(GRAPH["initializers"], 2**32 - 1),
    "4 billion values": long_vector(GRAPH["node_args"], 2**32 - 1),
    "4 billion inputs": long_vector(GRAPH["inputs"], 2**32 - 1),
    "one node more than there is": lambda: put(vector(ort_graph(), GRAPH["nodes"]), ort_graph().NodesLength() + 1),
    "one node 10,000 times": one_node_many_times,
    "a node that is the graph": lambda: put(at := vector(ort_graph(), GRAPH["nodes"]) + 4, (ort_graph()._tab.Pos - at) & 0xFFFFFFFF),
    "a negative dimension": lambda: dimension(-5),
    "a dimension of 2**62": lambda: dimension(2**62),
}  # fmt: skip


@pytest.mark.parametrize("case", sampled(HOSTILE_ORT, 2))
def test_each_ort_file_is_one_error_that_names_the_file(case, tmp_path):
    path = tmp_path / "hostile.ort"
    path.write_bytes(HOSTILE_ORT[case]())
    with pytest.raises(InputError) as caught:
        inspect_file(path)
    assert caught.value.message.startswith("hostile.ort ")
    assert inspect_file(BERT).ort_format is not None
