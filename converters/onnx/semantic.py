"""The semantic digest of a graph's computation, independent of the names of its values, nodes and tools.

The digest of a node covers its operator, its attributes and the digests of its inputs, as in a Merkle tree.
So neither the names nor the order of values and nodes count, and two graphs with the same digest compute the
same from the same weights. The rules are in docs/format.md.
"""

from collections import ChainMap, Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from onnxreg.converters.onnx.graph_operators import DEFAULT_DOMAIN
from onnxreg.converters.onnx.tensors import digest_of, dims_of, type_of
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.manifest.parts import SemanticDigest, TensorSpec

if TYPE_CHECKING:
    import onnx_ir as ir

Values = ChainMap[Any, str]
"""The digest of each value. A value of an inner graph hides a value of the graphs around it."""
REFERENCE = "0"
"""Replaces the type in the digest of an attribute that refers to an attribute of the enclosing function."""


def semantic_digest(
    model: "ir.Model", inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> SemanticDigest:
    """Compute the digests of a model's computation and of its weights; `inputs` and `outputs` are the model's contract.

    The nodes of the model are sorted in place. Raises ValueError for a cycle of nodes.
    """
    from onnx_ir.passes.common import TopologicalSortPass

    TopologicalSortPass()(model)  # ORT-format files have no order
    graph, stored = model.graph, stored_tensors(model.graph)
    values: Values = ChainMap({value: _hash(["input", value.name]) for value in free_inputs(graph)})
    for name, tensor in stored.items():
        values[graph.initializers[name]] = _hash(["weight", name, *_tensor(tensor, with_values=False)])
    nodes = _trace(graph, values, 1)
    results = {value.name: values[value] for value in graph.outputs if value in values}
    document = {
        "inputs": list(map(_spec, inputs)),
        "outputs": [[*_spec(spec), results.get(spec.name, "")] for spec in outputs],
        "nodes": sorted(nodes),
        "functions": sorted(map(_function, model.functions.values())),
    }
    weights = sorted([name, *_tensor(tensor)] for name, tensor in stored.items())
    of_graph, of_weights = (Digest.of(canonical.encode(value)) for value in (document, weights))
    return SemanticDigest(graph=of_graph, weights=of_weights)


def stored_tensors(graph: "ir.Graph") -> dict[str, "ir.TensorProtocol"]:
    """Return the initializers of one graph by name."""
    return {name: value.const_value for name, value in graph.initializers.items() if value.const_value}


def free_inputs(graph: "ir.Graph | ir.Function") -> list["ir.Value"]:
    """Return the inputs that are not also initializers."""
    return [value for value in graph.inputs if not value.is_initializer()]


def _trace(graph: "ir.Graph | ir.Function", values: Values, depth: int) -> list[str]:
    """Return the digests of the nodes, and add the digests of their outputs to `values`.

    If two nodes would have equal digests (such as two random generators), the second one's digest is changed.
    """
    digests: list[str] = []
    occurrences: Counter[str] = Counter()
    for node in graph:
        operator = [node.domain or DEFAULT_DOMAIN, node.op_type, node.overload or "", str(node.version)]
        attributes = [
            [name, *_attribute(item, values, depth)] for name, item in sorted(node.attributes.items())
        ]
        inputs = ["" if value is None else _value(values, value) for value in node.inputs]
        digest = _hash([operator, attributes, inputs, ["1" if value.name else "" for value in node.outputs]])
        occurrences[digest] += 1
        if occurrences[digest] > 1:
            digest = _hash([digest, str(occurrences[digest])])
        digests.append(digest)
        values.update(
            {value: _hash([digest, str(at)]) for at, value in enumerate(node.outputs) if value.name}
        )
    return digests


def _inner(graph: "ir.Graph | ir.Function", outer: Values, depth: int) -> str:
    """Return the digest of a subgraph or function body, which covers the values of its own tensors."""
    inputs = free_inputs(graph)
    values = outer.new_child(
        {value: _hash(["input", str(depth), str(at)]) for at, value in enumerate(inputs)}
    )
    initializers = getattr(graph, "initializers", {})
    values |= {value: _hash(_tensor(value.const_value)) for value in initializers.values()}
    nodes = sorted(_trace(graph, values, depth + 1))
    return _hash([str(len(inputs)), nodes, [_value(values, value) for value in graph.outputs]])


def _attribute(attribute: "ir.Attr", values: Values, depth: int) -> list[Any]:
    if attribute.is_ref():
        return [REFERENCE, attribute.ref_attr_name]

    def plain(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return list(map(plain, value))
        if isinstance(value, str):
            return value.encode().hex()
        if isinstance(value, bytes | float):
            return value.hex()
        if hasattr(value, "initializers"):
            return _inner(value, values, depth)
        return _tensor(value) if hasattr(value, "tofile") else str(value)

    return [str(attribute.type.value), plain(attribute.value)]


def _function(function: "ir.Function") -> list[Any]:
    attributes = sorted(function.attributes.items())
    defaults = [
        [name, *_attribute(item, ChainMap(), 1)] for name, item in attributes if item.type.name != "UNDEFINED"
    ]
    open_ones = [name for name, item in function.attributes.items() if item.type.name == "UNDEFINED"]
    key = [function.domain, function.name, function.overload or ""]
    return [*key, open_ones, defaults, _inner(function, ChainMap(), 1)]


def _spec(spec: TensorSpec) -> list[Any]:
    sizes = ["" if dim.value is None else str(dim.value) for dim in spec.shape]
    return [spec.name, spec.dtype, sizes, "shape" in spec.model_fields_set]


def _tensor(tensor: Any, with_values: bool = True) -> list[Any]:
    form = [type_of(tensor), list(map(str, dims_of(tensor)))]
    return [*form, str(digest_of(tensor))] if with_values else form


def _value(values: Values, value: "ir.Value") -> str:
    """Return the digest of a value, or of its name if no node computes the value."""
    return values.get(value) or _hash(["name", value.name])


def _hash(value: Any) -> str:
    return Digest.of(canonical.encode(value)).hex
