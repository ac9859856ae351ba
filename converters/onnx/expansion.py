"""The size of a graph whose calls of local functions are replaced by the functions' bodies."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx.graph_operators import DEFAULT_DOMAIN
from onnxreg.schema.core.errors import InputError

MAX_NODES = 250_000
"""Nodes of a graph with its subgraphs, after inlining."""
MAX_SUBGRAPHS = 10_000
"""Graphs of `If`, `Loop` and `Scan` in the file itself: names in each are looked up in those around it."""
MAX_INLINED_BYTES = 512 * 2**20
"""Bytes that inlining may copy."""
MAX_CALL_DEPTH = 200
"""Functions that call each other in a row: the inliner recurses."""

Key = tuple[str, str, str]


@dataclass(frozen=True)
class _Body:
    """The nodes and bytes of a graph or function, its subgraphs included, and how often it calls each function."""

    nodes: int
    subgraphs: int
    size: int
    calls: Counter[Key]


@dataclass(frozen=True)
class _Extent:
    """The size of a body after inlining."""

    nodes: int
    size: int
    depth: int


def check_expansion(model: Any, path: Path) -> None:
    """Raise InputError for a model (`onnx.ModelProto`) that is not to be inlined.

    Functions must have distinct names and may not call themselves; the result must be within the limits of this module.
    Time and memory are linear in the size of the model, whatever it expands to.
    """
    functions = {
        _key(function.domain, function.name, function.overload): function for function in model.functions
    }
    if len(functions) != len(model.functions):
        raise InputError(f"{path.name} is not a valid graph: two local functions have one name")
    bodies = {key: _measure(function.node, functions) for key, function in functions.items()}
    extents: dict[Key, _Extent] = {}
    try:
        for key in TopologicalSorter({key: body.calls for key, body in bodies.items()}).static_order():
            extents[key] = _expand(bodies[key], extents, path)
    except CycleError as error:
        raise InputError(f"{path.name} is not a valid graph: a local function calls itself") from error
    main = _measure(model.graph.node, functions)
    if main.subgraphs + sum(body.subgraphs for body in bodies.values()) > MAX_SUBGRAPHS:
        raise InputError(f"{path.name} has more than {MAX_SUBGRAPHS:,} subgraphs", _HINT)
    _expand(replace(main, size=0), extents, path)


def _key(domain: str, name: str, overload: str) -> Key:
    return ("" if domain == DEFAULT_DOMAIN else domain, name, overload)


def _measure(nodes: Iterable[Any], functions: Mapping[Key, Any]) -> _Body:
    """Count until a limit is passed."""
    size = sum(node.ByteSize() for node in nodes) if functions else 0
    count, graphs, calls = 0, 0, Counter[Key]()
    waiting = [nodes]
    while waiting and count <= MAX_NODES and graphs <= MAX_SUBGRAPHS:
        for node in waiting.pop():
            count += 1
            key = _key(node.domain, node.op_type, node.overload)
            if key in functions:
                calls[key] += 1
            inner = [graph.node for item in node.attribute for graph in subgraphs(item)]
            graphs += len(inner)
            waiting += inner
    return _Body(count, graphs, size, calls)


def _expand(body: _Body, extents: Mapping[Key, _Extent], path: Path) -> _Extent:
    called = [(extents[key], times) for key, times in body.calls.items()]
    nodes = body.nodes + sum(times * extent.nodes for extent, times in called)
    size = body.size + sum(times * extent.size for extent, times in called)
    depth = 1 + max((extent.depth for extent, _ in called), default=0)
    if nodes > MAX_NODES:
        raise InputError(f"{path.name} has more than {MAX_NODES:,} nodes{_HOW if called else ''}", _HINT)
    if size > MAX_INLINED_BYTES:
        raise InputError(f"{path.name} has more than {MAX_INLINED_BYTES // 2**20} MiB of nodes{_HOW}", _HINT)
    if depth > MAX_CALL_DEPTH:
        raise InputError(
            f"{path.name} has local functions that call each other more than {MAX_CALL_DEPTH} deep", _HINT
        )
    return _Extent(nodes, size, depth)


def subgraphs(attribute: Any) -> list[Any]:
    """The graphs of an attribute (`onnx.AttributeProto`)."""
    return [attribute.g, *attribute.graphs] if attribute.HasField("g") else list(attribute.graphs)


_HOW = " once its local functions are inlined"
_HINT = "export the model again, with fewer nested functions and subgraphs"
