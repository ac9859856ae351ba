"""Read a model file as formulas: the values of its outputs, down to inputs and constants."""

from collections import ChainMap
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx import ort_file
from onnxreg.converters.onnx.dataflow import Dataflow, Node, needed_values, node_order, read_onnx, read_ort
from onnxreg.converters.onnx.facts import onnx_spec, ort_spec
from onnxreg.converters.onnx.graph_operators import DEFAULT_DOMAIN
from onnxreg.converters.onnx.onnx_graph import graph_inputs, load_onnx
from onnxreg.converters.prove import (  # noqa: F401  their rules
    integer_rewrites,
    operators,
    quantized_operators,
    rewrites,
    transpositions,
)
from onnxreg.converters.prove.formula import (
    ARGUMENT,
    INPUT,
    Formula,
    StoredValue,
    UnprovableError,
    constant,
    number,
)
from onnxreg.converters.prove.polynomial import Symbol, of_symbol
from onnxreg.converters.prove.rewriter import Rewriter
from onnxreg.converters.prove.shapes import Dims, Shapes
from onnxreg.schema.manifest.parts import TensorSpec

MAX_DEPTH = 32
"""Subgraphs inside each other."""
MAX_NAME = 100
"""Characters of the name of a size; one with a longer name is another one each time."""
Scope = ChainMap[str, Formula]


@dataclass(frozen=True)
class FormulaGraph:
    """A file: contract, outputs as formulas, and the counts of its nodes and tensors that no output needs."""

    inputs: tuple[TensorSpec, ...]
    outputs: Mapping[str, Formula]
    specs: Mapping[str, TensorSpec]
    tensors: int
    unread_tensors: int
    unread_nodes: int
    rewriter: Rewriter


def read_formulas(path: Path, shapes: Shapes | None = None) -> FormulaGraph:
    """The formulas of an ONNX or ORT-format file.

    Args:
        shapes: those of the parent's inputs, for a child; without them the file's own.

    Raises InputError for a file that cannot be read, UnprovableError for a graph beyond the rules.
    """
    if path.suffix == ".ort":
        with ort_file.reading(path):
            return _read_ort(path, shapes)
    import onnx.inliner

    model = load_onnx(path)
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    graph, _ = read_onnx(model, path)
    inputs = tuple(onnx_spec(value) for value in graph_inputs(model.graph))
    return _read(graph, inputs, [onnx_spec(value) for value in model.graph.output], shapes)


def _read_ort(path: Path, shapes: Shapes | None) -> FormulaGraph:
    session = ort_file.load_ort(path)
    graph = session.Model().Graph()
    types = ort_file.value_types(graph)
    inputs = tuple(ort_spec(name, types[name]) for name in ort_file.graph_inputs(graph))
    outputs = [ort_spec(name, types[name]) for name in ort_file.graph_outputs(graph)]
    return _read(read_ort(session, path), inputs, outputs, shapes)


def _read(
    graph: Dataflow, inputs: tuple[TensorSpec, ...], outputs: list[TensorSpec], shapes: Shapes | None
) -> FormulaGraph:
    reader = _Reader(shapes or Shapes(_input_dims(inputs)))
    scope: Scope = ChainMap(
        {
            spec.name: Formula(INPUT, (), (("name", spec.name),), element=spec.dtype, node=spec.name)
            for spec in inputs
        }
    )
    values = reader.graph(graph, scope, 0)
    return FormulaGraph(
        inputs,
        dict(zip(graph.outputs, values, strict=True)),
        {spec.name: spec for spec in outputs},
        len(graph.tensors),
        len(graph.tensors.keys() - reader.read),
        len(graph.nodes) - len(reader.needed),
        reader.rewriter,
    )


def _input_dims(inputs: tuple[TensorSpec, ...]) -> dict[str, Dims]:
    """The shapes of inputs. Sizes of one name are equal, as ONNX has it; an empty shape may be one that is not stated."""
    return {
        spec.name: tuple(
            dim.value
            if dim.value is not None
            else of_symbol(
                Symbol(dumps(dim.name if dim.name and len(dim.name) < MAX_NAME else [number, at]), True)
            )
            for at, dim in enumerate(spec.shape)
        )
        for number, spec in enumerate(inputs)
        if spec.shape
    }


class _Reader:
    def __init__(self, shapes: Shapes) -> None:
        self.rewriter = Rewriter(shapes)
        self.read: set[str] = set()
        self.needed: set[int] = set()

    def graph(self, graph: Dataflow, outer: Scope, depth: int) -> list[Formula]:
        """The formulas of a graph's outputs; nodes that none of them needs are not looked at."""
        if depth > MAX_DEPTH:
            raise UnprovableError("its subgraphs are nested too deep")
        needed, names = _needed(graph)
        if not depth:
            self.needed, self.read = needed, names
        scope = outer.new_child(
            {
                name: constant(StoredValue.of(tensor))
                for name, tensor in graph.tensors.items()
                if name in names
            }
        )
        for index in node_order(graph.nodes):
            if index in needed:
                self._node(graph.nodes[index], scope, depth)
        return [self._operand(name, scope) for name in graph.outputs]

    def _node(self, node: Node, scope: Scope, depth: int) -> None:
        domain, name, _, version = node.operator
        label = node.name or next((one for one in node.outputs if one), "")
        if domain == DEFAULT_DOMAIN and name == "Constant":
            scope[node.outputs[0]] = _constant_node(node, label)
            return
        operands = [self._operand(one, scope) if one else None for one in node.inputs]
        attributes = _without_defaults(node)
        moved = operators.MOVED.get(name) if domain == DEFAULT_DOMAIN else None
        if moved in attributes and len(operands) == 1:
            operands.append(_ints(attributes.pop(moved)[1], moved))
        inner = [(key, value) for key, value in sorted(attributes.items()) if _is_structure(value[1])]
        plain = tuple(
            (key, _hashable(value))
            for key, (_, value) in sorted(attributes.items())
            if not _is_structure(value)
        )
        if len(node.outputs) > 1 and operators.depends_on_output_count(domain, name, version):
            plain += (("number of outputs", len(node.outputs)),)
        shapes = []
        for key, (_, value) in inner:
            parts = list(self._structure(key, value, scope, depth))
            shapes.append((key, len(parts)))
            operands += parts
        kinds = operators.result_types(domain, name, version, operands, _target(node), len(node.outputs))
        kind = name if domain == DEFAULT_DOMAIN else f"{domain}:{name}"
        common = (
            kind,
            tuple(operands),
            (*plain, ("parts", tuple(shapes)), ("operands", len(operands))) if shapes else plain,
        )
        epoch = operators.epoch(domain, name, version)
        for at, output in enumerate(node.outputs):
            if output:
                element = kinds[at] if at < len(kinds) else ""
                scope[output] = self.rewriter.apply(
                    *common, node=label, output=at, element=element, epoch=epoch
                )

    def _operand(self, name: str, scope: Scope) -> Formula:
        try:
            return scope[name]
        except KeyError:
            raise UnprovableError(f"nothing computes the value {name!r}") from None

    def _structure(self, key: str, value: Any, scope: Scope, depth: int) -> Iterator[Formula | None]:
        """The operands that take the part of a tensor or subgraphs among the attributes."""
        for number_, item in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(item, Dataflow):
                yield constant(StoredValue.of(item), key)
                continue
            arguments = {
                name: Formula(ARGUMENT, (), (("place", (depth, key, number_, at)),))
                for at, name in enumerate(item.inputs)
            }
            yield from self.graph(item, scope.new_child(arguments), depth + 1)


def _needed(graph: Dataflow) -> tuple[set[int], set[str]]:
    """The indices of the nodes that the outputs need, and the names that these read."""
    makers = {name: index for index, node in enumerate(graph.nodes) for name in node.outputs if name}
    nodes: set[int] = set()
    names: set[str] = set()
    waiting = list(graph.outputs)
    while waiting:
        name = waiting.pop()
        if name in names:
            continue
        names.add(name)
        index = makers.get(name)
        if index is not None and index not in nodes:
            nodes.add(index)
            waiting += needed_values(graph.nodes[index])
    return nodes, names


def _constant_node(node: Node, label: str) -> Formula:
    import numpy as np

    names = list(node.attributes)
    name = names[0] if len(names) == 1 else ""
    if name not in ("value", "value_float", "value_floats", "value_int", "value_ints"):
        raise UnprovableError(f"the constant {label!r} is neither a tensor nor numbers")
    value: Any = node.attributes[name][1]
    if name == "value":
        return constant(StoredValue.of(value), label)
    kind = np.int64 if "int" in name else np.float32
    return number(np.array(value, kind), label)


def _ints(value: Any, name: str) -> Formula:
    import numpy as np

    return number(np.array(value, np.int64), name)


def _target(node: Node) -> int:
    kind, value = node.attributes.get("to", (0, 0))
    return value if kind == 2 else 0


def _without_defaults(node: Node) -> dict[str, tuple[int, Any]]:
    domain, name, _, version = node.operator
    defaults = operators.default_attributes(domain, name, version)
    return {
        key: item
        for key, item in node.attributes.items()
        if not (key in defaults and type(item[1]) is type(defaults[key]) and item[1] == defaults[key])
    }


def _is_structure(value: Any) -> bool:
    return any(
        hasattr(item, "blocks") or isinstance(item, Dataflow)
        for item in (value if isinstance(value, list) else [value])
    )


def _hashable(value: Any) -> Hashable:
    return tuple(value) if isinstance(value, list) else value
