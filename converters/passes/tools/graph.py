"""Small helpers over ONNX protobufs that several passes share."""

from collections import ChainMap, Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import count
from typing import Any

from onnxreg.converters.onnx.graph_operators import containers, subgraphs, within
from onnxreg.converters.onnx.weightless import replace_but_weights, without_weights
from onnxreg.schema.core.errors import ConversionError, InputError, RegError, why

FLOATS = frozenset({1, 10})
"""TensorProto element types that are quantized: float and float16."""
_PASSING = frozenset({"Identity", "Transpose"})


@contextmanager
def blame_tool(failure: str) -> Iterator[None]:
    """Raise ConversionError, which begins with `failure`, for an error that a library raises inside."""
    try:
        yield
    except RegError:
        raise
    except Exception as error:
        raise ConversionError(f"{failure}: {why(error)}") from error


@dataclass(frozen=True)
class Factor:
    """A stored weight (`onnx.TensorProto`) that a product reads, and the axis of its output channels."""

    tensor: Any
    channels: int


def factors(model: Any, operators: Collection[str], excluded: Collection[str] = ()) -> dict[str, Factor]:
    """The floating-point initializers of rank 2 or more that `operators` multiply by, by name.

    `excluded` are names of nodes that do not count. The initializers count if they are read through Transpose or
    Identity too, and in subgraphs; local functions are not looked into. A product of two values that are both
    computed has none. Nodes must be behind those whose values they read.
    """
    result: dict[str, Factor] = {}
    stack: list[tuple[Any, ChainMap[str, Any]]] = [(model.graph, ChainMap())]
    while stack:
        body, outer = stack.pop()
        stored = outer.new_child({tensor.name: tensor for tensor in _weights(body)})
        for node in _nodes(body, _PASSING):
            if node.input[0] in stored:
                stored[node.output[0]] = stored[node.input[0]]
        for node in _nodes(body, operators):
            if node.name and node.name in excluded:
                continue
            for tensor in (stored[value] for value in node.input[:2] if value in stored):
                result.setdefault(tensor.name, Factor(tensor, _channels(node)))
        stack += [
            (inner, stored) for node in body.node for item in node.attribute for inner in subgraphs(item)
        ]
    return result


def count_operators(model: Any) -> dict[str, int]:
    """Count the nodes of each operator, also in subgraphs and functions; `domain:Op` beyond the default domain."""
    names = (
        node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}:{node.op_type}"
        for container in containers(model)
        for node in container.node
    )
    return dict(sorted(Counter(names).items()))


def node_names(model: Any) -> set[str]:
    """The names of all nodes that have one."""
    return {node.name for body in containers(model) for node in body.node if node.name}


def refuse_unknown(kind: str, names: Collection[str] | None, present: Collection[str]) -> None:
    """Raise InputError for a name that was asked for and that the graph does not have."""
    if unknown := sorted(set(names or ()) - set(present)):
        raise InputError(f"the graph has no {kind} called {', '.join(unknown)[:200]}")


def default_opset(model: Any) -> int | None:
    """The opset of the default domain that a model imports."""
    return next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), None)


def has_size(dim: Any) -> bool:
    """Tell if an axis (`onnx.TensorShapeProto.Dimension`) is fixed; -1 is a common way to write a dynamic one."""
    return bool(dim.HasField("dim_value") and dim.dim_value >= 0)


def infer_values(model: Any) -> dict[str, Any]:
    """The ValueInfoProto of each value of the main graph whose type can be inferred; large weights are not copied."""
    import onnx

    inferred = onnx.shape_inference.infer_shapes(without_weights(model), data_prop=True).graph
    values = [*inferred.value_info, *inferred.input, *inferred.output]
    return {value.name: value for value in values}


def clear_value_info(model: Any) -> None:
    """Drop the inferred types of intermediate values: a rewritten graph makes them stale."""
    for container in containers(model):
        del container.value_info[:]


def inline_functions(model: Any) -> int:
    """Put the bodies of local functions where they are called, in place; how many functions there were.

    No large weight is copied. For tools that leave functions as they are, or do not know them.
    """
    import onnx.inliner

    count = len(model.functions)
    if count:
        with blame_tool("the local functions cannot be inlined"):
            inlined = onnx.inliner.inline_local_functions(without_weights(model))
        replace_but_weights(model, inlined)
        drop_unused_imports(model)
    return count


def drop_unused_imports(model: Any) -> None:
    """Drop the opset imports of domains that no node is of, in place; the default domain's stays."""
    used = {"", "ai.onnx", *(node.domain for body in containers(model) for node in body.node)}
    imports = [entry for entry in model.opset_import if entry.domain in used]
    del model.opset_import[:]
    model.opset_import.extend(imports)


def drop_unread_weights(model: Any) -> None:
    """Drop initializers that nothing reads, and in each graph the second of two that share a name, in place."""
    bodies = list(within(model.graph))
    read = {name for body in bodies for node in body.node for name in node.input}
    read |= {value.name for body in bodies for value in body.output}
    for body in bodies:
        unseen, dropped = set(read), []
        for index, tensor in enumerate(body.initializer):
            if tensor.name not in unseen:
                dropped.append(index)
            unseen.discard(tensor.name)
        for index in reversed(dropped):
            del body.initializer[index]


def rename_values(model: Any, names: Mapping[str, str]) -> None:
    """Give values of the main graph other names wherever nodes make or read them, subgraphs included."""
    for body in within(model.graph):
        for node in body.node:
            for values in (node.input, node.output):
                for index, name in enumerate(values):
                    if name in names:
                        values[index] = names[name]
        for value in body.output if body is not model.graph else ():
            value.name = names.get(value.name, value.name)


def fresh_name(model: Any, base: str) -> str:
    """Return `base`, or `base` with a number, that no value of the model has as its name yet."""
    taken = {
        name for body in within(model.graph) for node in body.node for name in (*node.input, *node.output)
    }
    taken |= {value.name for value in (*model.graph.input, *model.graph.output, *model.graph.initializer)}
    names = (base, *(f"{base}_{number}" for number in range(1, len(taken) + 2)))
    return next(name for name in names if name not in taken)


def name_nodes(model: Any) -> None:
    """Give every node without a name one of its own, from its operator and its place; the others keep theirs."""
    taken = {node.name for body in containers(model) for node in body.node}
    numbers = count()
    for body in containers(model):
        for node in body.node:
            while not node.name:
                name = f"{node.op_type}_{next(numbers)}"
                node.name = "" if name in taken else name


def drop_repeated_nodes(model: Any) -> None:
    """Keep one of the nodes of a graph that make the same values in the same way, in place.

    ONNX Runtime's float16 converter adds one Cast for each reader of a value, all of one name.
    """
    for body in within(model.graph):
        first: dict[tuple[str, ...], Any] = {}
        repeated = [
            index
            for index, node in enumerate(body.node)
            if node.output and first.setdefault(tuple(node.output), node) is not node
        ]
        for index in reversed(repeated):
            if body.node[index] == first[tuple(body.node[index].output)]:
                del body.node[index]


def sort_nodes(model: Any) -> None:
    """Put each node of a graph behind those whose values it reads, in place; an order that is right stays.

    Raises ConversionError for a graph in a circle.
    """
    for body in within(model.graph):
        nodes = list(body.node)
        makers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
        needs = {
            index: sorted({makers[name] for name in _names_read(node) if name in makers})
            for index, node in enumerate(nodes)
        }
        if all(needed[-1] < index for index, needed in needs.items() if needed):
            continue
        try:
            ordered = [copy(nodes[index]) for index in TopologicalSorter(needs).static_order()]
        except CycleError as error:
            raise ConversionError("the graph reads a value before it is made, in a circle") from error
        del body.node[:]
        body.node.extend(ordered)


def copy(message: Any) -> Any:
    """A protobuf detached from what it is part of, so that clearing that does not clear it."""
    detached = type(message)()
    detached.CopyFrom(message)
    return detached


def second_names(model: Any) -> dict[str, str]:
    """The stored tensors of the main graph that an Identity gives a second name, by that name.

    PyTorch's exporter does so if a weight is used twice, as the layers of ALBERT are.
    """
    stored = {tensor.name for tensor in model.graph.initializer}
    given = {value.name for value in model.graph.output}
    origins = {
        node.output[0]: node.input[0]
        for node in model.graph.node
        if node.op_type == "Identity" and node.input[0] in stored
    }
    return {name: origin for name, origin in origins.items() if name not in given}


def drop_second_names(model: Any, names: Mapping[str, str]) -> None:
    """Without the Identity nodes that gave these; what read them reads the tensor itself."""
    nodes = [node for node in model.graph.node if node.op_type != "Identity" or node.output[0] not in names]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    rename_values(model, names)


def _names_read(node: Any) -> list[str]:
    """The names that a node reads, its subgraphs' nodes included."""
    names = list(node.input)
    for body in (graph for item in node.attribute for graph in subgraphs(item)):
        names += [name for inner in within(body) for one in inner.node for name in one.input]
    return names


def _weights(body: Any) -> Iterator[Any]:
    return (tensor for tensor in body.initializer if tensor.data_type in FLOATS and len(tensor.dims) >= 2)


def _nodes(body: Any, operators: Collection[str]) -> Iterator[Any]:
    return (node for node in body.node if node.op_type in operators and node.domain in ("", "ai.onnx"))


def _channels(node: Any) -> int:
    transposed = any(entry.name == "transB" and entry.i for entry in node.attribute)
    return 0 if transposed or node.op_type == "Conv" else -1
