"""The stored weights that a graph multiplies by."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from onnxreg.converters.passes.tools import graph

FLOATS = frozenset({1, 10})
"""TensorProto element types that are quantized: float and float16."""

_PASSING = frozenset({"Identity", "Transpose"})


@dataclass(frozen=True)
class Factor:
    """A stored weight (`onnx.TensorProto`) that a product reads, and the axis of its output channels."""

    tensor: Any
    channels: int


def factors(model: Any, operators: Collection[str], excluded: Collection[str] = ()) -> dict[str, Factor]:
    """The floating-point initializers of rank 2 or more that `operators` multiply by, by name.

    `excluded` are names of nodes that do not count. The initializers count if they are read through Transpose or Identity too, and in subgraphs; local functions are not
    looked into. A product of two values that are both computed has none.
    """
    bodies = list(graph.within(model.graph))
    stored = {tensor.name: tensor for body in bodies for tensor in _weights(body)}
    passing = {node.output[0]: node.input[0] for body in bodies for node in _nodes(body, _PASSING)}
    result: dict[str, Factor] = {}
    for body in bodies:
        for node in _nodes(body, operators):
            if node.name and node.name in excluded:
                continue
            for name in (_origin(value, passing) for value in node.input[:2]):
                if name in stored:
                    result.setdefault(name, Factor(stored[name], _channels(node)))
    return result


def _weights(body: Any) -> Iterator[Any]:
    return (tensor for tensor in body.initializer if tensor.data_type in FLOATS and len(tensor.dims) >= 2)


def _nodes(body: Any, operators: Collection[str]) -> Iterator[Any]:
    return (node for node in body.node if node.op_type in operators and node.domain in ("", "ai.onnx"))


def _origin(value: str, passing: Mapping[str, str]) -> str:
    while value in passing:
        value = passing[value]
    return value


def _channels(node: Any) -> int:
    transposed = any(entry.name == "transB" and entry.i for entry in node.attribute)
    return 0 if transposed or node.op_type == "Conv" else -1
