"""Read a model file as formulas."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from json import dumps
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from onnxreg.converters.onnx import ort_file
from onnxreg.converters.onnx.facts import contract, free_inputs
from onnxreg.converters.onnx.onnx_graph import DEFAULT_DOMAIN, load_onnx, read_graph
from onnxreg.converters.prove import operators, quantization  # noqa: F401  which enters its rules
from onnxreg.converters.prove.formula import INPUT, Formula, Operand, UnprovableError, number, stored
from onnxreg.converters.prove.rewrites import Rewriter
from onnxreg.converters.prove.shapes import Dims, Shapes, input_size
from onnxreg.schema.manifest.manifest import TensorSpec

MAX_DEPTH = 32
MAX_NAME = 100
Scope = dict[ir.Value, Formula]


@dataclass(frozen=True)
class FormulaGraph:
    """The inputs and outputs of a file, and a formula for each output."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    formulas: list[Formula]
    unread_tensors: int
    unread_nodes: int
    rewriter: Rewriter


def read_formulas(path: Path, parent: Shapes | None = None) -> FormulaGraph:
    """Read the formulas of an ONNX or ORT-format file. A child's inputs get the shapes of the inputs of `parent`.

    Raises InputError if the file cannot be read, UnprovableError if the prover does not cover the graph.
    """
    if path.suffix == ".ort":
        model = ort_file.read_ort(path)
    else:
        import onnx.inliner

        proto = load_onnx(path)
        model = read_graph(onnx.inliner.inline_local_functions(proto) if proto.functions else proto, path)
    graph = model.graph
    inputs, outputs = contract(model)
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    nodes, tensors = len(graph), len(graph.initializers)
    common.RemoveUnusedNodesPass()(model)
    common.TopologicalSortPass()(model)  # nodes of ORT-format files are in no order
    reader = _Reader(Shapes(_input_dims(inputs) if parent is None else parent.inputs))
    scope: Scope = {
        value: Formula(INPUT, (), (("name", spec.name),), element=spec.dtype, node=spec.name)
        for value, spec in zip(free_inputs(graph), inputs, strict=True)
    }
    formulas = reader.graph(graph, scope, 0)
    unread = tensors - len(graph.initializers), nodes - len(graph)
    return FormulaGraph(inputs, outputs, formulas, *unread, reader.rewriter)


def _input_dims(inputs: tuple[TensorSpec, ...]) -> dict[str, Dims]:
    """Return the shapes of inputs by name, except for scalars. Sizes with the same name become the same symbol."""
    return {
        spec.name: tuple(
            dim.value
            if dim.value is not None
            else input_size(dumps(dim.name if dim.name and len(dim.name) < MAX_NAME else [number, at]))
            for at, dim in enumerate(spec.shape)
        )
        for number, spec in enumerate(inputs)
        if spec.shape
    }


class _Reader:
    def __init__(self, shapes: Shapes) -> None:
        self.rewriter = Rewriter(shapes)

    def graph(self, graph: ir.Graph, scope: Scope, depth: int) -> list[Formula]:
        """Make the formulas of a graph's outputs. Nodes of a subgraph may also use the values in `scope`."""
        if depth > MAX_DEPTH:
            raise UnprovableError("its subgraphs are nested too deep")
        scope |= {
            value: stored(value.const_value)
            for value in graph.initializers.values()
            if value.const_value is not None
        }
        for node in graph:
            self._node(node, scope, depth)
        return [_operand(value, scope) for value in graph.outputs]

    def _node(self, node: ir.Node, scope: Scope, depth: int) -> None:
        domain, name, version = node.domain or DEFAULT_DOMAIN, node.op_type, node.version or 1
        label = node.name or next((value.name for value in node.outputs if value.name), "")
        operands = [None if value is None else _operand(value, scope) for value in node.inputs]
        defaults = operators.default_attributes(domain, name, version)
        moved = operators.MOVED.get(name) if domain == DEFAULT_DOMAIN and len(operands) == 1 else None
        attributes: list[tuple[str, Hashable]] = []
        parts: list[Operand] = []
        counts = []
        for key, item in sorted(node.attributes.items()):
            value = _plain(item)
            if item.type.name in ("TENSOR", "TENSORS", "GRAPH", "GRAPHS") and value is not None:
                formulas = list(self._structure(key, value, scope, depth))
                counts.append((key, len(formulas)))
                parts += formulas
            elif key == moved:
                operands.append(number(key, value, np.int64))
            elif type(value) is not type(defaults.get(key)) or value != defaults[key]:
                attributes.append((key, value))
        operands += parts
        if len(node.outputs) > 1 and operators.depends_on_output_count(domain, name, version):
            attributes.append(("number of outputs", len(node.outputs)))
        if counts:
            attributes += [("parts", tuple(counts)), ("operands", len(operands))]
        to = dict(attributes).get("to", 0)
        kinds = operators.result_types(domain, name, version, operands, to)
        kind = name if domain == DEFAULT_DOMAIN else f"{domain}:{name}"
        epoch = operators.epoch(domain, name, version)
        for at, (output, element) in enumerate(zip(node.outputs, chain(kinds, repeat("")), strict=False)):
            if output.name:
                formula = Formula(kind, tuple(operands), tuple(attributes), at, element, label, epoch)
                scope[output] = self.rewriter.rewritten(formula)

    def _structure(self, key: str, value: Any, scope: Scope, depth: int) -> Iterator[Operand]:
        """Yield the tensors in the attribute `key` of a node, or the outputs of the subgraphs in it."""
        for number_, item in enumerate(value if isinstance(value, tuple) else [value]):
            if hasattr(item, "tofile"):
                yield stored(item, key)
                continue
            scope |= {
                argument: Formula("argument", (), (("place", (depth, key, number_, at)),))
                for at, argument in enumerate(free_inputs(item))
            }
            yield from self.graph(item, scope, depth + 1)


def _operand(value: ir.Value, scope: Scope) -> Formula:
    if value not in scope:
        raise UnprovableError(f"nothing computes the value {value.name!r}")
    return scope[value]


def _plain(attribute: ir.Attr) -> Any:
    value = attribute.value
    if isinstance(value, list | tuple):
        return tuple(item.encode() if isinstance(item, str) else item for item in value)
    return value.encode() if isinstance(value, str) else value
