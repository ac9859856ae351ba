"""The operators that a graph uses, in either file format, and functions that walk over protobufs with nodes."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from onnxreg.converters.onnx.tensors import ELEMENTS, Element
from onnxreg.schema.manifest.parts import Operator
from onnxreg.schema.query import runtimes

if TYPE_CHECKING:
    import onnx_ir as ir

DEFAULT_DOMAIN = "ai.onnx"
OPERATOR_CONFIG = "required_operators_and_types.config"
"""Suffix of the operator config that ONNX Runtime's converter writes: `<model>.required_operators_and_types.config`."""


def qualified_name(node: "ir.Node") -> str:
    """Return `Op` for an operator of ai.onnx, else `domain:Op`: the spelling of manifest version 1."""
    return f"{node.domain}:{node.op_type}" if node.domain else node.op_type


def element_of(value: "ir.Value | None") -> Element | None:
    """Return the element type of a tensor; None if the type is unknown, or if the operand was left out."""
    kind = value.type if value is not None else None
    # a sequence has the type of its elements as `dtype` too
    return ELEMENTS.get(int(kind.dtype)) if kind is not None and type(kind).__name__ == "TensorType" else None


def contrib_needs(nodes: Iterable["ir.Node"], in_ort_format: bool) -> tuple[str, ...]:
    """Return the needs that a release of ONNX Runtime may lack, sorted: contrib operators, and features of operators."""
    uses = []
    for node in nodes:
        elements = map(element_of, (*node.inputs, *node.outputs))
        types = frozenset(element.cpp for element in elements if element)
        numbers = {
            key: item.value if item.type.name == "INT" else None for key, item in node.attributes.items()
        }
        domain = node.domain or DEFAULT_DOMAIN
        uses.append(runtimes.Use(domain, node.op_type, len(node.inputs), types, numbers, in_ort_format))
    return runtimes.needs(uses)


def operators(nodes: Iterable["ir.Node"]) -> tuple[Operator, ...]:
    """Return each (domain, since-version, name) once, sorted, with the element types seen at each position.

    All operands of a variadic parameter count at its first position. A side (inputs, outputs) without known types is absent.
    """
    sides_of: dict[tuple[str, int, str], dict[str, dict[int, set[str]]]] = {}
    for node in nodes:
        domain, name, version = node.domain or DEFAULT_DOMAIN, node.op_type, node.version or 1
        schema = find_schema(domain, name, version)
        key = (domain, schema.since_version if schema else version, name)
        sides = sides_of.setdefault(key, {"inputs": {}, "outputs": {}})
        for side, operands in (("inputs", node.inputs), ("outputs", node.outputs)):
            parameters = getattr(schema, side) if schema else ()
            has_last = parameters and is_variadic(parameters[-1])
            for index, operand in enumerate(operands):
                if (element := element_of(operand)) is not None:
                    position = min(index, len(parameters) - 1) if has_last else index
                    sides[side].setdefault(position, set()).add(element.cpp)
    result = []
    for (domain, version, name), sides in sorted(sides_of.items()):
        types = {
            side: {str(position): sorted(positions[position]) for position in sorted(positions)}
            for side, positions in sides.items()
            if positions
        }
        entry = {"domain": domain, "name": name, "opset": version, **types}
        result.append(Operator.from_json(entry, f"operator {domain[:80]}:{name[:80]}"))
    return tuple(result)


@lru_cache(maxsize=4096)
def find_schema(domain: str, name: str, opset: int) -> Any | None:
    """Return the definition of an operator at an opset (`onnx.defs.OpSchema`), or None if onnx does not know the operator."""
    import onnx.defs

    try:
        return onnx.defs.get_schema(name, opset, "" if domain == DEFAULT_DOMAIN else domain)
    except onnx.defs.SchemaError:
        return None


def is_variadic(parameter: Any) -> bool:
    """Return True if a parameter (`onnx.defs.OpSchema.FormalParameter`) takes any number of operands."""
    return bool(parameter.option == type(parameter.option).Variadic)


def subgraphs(attribute: Any) -> list[Any]:
    """Return the graphs of an attribute (`onnx.AttributeProto`)."""
    return [attribute.g, *attribute.graphs] if attribute.HasField("g") else list(attribute.graphs)


def containers(model: Any) -> Iterator[Any]:
    """Yield every proto of a model that holds nodes: the graph, the functions, and the subgraphs of both."""
    for body in (model.graph, *model.functions):
        yield from within(body)


def within(body: Any) -> Iterator[Any]:
    """Yield a graph or function (a proto) and every subgraph in it."""
    waiting = [body]
    while waiting:
        container = waiting.pop()
        yield container
        waiting += [inner for item in attributes(container) for inner in subgraphs(item)]


def attributes(body: Any) -> Iterator[Any]:
    """Yield the attributes (protos) of the nodes of a graph or function, and a function's attributes with default values."""
    for node in body.node:
        yield from node.attribute
    yield from getattr(body, "attribute_proto", ())
