"""Reading an ONNX protobuf: its contract, and its nodes with the element types of their operands.

The size of a graph is limited, with calls of local functions replaced by the functions' bodies.
"""

import mmap
from collections import ChainMap, Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx.elements import ELEMENTS, tensor_bytes
from onnxreg.converters.onnx.external_data import external_files, opening, tensors
from onnxreg.converters.onnx.graph_operators import (
    DEFAULT_DOMAIN,
    Constant,
    OperatorUse,
    Value,
    find_schema,
    subgraphs,
)
from onnxreg.converters.onnx.weightless import without_weights
from onnxreg.schema.core.errors import InputError, missing_extra, unreadable, why
from onnxreg.schema.core.given_file import HEAD_BYTES, check_content

MAX_NODES = 250_000
"""Nodes of a graph with its subgraphs, after inlining."""
MAX_SUBGRAPHS = 10_000
"""Graphs of `If`, `Loop` and `Scan` in the file itself: names in each are looked up in those around it."""
MAX_INLINED_BYTES = 512 * 2**20
"""Bytes that inlining may copy."""
MAX_CALL_DEPTH = 200
"""Functions that call each other in a row: the inliner recurses."""
CONTRIB_DOMAIN = "com.microsoft"
RUNTIME_OPERATORS = frozenset({"LayerNormalization", "SimplifiedLayerNormalization"})
"""Operators that ONNX Runtime has in `ai.onnx`, and ONNX not at all, or from a later opset on."""
Key = tuple[str, str, str]
_HOW = " once its local functions are inlined"
_HINT = "export the model again, with fewer nested functions and subgraphs"


def load_onnx(path: Path) -> Any:
    """Parse an ONNX file (`onnx.ModelProto`), external data left where it is.

    Raise InputError if it is not one, or is more than `check_expansion` allows.
    """
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError as error:
        raise missing_extra("onnx", "onnx", "reading an ONNX file") from error
    opening(path)
    model = onnx.ModelProto()
    try:
        with path.open("rb") as file:
            # The read notices a disk that fails; of a mapped file a signal would.
            check_content(file.read(HEAD_BYTES), path.name)
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            with mapped as data, memoryview(data) as view:
                model.ParseFromString(view)
    except OSError as error:
        raise unreadable(path.name, error) from error
    except (DecodeError, ValueError) as error:  # a ValueError: nothing can be mapped of an empty file
        raise _unreadable(path) from error
    if not (model.HasField("graph") and model.opset_import and model.ir_version and model.graph.output):
        raise _unreadable(path)
    _check_versions(model, path)
    check_expansion(model, path)
    return model


def check_model(model: Any, path: Path) -> None:
    """Raise InputError if a loaded file (`onnx_graph.load_onnx`) or its external data is not what ONNX asks
    for.

    The checker itself never sees external data: it refuses files with more than one name, which those of a
    registry have. That the data is there, in its folder and long enough, is checked here. `model` is left as
    it is.
    """
    import onnx

    external_files(model, path)
    light = without_weights(model)
    for tensor in tensors(light):
        if tensor.data_location == tensor.EXTERNAL:
            _bring_zeros(tensor)
    try:
        check_light(light)
    except onnx.checker.ValidationError as error:
        raise InputError(f"{path.name} is not valid ONNX: {why(error)}") from error


def check_light(light: Any) -> None:
    """Run ONNX's checker on a model without large weights, which is changed.

    Operators that ONNX Runtime adds to `ai.onnx` are checked as those of its own domain: by what they read and make alone.
    """
    import onnx

    waiting = [light.graph, *light.functions]
    while waiting:
        for node in waiting.pop().node:
            if node.domain in ("", DEFAULT_DOMAIN) and node.op_type in RUNTIME_OPERATORS:
                node.domain = CONTRIB_DOMAIN
            waiting += [graph for item in node.attribute for graph in subgraphs(item)]
    if all(entry.domain != CONTRIB_DOMAIN for entry in light.opset_import):
        light.opset_import.add(domain=CONTRIB_DOMAIN, version=1)
    onnx.checker.check_model(light)


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


def operator_uses(model: Any, path: Path) -> list[OperatorUse]:
    """Every node that runs, in order, calls of local functions replaced by the functions' bodies.

    Neither type inference nor inlining copies weights. Raises InputError for operands whose types contradict each other.
    """
    import onnx.inliner
    import onnx.shape_inference

    constants = {tensor.name: _constant(tensor) for tensor in model.graph.initializer}
    declared = _declared_types(model.graph)
    try:
        model = without_weights(model)
        del model.graph.value_info[:]
        if model.functions:
            model = onnx.inliner.inline_local_functions(model)
        model = onnx.shape_inference.infer_shapes(model)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
        raise InputError(f"{path.name} is not a valid graph: {why(error)}") from error
    if not _is_text(model.graph.node, model.functions):
        raise _unreadable(path)
    walker = _Walker({(f.domain, f.name, f.overload): f for f in model.functions})
    scope = _Scope(ChainMap(constants), ChainMap(_declared_types(model.graph), declared))
    return list(walker.graph(model.graph, opset_imports(model), scope))


def opset_imports(model: Any) -> dict[str, int]:
    """Domain to version, sorted, the default domain under its name `ai.onnx`."""
    return dict(sorted((item.domain or DEFAULT_DOMAIN, item.version) for item in model.opset_import))


def graph_inputs(graph: Any) -> list[Any]:
    """The inputs that a caller feeds: those that are not also initializers."""
    stored = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in stored]


def _check_versions(model: Any, path: Path) -> None:
    for owner in (model, *model.functions):
        for item in owner.opset_import:
            if not 0 <= item.version < 2**31:
                domain = (item.domain or DEFAULT_DOMAIN)[:80]
                raise InputError(
                    f"{path.name} imports version {item.version} of {domain!r}, which no operator set has"
                )


class _Scope:
    """The meaning of names inside one graph: stored tensors and element types, then those of outer graphs."""

    def __init__(self, constants: ChainMap[str, Constant], types: ChainMap[str, int]) -> None:
        self.constants = constants
        self.types = types

    def enter(self, graph: Any) -> "_Scope":
        constants = {tensor.name: _constant(tensor) for tensor in graph.initializer}
        return _Scope(self.constants.new_child(constants), self.types.new_child(_declared_types(graph)))

    def value(self, name: str) -> Value | None:
        if not name:
            return None
        constant = self.constants.get(name)
        element = constant.element if constant else ELEMENTS.get(self.types.get(name, 0))
        return Value(element, constant)


class _Walker:
    def __init__(self, functions: Mapping[tuple[str, str, str], Any]) -> None:
        self._functions = functions

    def graph(self, graph: Any, imports: Mapping[str, int], scope: _Scope) -> Iterator[OperatorUse]:
        for node in graph.node:
            function = self._functions.get((node.domain, node.op_type, node.overload))
            if function is not None:
                inner = _Scope(ChainMap({}), ChainMap(_declared_types(function)))
                yield from self.graph(function, opset_imports(function), inner)
                continue
            if node.op_type == "Constant" and node.domain in ("", DEFAULT_DOMAIN):
                scope.constants.update((node.output[0], _constant(tensor)) for tensor in _stored(node))
            yield _use(node, imports, scope)
            for attribute in node.attribute:
                for subgraph in subgraphs(attribute):
                    yield from self.graph(subgraph, imports, scope.enter(subgraph))


def _use(node: Any, imports: Mapping[str, int], scope: _Scope) -> OperatorUse:
    domain = node.domain or DEFAULT_DOMAIN
    version = imports.get(domain, 1)
    schema = find_schema(domain, node.op_type, version)
    return OperatorUse(
        domain,
        node.op_type,
        schema.since_version if schema else version,
        tuple(scope.value(name) for name in node.input),
        tuple(scope.value(name) for name in node.output),
        {item.name: item.i if item.HasField("i") else None for item in node.attribute},
    )


def _constant(tensor: Any) -> Constant:
    return Constant(tensor.name, ELEMENTS.get(tensor.data_type), tuple(tensor.dims))


def _stored(node: Any) -> list[Any]:
    return [attribute.t for attribute in node.attribute if attribute.HasField("t")]


def _declared_types(graph: Any) -> dict[str, int]:
    """Element type numbers of the named values; of a function too, which has only `value_info`."""
    infos = [*graph.value_info]
    if hasattr(graph, "initializer"):
        infos += [*graph.input, *graph.output]
    return {info.name: info.type.tensor_type.elem_type for info in infos if info.type.tensor_type.elem_type}


def _is_text(nodes: Any, functions: Any) -> bool:
    """Return True if the operators' names are valid UTF-8: protobuf hands out what is not as bytes."""
    every = [*nodes, *(node for function in functions for node in function.node)]
    return all(isinstance(name, str) for node in every for name in (node.op_type, node.domain)) and all(
        _is_text(graph.node, ()) for node in every for item in node.attribute for graph in subgraphs(item)
    )


def _unreadable(path: Path) -> InputError:
    return InputError(
        f"{path.name} is not an ONNX file, or is cut short",
        "check its size against the source and copy it again",
    )


def _bring_zeros(tensor: Any) -> None:
    tensor.raw_data = bytes(tensor_bytes(tensor))
    tensor.ClearField("data_location")
    del tensor.external_data[:]


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
