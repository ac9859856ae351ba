"""Facts read from an artifact itself: contract, operators, opsets, weights. Nothing here trusts a claim."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx import onnx_graph
from onnxreg.converters.onnx.compare.dataflow import semantic_digest
from onnxreg.converters.onnx.compare.read_dataflow import read_onnx, read_ort
from onnxreg.converters.onnx.elements import ELEMENTS
from onnxreg.converters.onnx.external_data import external_files
from onnxreg.converters.onnx.graph_operators import (
    DEFAULT_DOMAIN,
    OperatorUse,
    contrib_needs,
    operator_names,
    operators,
)
from onnxreg.converters.onnx.operator_config import read_operator_config, required
from onnxreg.converters.onnx.ort import ort_graph
from onnxreg.converters.onnx.ort.ort_graph import MAX_DEPTH, tensor_type
from onnxreg.converters.onnx.quantized_share import count_weights
from onnxreg.converters.onnx.tensor_contract import onnx_spec, ort_spec
from onnxreg.schema.core.errors import InputError, prefix_label
from onnxreg.schema.manifest.manifest import Operator, SemanticDigest, TensorSpec, WeightCount


@dataclass(frozen=True)
class GraphFacts:
    """The facts of a model file, read from the file itself.

    `contrib` see `schema/query/runtimes.py`. `operators` are sorted and carry opsets and element types; `operator_names` are in first-seen order, both with
    subgraphs and local functions included. `external_data` are paths relative to the file's folder. `ort_format` is
    None for ONNX. `precision` is that of the weights (`weights.count_weights`), `semantic` see `dataflow`.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    operators: tuple[Operator, ...]
    operator_names: tuple[str, ...]
    contrib: tuple[str, ...]
    opset_imports: dict[str, int]
    ir_version: int
    ort_format: int | None
    external_data: tuple[str, ...]
    weights: WeightCount
    precision: str
    semantic: SemanticDigest

    @property
    def opset(self) -> int | None:
        """The version of the default domain; None if the graph does not import it."""
        return self.opset_imports.get(DEFAULT_DOMAIN)

    def fields(self) -> dict[str, Any]:
        """The JSON form of these facts, for `DraftArtifact.fields`."""
        metadata: dict[str, Any] = {
            "inputs": [spec.to_json() for spec in self.inputs],
            "outputs": [spec.to_json() for spec in self.outputs],
            "operators": list(self.operator_names),
        }
        fields: dict[str, Any] = {
            "metadata": metadata,
            "opset_imports": dict(self.opset_imports),
            "ir_version": self.ir_version,
            "operators": [entry.to_json() for entry in self.operators],
            "semantic": self.semantic.to_json(),
        }
        if self.contrib:
            fields["contrib"] = list(self.contrib)
        if self.opset is not None:
            metadata["opset"] = self.opset
        if self.ort_format is not None:
            fields["ort_format"] = self.ort_format
        return fields


def inspect_onnx(path: Path) -> GraphFacts:
    """Read the facts of an ONNX file; external data is hashed block by block.

    Raises InputError, naming the file, if it is not ONNX, cut short, not a valid graph, or if its external
    data is outside its folder, is missing or is too short.
    """
    return inspect_model(onnx_graph.load_onnx(path), path)


def inspect_model(model: Any, path: Path) -> GraphFacts:
    """The same of a file that is loaded (`onnx_graph.load_onnx`)."""
    with prefix_label(path.name):
        inputs = tuple(onnx_spec(value) for value in onnx_graph.graph_inputs(model.graph))
        outputs = tuple(onnx_spec(value) for value in model.graph.output)
    external = external_files(model, path)
    imports = onnx_graph.opset_imports(model)
    ir_version = model.ir_version
    uses = onnx_graph.operator_uses(model, path)
    semantic = _onnx_semantic(model, path, inputs, outputs)
    with prefix_label(path.name):
        return _facts(inputs, outputs, operators(uses), uses, imports, ir_version, None, external, semantic)


def _onnx_semantic(
    model: Any, path: Path, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> SemanticDigest:
    try:
        graph, functions = read_onnx(model, path)
        return semantic_digest(graph, inputs, outputs, functions)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise InputError(f"{path.name} is not a valid graph: {str(error)[:200]}") from error


def inspect_ort(path: Path, config: Path | None = None) -> GraphFacts:
    """Read the facts of an ORT-format file, its operators from the operator config if one is given.

    Raises InputError, naming the file, if it is not in ORT format or cut short, and if the config is
    malformed or lacks an operator or element type that the file uses.
    """
    with ort_graph.reading(path):
        session = ort_graph.load_ort(path)
        graph = session.Model().Graph()
        check_extent(graph, path.stat().st_size)
        types = ort_graph.value_types(graph)
        inputs = tuple(ort_spec(name, types[name]) for name in ort_graph.graph_inputs(graph))
        outputs = tuple(ort_spec(name, types[name]) for name in ort_graph.graph_outputs(graph))
        imports = ort_graph.opset_imports(session)
        version, ir_version = ort_graph.format_version(session), session.Model().IrVersion()
        uses = ort_graph.operator_uses(session)
        semantic = semantic_digest(read_ort(session, path), inputs, outputs)
    used = operators(uses)
    if config is not None:
        used = required(used, read_operator_config(config), path, config)
    return _facts(inputs, outputs, used, uses, imports, ir_version, version, (), semantic)


def _facts(
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    used: tuple[Operator, ...],
    uses: Sequence[OperatorUse],
    imports: dict[str, int],
    ir_version: int,
    ort_format: int | None,
    external: tuple[str, ...],
    semantic: SemanticDigest,
) -> GraphFacts:
    weights, precision = count_weights(uses)
    return GraphFacts(
        inputs,
        outputs,
        used,
        operator_names(uses),
        contrib_needs(uses, in_ort_format=ort_format is not None),
        imports,
        ir_version,
        ort_format,
        external,
        weights,
        precision,
        semantic,
    )


MIN_ELEMENT_BYTES = 4
"""Bytes of the smallest element of the vectors that are counted."""
_VECTORS = ("Floats", "Ints", "Strings", "Tensors", "Graphs")


def check_extent(graph: Any, size: int) -> None:
    """Raise ValueError if the vectors of an `fbs.Graph` have more elements than a file of `size` bytes can
    hold.

    Each element of an honest file has bytes of its own. Tables that are referred to again and again, or that
    contain themselves, would be read without end.
    """
    left = size // MIN_ELEMENT_BYTES
    for length in _lengths(graph, 0):
        left -= length
        if left < 0:
            raise ValueError("vectors are longer than the file")


def _lengths(graph: Any, depth: int) -> Iterator[int]:
    """The length of each vector, before its elements are read."""
    if depth > MAX_DEPTH:
        raise ValueError("subgraphs are nested too deep")
    yield graph.InputsLength() + graph.OutputsLength() + graph.InitializersLength()
    for index in range(graph.InitializersLength()):
        yield from _tensor(graph.Initializers(index))
    yield graph.NodeArgsLength()
    for index in range(graph.NodeArgsLength()):
        yield _rank(graph.NodeArgs(index).Type())
    yield graph.NodesLength()
    for index in range(graph.NodesLength()):
        yield from _node(graph.Nodes(index), depth)


def _node(node: Any, depth: int) -> Iterator[int]:
    yield node.InputsLength() + node.OutputsLength() + node.AttributesLength()
    for index in range(node.AttributesLength()):
        attribute = node.Attributes(index)
        yield sum(getattr(attribute, f"{kind}Length")() for kind in _VECTORS)
        tensors = [attribute.Tensors(at) for at in range(attribute.TensorsLength())]
        for tensor in (attribute.T(), *tensors):
            if tensor is not None:
                yield from _tensor(tensor)
        graphs = [attribute.Graphs(at) for at in range(attribute.GraphsLength())]
        for graph in (attribute.G(), *graphs):
            if graph is not None:
                yield 1
                yield from _lengths(graph, depth + 1)


def _tensor(tensor: Any) -> Iterator[int]:
    """Numbers in the file must be as many bytes as their shape needs."""
    yield tensor.DimsLength() + tensor.StringDataLength()
    elements = 1
    for index in range(tensor.DimsLength()):
        elements *= tensor.Dims(index)
        if tensor.Dims(index) < 0:
            raise ValueError("a dimension is negative")
    element = ELEMENTS.get(tensor.DataType())
    bits = element.bits if element is not None and tensor.ExternalDataOffset() < 0 else 0
    if tensor.RawDataLength() * 8 < elements * bits:
        raise ValueError("a tensor has fewer bytes than its shape needs")


def _rank(info: Any) -> int:
    tensor = tensor_type(info)
    shape = None if tensor is None else tensor.Shape()
    return 0 if shape is None else int(shape.DimLength())
