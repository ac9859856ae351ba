"""The operators that a graph uses, in either file format, and ONNX Runtime's operator config.

A config lists the operators and element types that a reduced build must have. One line for each domain and opset:
`domain;opset[,opset];Op[{types}],Op...`, where `{types}` is JSON such as `{"inputs": {"0": ["float"]}}`. `#` begins a comment.
Source: https://onnxruntime.ai/docs/reference/operators/reduced-operator-config-file.html
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxreg.converters.onnx.elements import ELEMENTS, Element
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.parts import Operator
from onnxreg.schema.query import runtimes

if TYPE_CHECKING:
    import onnx_ir as ir

DEFAULT_DOMAIN = "ai.onnx"
_Types = dict[int, set[str]]
OPERATOR_CONFIG = "required_operators_and_types.config"
"""The name that ONNX Runtime's converter gives its config: `<model>.required_operators_and_types.config`."""


def qualified_name(node: "ir.Node") -> str:
    """`Op`, or `domain:Op` beyond ai.onnx: the spelling of manifest version 1."""
    return f"{node.domain}:{node.op_type}" if node.domain else node.op_type


def element_of(value: "ir.Value | None") -> Element | None:
    """The element type of a tensor; None if it is not known, or if the operand was left out."""
    kind = value.type if value is not None else None
    # a sequence has the type of its elements as `dtype` too
    return ELEMENTS.get(int(kind.dtype)) if kind is not None and type(kind).__name__ == "TensorType" else None


def operator_names(nodes: Iterable["ir.Node"]) -> tuple[str, ...]:
    """Each operator once, in first-seen order."""
    return tuple(dict.fromkeys(map(qualified_name, nodes)))


def contrib_needs(nodes: Iterable["ir.Node"], in_ort_format: bool) -> tuple[str, ...]:
    """The contrib operators with their later features, sorted: what a release of ONNX Runtime may lack."""
    return runtimes.needs(
        runtimes.Use(
            node.domain or DEFAULT_DOMAIN,
            node.op_type,
            len(node.inputs),
            frozenset(
                element.cpp for value in (*node.inputs, *node.outputs) if (element := element_of(value))
            ),
            {name: item.value if item.type.name == "INT" else None for name, item in node.attributes.items()},
            in_ort_format,
        )
        for node in nodes
    )


def operators(nodes: Iterable["ir.Node"]) -> tuple[Operator, ...]:
    """Each (domain, since-version, name) once, sorted, with the element types seen at each position.

    The operands of a variadic parameter share the position of the first of them.
    """
    types: dict[tuple[str, int, str], tuple[_Types, _Types]] = {}
    for node in nodes:
        domain, name, version = node.domain or DEFAULT_DOMAIN, node.op_type, node.version or 1
        schema = find_schema(domain, name, version)
        inputs, outputs = types.setdefault(
            (domain, schema.since_version if schema else version, name), ({}, {})
        )
        last_input, last_output = _variadic(schema)
        _collect(inputs, node.inputs, last_input)
        _collect(outputs, node.outputs, last_output)
    return tuple(operator(*key, *types[key]) for key in sorted(types))


def operator(
    domain: str, opset: int, name: str, inputs: Mapping[int, set[str]], outputs: Mapping[int, set[str]]
) -> Operator:
    """One entry of a manifest; a side of which no type is known stays absent."""
    value: dict[str, Any] = {"domain": domain, "name": name, "opset": opset}
    for side, types in (("inputs", inputs), ("outputs", outputs)):
        if types:
            value[side] = {str(position): sorted(types[position]) for position in sorted(types)}
    return Operator.from_json(value, f"operator {domain[:80]}:{name[:80]}")


@lru_cache(maxsize=4096)
def find_schema(domain: str, name: str, opset: int) -> Any | None:
    """The definition of an operator in force at an opset (`onnx.defs.OpSchema`), or None for one onnx does not know."""
    import onnx.defs

    onnx_domain = "" if domain == DEFAULT_DOMAIN else domain
    try:
        return onnx.defs.get_schema(name, opset, onnx_domain)
    except onnx.defs.SchemaError:
        return None


def subgraphs(attribute: Any) -> list[Any]:
    """The graphs of an attribute (`onnx.AttributeProto`)."""
    return [attribute.g, *attribute.graphs] if attribute.HasField("g") else list(attribute.graphs)


def containers(model: Any) -> Iterator[Any]:
    """Every proto of a model that holds nodes: the graph, its subgraphs, the functions and theirs."""
    for body in (model.graph, *model.functions):
        yield from within(body)


def within(body: Any) -> Iterator[Any]:
    """A graph or function (a proto) and every subgraph in it."""
    waiting = [body]
    while waiting:
        container = waiting.pop()
        yield container
        waiting += [inner for item in attributes(container) for inner in subgraphs(item)]


def attributes(body: Any) -> Iterator[Any]:
    """The attributes (protos) of a graph's or function's nodes, and those that a function itself has by default."""
    for node in body.node:
        yield from node.attribute
    yield from getattr(body, "attribute_proto", ())


def subgraphs_of(node: "ir.Node") -> Iterator["ir.Graph"]:
    """The graphs among a node's attributes."""
    for attribute in node.attributes.values():
        if attribute.type.name == "GRAPH" and not attribute.is_ref():
            yield attribute.as_graph()
        elif attribute.type.name == "GRAPHS" and not attribute.is_ref():
            yield from attribute.as_graphs()


def read_operator_config(path: Path) -> tuple[Operator, ...]:
    """The operators of a config, sorted; InputError, naming the line, if it is not one."""
    entries: dict[tuple[str, int, str], Operator] = {}
    for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        try:
            for entry in _read_line(line):
                entries[entry.domain, entry.opset, entry.name] = entry
        except (ValueError, TypeError, AttributeError) as error:
            raise InputError(
                f"{path.name} is not an operator config: line {number} cannot be read: {error}",
                f"it is the {OPERATOR_CONFIG} that the ORT converter wrote beside the .ort file",
            ) from error
    if not entries:
        raise InputError(
            f"{path.name} lists no operators", "use the config that was written with the .ort file"
        )
    return tuple(entries[key] for key in sorted(entries))


def required_operators(
    used: Iterable[Operator], config: Iterable[Operator], path: Path, config_path: Path
) -> tuple[Operator, ...]:
    """The entries of `config` for the operators that a file uses, in order of `used`.

    If the config says nothing of a position, the file's own types are used, so that a build that
    restricts more than this config does can be judged too.

    Raises InputError if a used operator, or one of its element types at a position that the config restricts,
    is missing: a build made from this config could not run the file.
    """
    listed = {(entry.domain, entry.opset, entry.name): entry for entry in config}
    result = []
    for need in used:
        label = f"{need.domain}:{need.name} (opset {need.opset})"
        entry = listed.get((need.domain, need.opset, need.name))
        if entry is None:
            raise _uncovered(path, config_path, label)
        sides = []
        for own, allowed in ((need.inputs, entry.inputs), (need.outputs, entry.outputs)):
            for position, types in allowed.items():
                if missing := set(own.get(position, ())) - set(types):
                    raise _uncovered(path, config_path, f"{label} with {' and '.join(sorted(missing))}")
            sides.append({int(position): set(types) for position, types in {**own, **allowed}.items()})
        result.append(operator(need.domain, need.opset, need.name, *sides))
    return tuple(result)


def _collect(types: _Types, operands: Sequence["ir.Value | None"], last: int | None) -> None:
    for index, operand in enumerate(operands):
        if (element := element_of(operand)) is not None:
            position = index if last is None else min(index, last)
            types.setdefault(position, set()).add(element.cpp)


def _variadic(schema: Any) -> tuple[int | None, int | None]:
    """The positions of an operator's variadic input and output, None if it has none."""
    if schema is None:
        return None, None
    sides = []
    for parameters in (schema.inputs, schema.outputs):
        variadic = parameters and parameters[-1].option == type(parameters[-1].option).Variadic
        sides.append(len(parameters) - 1 if variadic else None)
    return sides[0], sides[1]


def _read_line(line: str) -> Iterable[Operator]:
    domain, opsets, entries = (part.strip() for part in line.split(";", 2))
    for name, types in _read_entries(entries):
        inputs, outputs = _read_sides(types)
        for opset in opsets.split(","):
            yield operator(domain, int(opset), name, inputs, outputs)


def _read_entries(text: str) -> Iterable[tuple[str, Any]]:
    """entries = name [json] *("," name [json])"""
    decoder = json.JSONDecoder()
    position = 0
    while position < len(text):
        end = min(
            (at for at in (text.find("{", position), text.find(",", position)) if at >= 0), default=len(text)
        )
        name = text[position:end].strip()
        if not name:
            raise ValueError("an operator without a name")
        types: Any = {}
        if text[end : end + 1] == "{":
            types, end = decoder.raw_decode(text, end)
        yield name, types
        if text[end : end + 1] not in ("", ","):
            raise ValueError(f"expected a comma after {name[:80]}")
        position = end + 1


def _read_sides(types: Any) -> tuple[dict[int, set[str]], dict[int, set[str]]]:
    """`custom` triples (OneHot: inputs 0, 2 and 1) are read as the types of each input."""
    inputs = {int(position): set(names) for position, names in types.get("inputs", {}).items()}
    outputs = {int(position): set(names) for position, names in types.get("outputs", {}).items()}
    for triple in types.get("custom", []):
        for position, name in zip((0, 2, 1), triple, strict=True):
            inputs.setdefault(position, set()).add(name)
    return inputs, outputs


def _uncovered(path: Path, config_path: Path, operator_name: str) -> InputError:
    return InputError(
        f"{config_path.name} does not cover {path.name}: {operator_name} is missing",
        "use the config that was written when this .ort file was converted",
    )
