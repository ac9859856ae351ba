"""The computation of a graph, whatever its values, nodes and tools are called.

The digest of a node is over its operator, its attributes and the digests of its inputs, as in a Merkle tree. So neither the
names of values and nodes nor their order count, and two graphs with one digest compute the same from the same weights.
The rules are in docs/format.md. `read_onnx` and `read_ort` make a `Dataflow` of either file format.
"""

from collections import ChainMap, Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import chain
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx import ort_file
from onnxreg.converters.onnx.graph_operators import DEFAULT_DOMAIN
from onnxreg.converters.onnx.onnx_graph import opset_imports
from onnxreg.converters.onnx.ort_file import text
from onnxreg.converters.onnx.stored_tensors import OnnxTensor, OrtTensor, StoredTensor, digest_of
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.manifest.parts import SemanticDigest, TensorSpec

Values = ChainMap[str, str]
"""The digest of each named value, an inner graph's before those of the graphs around it."""

REFERENCE = 0
"""The number of an attribute that refers to one of the function around it; the value is that one's name."""
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


@dataclass(frozen=True)
class Node:
    """`operator` is domain, name, overload and version; an attribute is its type's number and its value.

    The value is an int, float, bytes, text, tensor (`StoredTensor`), `Dataflow` or a list of these.
    """

    name: str
    operator: tuple[str, str, str, int]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, tuple[int, Any]]

    @property
    def kind(self) -> str:
        """The operator for people: `MatMul`, `com.microsoft:FusedMatMul`."""
        domain, name, *_ = self.operator
        return name if domain in ("", "ai.onnx") else f"{domain}:{name}"


@dataclass(frozen=True)
class Dataflow:
    """A graph, subgraph or function body, by the names that it uses itself."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: Mapping[str, StoredTensor]
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Function:
    """A local function: its domain, name and overload, the names of its attributes, those with a default, its body."""

    key: tuple[str, str, str]
    attributes: tuple[str, ...]
    defaults: Mapping[str, tuple[int, Any]]
    body: Dataflow


def semantic_digest(
    graph: Dataflow,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    functions: Iterable[Function] = (),
) -> SemanticDigest:
    """The digests of what a model computes and of its weights.

    Raise ValueError if nodes wait for each other in a ring.
    """
    values, nodes = digest_nodes(graph)
    document = {
        "inputs": list(map(_spec, inputs)),
        "outputs": [[*_spec(spec), values.get(spec.name, "")] for spec in outputs],
        "nodes": sorted(nodes),
        "functions": sorted(map(_function, functions)),
    }
    weights = sorted(
        [name, tensor.dtype, _dims(tensor.dims), str(digest_of(tensor))]
        for name, tensor in graph.tensors.items()
    )
    return SemanticDigest(graph=_digest(document), weights=_digest(weights))


def read_onnx(model: Any, path: Path) -> tuple[Dataflow, tuple[Function, ...]]:
    """The main graph and the local functions of an `onnx.ModelProto` at `path`.

    Raise ValueError if two operator sets have one name, or two tensors of a graph.
    """
    if len(opset_imports(model)) < len(model.opset_import):
        raise ValueError("two versions of one operator set are imported")
    reader = _OnnxReader(path, opset_imports(model))
    functions = tuple(_OnnxReader(path, opset_imports(item)).function(item) for item in model.functions)
    return reader.graph(model.graph), functions


def read_ort(session: Any, path: Path) -> Dataflow:
    """The main graph of an `fbs.InferenceSession` of the file at `path`; inside `ort_file.reading`."""
    return _ort_graph(session.Model().Graph(), path, 0)


def digest_nodes(graph: Dataflow) -> tuple[Values, list[str]]:
    """The digest of every value of a main graph, and of every node in the graph's order."""
    values: Values = ChainMap({name: _hash(["input", name]) for name in graph.inputs})
    weights = graph.tensors.items()
    values |= {name: _hash(["weight", name, tensor.dtype, _dims(tensor.dims)]) for name, tensor in weights}
    return values, _trace(graph, values, 1)


def function_digest(function: Function) -> str:
    """The digest of all that a function does, its name included."""
    return _hash(_function(function))


def _tensors_by_name(tensors: Iterable[StoredTensor]) -> dict[str, StoredTensor]:
    """The tensors of one graph. Raise ValueError if two have one name: ONNX Runtime reads the first, others the last."""
    stored: dict[str, StoredTensor] = {}
    for tensor in tensors:
        if stored.setdefault(tensor.name, tensor) is not tensor:
            raise ValueError(f"two stored tensors have the name {tensor.name[:80]!r}")
    return stored


def plain(attribute: tuple[int, Any]) -> list[Any]:
    """An attribute as JSON, for comparison: exact numbers, digests of tensors and subgraphs."""
    return _plain(attribute, ChainMap(), 1)


def node_order(nodes: Sequence[Node]) -> Iterable[int]:
    """The nodes' indices, each behind those that it needs: ORT-format files keep no such order."""
    makers = {name: index for index, node in enumerate(nodes) for name in node.outputs if name}
    needs = {
        index: sorted({makers[name] for name in needed_values(node) if name in makers})
        for index, node in enumerate(nodes)
    }
    return TopologicalSorter(needs).static_order()


def needed_values(node: Node) -> set[str]:
    """The values that a node reads, those that only its subgraphs read included."""
    graphs = (item for _, value in node.attributes.values() for item in _listed(value))
    return set(node.inputs).union(*(_free(graph) for graph in graphs if isinstance(graph, Dataflow)))


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


def _trace(graph: Dataflow, values: Values, depth: int) -> list[str]:
    """The digest of every node; those of their outputs go into `values`.

    Of nodes that are equal in all of this (such as two random generators) the second gets another digest than the first.
    """
    digests = [""] * len(graph.nodes)
    occurrences: Counter[str] = Counter()
    for index in node_order(graph.nodes):
        node = graph.nodes[index]
        inputs = [_value(values, name) if name else "" for name in node.inputs]
        attributes = [[name, *_plain(item, values, depth)] for name, item in sorted(node.attributes.items())]
        present = ["1" if name else "" for name in node.outputs]
        digest = _hash([list(map(str, node.operator)), attributes, inputs, present])
        occurrences[digest] += 1
        digests[index] = digest if occurrences[digest] == 1 else _hash([digest, str(occurrences[digest])])
        values.update(
            {name: _hash([digests[index], str(at)]) for at, name in enumerate(node.outputs) if name}
        )
    return digests


def _inner(graph: Dataflow, outer: Values, depth: int) -> str:
    """The digest of a subgraph or function body, whose own tensors count by value."""
    values = outer.new_child(
        {name: _hash(["input", str(depth), str(at)]) for at, name in enumerate(graph.inputs)}
    )
    values |= {name: _hash(_tensor(tensor)) for name, tensor in graph.tensors.items()}
    nodes = sorted(_trace(graph, values, depth + 1))
    outputs = [_value(values, name) for name in graph.outputs]
    return _hash([str(len(graph.inputs)), nodes, outputs])


def _plain(attribute: tuple[int, Any], values: Values, depth: int) -> list[Any]:
    kind, value = attribute
    return [str(kind), _plain_value(value, values, depth)]


def _plain_value(value: Any, values: Values, depth: int) -> Any:
    if isinstance(value, list):
        return [_plain_value(item, values, depth) for item in value]
    if isinstance(value, Dataflow):
        return _inner(value, values, depth)
    if isinstance(value, bytes | float):
        return value.hex()
    return str(value) if isinstance(value, int | str) else _tensor(value)


def _function(function: Function) -> list[Any]:
    defaults = [[name, *plain(item)] for name, item in sorted(function.defaults.items())]
    return [*function.key, list(function.attributes), defaults, _inner(function.body, ChainMap(), 1)]


def _listed(value: Any) -> Collection[Any]:
    return value if isinstance(value, list) else (value,)


def _free(graph: Dataflow) -> set[str]:
    """The names that a subgraph takes from the graphs around it."""
    own = {*graph.inputs, *graph.tensors, *(name for node in graph.nodes for name in node.outputs)}
    return set(graph.outputs).union(*map(needed_values, graph.nodes)) - own


def _spec(spec: TensorSpec) -> list[Any]:
    has_shape = "shape" in spec.model_fields_set
    return [
        spec.name,
        spec.dtype,
        ["" if dim.value is None else str(dim.value) for dim in spec.shape],
        has_shape,
    ]


def _tensor(tensor: StoredTensor) -> list[Any]:
    return [tensor.dtype, _dims(tensor.dims), str(digest_of(tensor))]


def _value(values: Values, name: str) -> str:
    """The digest of a value; that of its name if nothing computes it."""
    return values.get(name) or _hash(["name", name])


def _dims(dims: Iterable[int]) -> list[str]:
    return list(map(str, dims))


def _digest(value: Any) -> Digest:
    return Digest.of(canonical.encode(value))


def _hash(value: Any) -> str:
    return _digest(value).hex


class _OnnxReader:
    def __init__(self, path: Path, imports: Mapping[str, int]) -> None:
        self._path = path
        self._imports = imports

    def graph(self, graph: Any) -> Dataflow:
        tensors: list[StoredTensor] = [OnnxTensor(item, self._path) for item in graph.initializer]
        tensors += [SparseTensor(item, self._path) for item in graph.sparse_initializer]
        stored = _tensors_by_name(tensors)
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


def _text(name: Any) -> str:
    """Protobuf hands out what is not UTF-8 as bytes."""
    return name if isinstance(name, str) else repr(name)


def _ort_graph(graph: Any, path: Path, depth: int) -> Dataflow:
    if depth > ort_file.MAX_DEPTH:
        raise ValueError("subgraphs are nested too deep")
    tensors = [OrtTensor(tensor, path) for tensor in ort_file.tensors(graph)]
    nodes = (graph.Nodes(index) for index in range(graph.NodesLength()))
    return Dataflow(
        tuple(ort_file.graph_inputs(graph)),
        tuple(ort_file.graph_outputs(graph)),
        _tensors_by_name(tensors),
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
