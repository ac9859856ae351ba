"""ORT-format files that are made to harm: each is one clear error that names the file, soon and in little memory."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onnxreg.converters.onnx import ort_file
from onnxreg.converters.onnx.facts import inspect_file
from onnxreg.schema.core.errors import InputError

BERT = Path(__file__).parent.parent / "fixtures/openmed-v1/bert/model.ort"
WHOLE = BERT.read_bytes()
GRAPH = {"initializers": 4, "node_args": 6, "nodes": 8, "inputs": 14, "outputs": 16}
"""Places in the table `Graph` of ort.fbs, as the generated bindings have them."""

Spoil = Callable[[], bytes]


def graph() -> Any:
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
    return lambda: put(vector(graph(), slot), length)


def one_node_many_times() -> bytes:
    """A vector of 10,000 nodes, all of which are the same one, which has 10,000 inputs: 10^8 names in 80 kB."""
    times, at = 10_000, field(graph(), GRAPH["nodes"])
    start = (len(WHOLE) + 3) // 4 * 4
    table = start + 4 + 4 * times + 24  # behind the vector of nodes, and the table of its fields
    nodes = [table - (start + 4 + 4 * index) for index in range(times)]
    fields = struct.pack("<12H", 24, 8, *(0,) * 8, 4, 0)  # its inputs alone, 4 bytes into the table
    inputs = struct.pack(f"<iII{times}I", 24, 4, times, *(0,) * times)
    data = put(at, start - at) + bytes(start - len(WHOLE))
    return data + struct.pack(f"<{times + 1}I", times, *nodes) + fields + inputs


def dimension(size: int) -> bytes:
    """The first size of the first initializer that has one."""
    table = graph()
    tensors = map(table.Initializers, range(table.InitializersLength()))
    return put(vector(next(tensor for tensor in tensors if tensor.DimsLength()), 8) + 4, size, "<q")


HOSTILE: dict[str, Spoil] = {
    "nothing": lambda: b"",
    "seven bytes": lambda: WHOLE[:7],
    "the header alone": lambda: WHOLE[:8],
    "cut in the middle": lambda: WHOLE[: len(WHOLE) // 2],
    "cut before the last weights": lambda: WHOLE[:-200],
    "another identifier": lambda: WHOLE[:4] + b"TFL3" + WHOLE[8:],
    "zeros behind the identifier": lambda: WHOLE[:8] + bytes(len(WHOLE) - 8),
    "a root beyond the file": lambda: put(0, 2**31),
    "a root at the last byte": lambda: put(0, len(WHOLE) - 1),
    "a table of operations far behind": lambda: put(graph()._tab.Pos, -(2**31), "<i"),
    "nodes beyond the file": lambda: put(field(graph(), GRAPH["nodes"]), 2**31 - 1),
    "4 billion nodes": long_vector(GRAPH["nodes"], 2**32 - 1),
    "4 billion weights": long_vector(GRAPH["initializers"], 2**32 - 1),
    "4 billion values": long_vector(GRAPH["node_args"], 2**32 - 1),
    "4 billion inputs": long_vector(GRAPH["inputs"], 2**32 - 1),
    "one node more than there is": lambda: put(vector(graph(), GRAPH["nodes"]), graph().NodesLength() + 1),
    "one node 10,000 times": one_node_many_times,
    "a node that is the graph": lambda: put(at := vector(graph(), GRAPH["nodes"]) + 4, (graph()._tab.Pos - at) & 0xFFFFFFFF),
    "a negative dimension": lambda: dimension(-5),
    "a dimension of 2**62": lambda: dimension(2**62),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_each_is_one_error_that_names_the_file(case: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.ort"
    path.write_bytes(HOSTILE[case]())
    with pytest.raises(InputError) as caught:
        inspect_file(path)
    assert caught.value.message.startswith("hostile.ort ")
    assert inspect_file(BERT).ort_format is not None
