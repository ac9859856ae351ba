"""The `Dataflow` of an ONNX protobuf."""

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx.compare.dataflow import Dataflow, Function, Node, tensors_by_name
from onnxreg.converters.onnx.graph_operators import DEFAULT_DOMAIN
from onnxreg.converters.onnx.onnx_graph import opset_imports
from onnxreg.converters.onnx.stored_tensors import OnnxTensor, StoredTensor, digest_of

REFERENCE = 0
"""The number of an attribute that refers to one of the function around it; the value is that one's name."""


def read_onnx(model: Any, path: Path) -> tuple[Dataflow, tuple[Function, ...]]:
    """The main graph and the local functions of an `onnx.ModelProto` at `path`.

    Raise ValueError if two operator sets have one name, or two tensors of a graph.
    """
    if len(opset_imports(model)) < len(model.opset_import):
        raise ValueError("two versions of one operator set are imported")
    reader = _Reader(path, opset_imports(model))
    functions = tuple(_Reader(path, opset_imports(item)).function(item) for item in model.functions)
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


class _Reader:
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
