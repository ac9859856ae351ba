"""The `Dataflow` of an ONNX protobuf, and that of an ORT-format file."""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx.compare.dataflow import Dataflow, Function, Node, tensors_by_name
from onnxreg.converters.onnx.graph_operators import DEFAULT_DOMAIN
from onnxreg.converters.onnx.onnx_graph import opset_imports
from onnxreg.converters.onnx.ort import ort_graph
from onnxreg.converters.onnx.ort.ort_graph import text
from onnxreg.converters.onnx.stored_tensors import OnnxTensor, OrtTensor, StoredTensor, digest_of

REFERENCE = 0
"""The number of an attribute that refers to one of the function around it; the value is that one's name."""


def read_onnx(model: Any, path: Path) -> tuple[Dataflow, tuple[Function, ...]]:
    """The main graph and the local functions of an `onnx.ModelProto` at `path`.

    Raise ValueError if two operator sets have one name, or two tensors of a graph.
    """
    if len(opset_imports(model)) < len(model.opset_import):
        raise ValueError("two versions of one operator set are imported")
    reader = _OnnxReader(path, opset_imports(model))
    functions = tuple(_OnnxReader(path, opset_imports(item)).function(item) for item in model.functions)
    return reader.graph(model.graph), functions


class SparseTensor:
    """A `SparseTensorProto`, identified by its values and their positions."""

    def __init__(self, proto: Any, path: Path) -> None:
        self._parts = (OnnxTensor(proto.values, path), OnnxTensor(proto.indices, path))
        self.name = self._parts[0].name
        self.dtype = f"sparse {self._parts[0].dtype}"
        self.dims = tuple(proto.dims)

    def blocks(self) -> Iterator[Any]:
        for part in self._parts:
            yield f"{part.dtype} {part.dims} {digest_of(part)}\n".encode()

    def array(self) -> Any:
        raise ValueError("a sparse tensor is not an array")


class _OnnxReader:
    def __init__(self, path: Path, imports: Mapping[str, int]) -> None:
        self._path = path
        self._imports = imports

    def graph(self, graph: Any) -> Dataflow:
        tensors: list[StoredTensor] = [OnnxTensor(item, self._path) for item in graph.initializer]
        tensors += [SparseTensor(item, self._path) for item in graph.sparse_initializer]
        stored = tensors_by_name(tensors)
        inputs = (_text(value.name) for value in graph.input)
        return Dataflow(
            tuple(name for name in inputs if name not in stored),
            tuple(_text(value.name) for value in graph.output),
            stored,
            tuple(map(self._node, graph.node)),
        )

    def function(self, function: Any) -> Function:
        nodes = tuple(map(self._node, function.node))
        return Function(
            (_text(function.domain), _text(function.name), _text(function.overload)),
            tuple(map(_text, function.attribute)),
            self._attributes(function.attribute_proto),
            Dataflow(tuple(map(_text, function.input)), tuple(map(_text, function.output)), {}, nodes),
        )

    def _node(self, node: Any) -> Node:
        domain = _text(node.domain) or DEFAULT_DOMAIN
        return Node(
            _text(node.name),
            (domain, _text(node.op_type), _text(node.overload), self._imports.get(domain, 1)),
            tuple(map(_text, node.input)),
            tuple(map(_text, node.output)),
            self._attributes(node.attribute),
        )

    def _attributes(self, attributes: Any) -> dict[str, tuple[int, Any]]:
        return {_text(item.name): self._attribute(item) for item in attributes}

    def _attribute(self, item: Any) -> tuple[int, Any]:
        if item.ref_attr_name:
            return REFERENCE, _text(item.ref_attr_name)
        field = _FIELDS.get(item.type)
        if field is None:
            return item.type, [str(value) for _, value in item.ListFields()]
        value = getattr(item, field)
        return item.type, list(map(self._value, value)) if field in _MANY else self._value(value)

    def _value(self, value: Any) -> Any:
        kind = getattr(getattr(value, "DESCRIPTOR", None), "name", None)
        if kind == "TensorProto":
            return OnnxTensor(value, self._path)
        if kind == "SparseTensorProto":
            return SparseTensor(value, self._path)
        if kind == "GraphProto":
            return self.graph(value)
        return str(value) if kind else value


_ONE = {1: "f", 2: "i", 3: "s", 4: "t", 5: "g", 11: "sparse_tensor", 13: "tp"}
_LISTS = {
    6: "floats",
    7: "ints",
    8: "strings",
    9: "tensors",
    10: "graphs",
    12: "sparse_tensors",
    14: "type_protos",
}
_FIELDS = dict(chain(_ONE.items(), _LISTS.items()))
"""The field of `AttributeProto` that holds a value of each type."""
_MANY = frozenset(_LISTS.values())


def _text(name: Any) -> str:
    """Protobuf hands out what is not UTF-8 as bytes."""
    return name if isinstance(name, str) else repr(name)


def read_ort(session: Any, path: Path) -> Dataflow:
    """The main graph of an `fbs.InferenceSession` of the file at `path`; inside `ort_graph.reading`."""
    return _ort_graph(session.Model().Graph(), path, 0)


def _ort_graph(graph: Any, path: Path, depth: int) -> Dataflow:
    if depth > ort_graph.MAX_DEPTH:
        raise ValueError("subgraphs are nested too deep")
    tensors = [OrtTensor(tensor, path) for tensor in ort_graph.tensors(graph)]
    nodes = (graph.Nodes(index) for index in range(graph.NodesLength()))
    return Dataflow(
        tuple(ort_graph.graph_inputs(graph)),
        tuple(ort_graph.graph_outputs(graph)),
        tensors_by_name(tensors),
        tuple(_ort_node(node, path, depth) for node in nodes),
    )


def _ort_node(node: Any, path: Path, depth: int) -> Node:
    attributes = [node.Attributes(index) for index in range(node.AttributesLength())]
    return Node(
        text(node.Name()),
        (text(node.Domain()) or DEFAULT_DOMAIN, text(node.OpType()), "", node.SinceVersion()),
        tuple(text(node.Inputs(index)) for index in range(node.InputsLength())),
        tuple(text(node.Outputs(index)) for index in range(node.OutputsLength())),
        {text(item.Name()): (item.Type(), _ort_value(item, path, depth)) for item in attributes},
    )


def _ort_value(item: Any, path: Path, depth: int) -> Any:
    def several(count: int, read: Callable[[int], Any]) -> list[Any]:
        return [read(index) for index in range(count)]

    readers: dict[int, Callable[[], Any]] = {
        1: lambda: float(item.F()),
        2: lambda: int(item.I()),
        3: lambda: item.S() or b"",
        4: lambda: OrtTensor(item.T(), path),
        5: lambda: _ort_graph(item.G(), path, depth + 1),
        6: lambda: several(item.FloatsLength(), lambda at: float(item.Floats(at))),
        7: lambda: several(item.IntsLength(), lambda at: int(item.Ints(at))),
        8: lambda: several(item.StringsLength(), item.Strings),
        9: lambda: several(item.TensorsLength(), lambda at: OrtTensor(item.Tensors(at), path)),
        10: lambda: several(item.GraphsLength(), lambda at: _ort_graph(item.Graphs(at), path, depth + 1)),
    }
    if item.Type() not in readers:
        raise ValueError(f"attributes of type {item.Type()} are unknown")
    return readers[item.Type()]()
