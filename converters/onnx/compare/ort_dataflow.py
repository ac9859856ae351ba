"""The `Dataflow` of an ORT-format file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx.compare.dataflow import Dataflow, Node, tensors_by_name
from onnxreg.converters.onnx.graph_operators import DEFAULT_DOMAIN
from onnxreg.converters.onnx.ort import ort_graph
from onnxreg.converters.onnx.ort.ort_graph import text
from onnxreg.converters.onnx.stored_tensors import OrtTensor


def read_ort(session: Any, path: Path) -> Dataflow:
    """The main graph of an `fbs.InferenceSession` of the file at `path`; inside `ort_graph.reading`."""
    return _graph(session.Model().Graph(), path, 0)


def _graph(graph: Any, path: Path, depth: int) -> Dataflow:
    if depth > ort_graph.MAX_DEPTH:
        raise ValueError("subgraphs are nested too deep")
    tensors = [OrtTensor(tensor, path) for tensor in ort_graph.tensors(graph)]
    nodes = (graph.Nodes(index) for index in range(graph.NodesLength()))
    return Dataflow(
        tuple(ort_graph.graph_inputs(graph)),
        tuple(ort_graph.graph_outputs(graph)),
        tensors_by_name(tensors),
        tuple(_node(node, path, depth) for node in nodes),
    )


def _node(node: Any, path: Path, depth: int) -> Node:
    attributes = [node.Attributes(index) for index in range(node.AttributesLength())]
    return Node(
        text(node.Name()),
        (text(node.Domain()) or DEFAULT_DOMAIN, text(node.OpType()), "", node.SinceVersion()),
        tuple(text(node.Inputs(index)) for index in range(node.InputsLength())),
        tuple(text(node.Outputs(index)) for index in range(node.OutputsLength())),
        {text(item.Name()): (item.Type(), _value(item, path, depth)) for item in attributes},
    )


def _value(item: Any, path: Path, depth: int) -> Any:
    def several(count: int, read: Callable[[int], Any]) -> list[Any]:
        return [read(index) for index in range(count)]

    readers: dict[int, Callable[[], Any]] = {
        1: lambda: float(item.F()),
        2: lambda: int(item.I()),
        3: lambda: item.S() or b"",
        4: lambda: OrtTensor(item.T(), path),
        5: lambda: _graph(item.G(), path, depth + 1),
        6: lambda: several(item.FloatsLength(), lambda at: float(item.Floats(at))),
        7: lambda: several(item.IntsLength(), lambda at: int(item.Ints(at))),
        8: lambda: several(item.StringsLength(), item.Strings),
        9: lambda: several(item.TensorsLength(), lambda at: OrtTensor(item.Tensors(at), path)),
        10: lambda: several(item.GraphsLength(), lambda at: _graph(item.Graphs(at), path, depth + 1)),
    }
    if item.Type() not in readers:
        raise ValueError(f"attributes of type {item.Type()} are unknown")
    return readers[item.Type()]()
