"""Compare two model files: facts, stored tensors, nodes. Memory stays flat: tensor by tensor."""

from dataclasses import dataclass
from pathlib import Path

from onnxreg.converters.onnx import onnx_graph
from onnxreg.converters.onnx.compare.dataflow import Dataflow, function_digest
from onnxreg.converters.onnx.compare.node_compare import compare_nodes
from onnxreg.converters.onnx.compare.read_dataflow import read_onnx, read_ort
from onnxreg.converters.onnx.compare.tensor_compare import compare_tensors
from onnxreg.converters.onnx.ort import ort_graph
from onnxreg.converters.onnx.tensor_contract import onnx_spec, ort_spec
from onnxreg.schema.compare.graphs import FactChange, GraphDiff
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.manifest import TensorSpec


@dataclass(frozen=True)
class _Opened:
    """One model file: its graph, and facts by name as texts."""

    graph: Dataflow
    facts: dict[str, str]


def compare_models(old: Path, new: Path) -> GraphDiff:
    """Open two ONNX or two ORT-format files and say what differs.

    Functions and subgraphs are compared as wholes. Raises InputError, naming the file, for one that cannot be read.
    """
    before, after = _open(old), _open(new)
    tensors, equal_tensors = compare_tensors(before.graph.tensors, after.graph.tensors)
    renamed = {item.old.name: item.name for item in tensors if item.change == "renamed" and item.old}
    nodes, equal_nodes = compare_nodes(before.graph, after.graph, renamed)
    names = sorted(before.facts.keys() | after.facts.keys())
    facts = [
        FactChange(name=name, old=before.facts.get(name), new=after.facts.get(name))
        for name in names
        if before.facts.get(name) != after.facts.get(name)
    ]
    return GraphDiff(
        facts=tuple(facts),
        tensors=tuple(tensors),
        equal_tensors=equal_tensors,
        nodes=tuple(nodes),
        equal_nodes=equal_nodes,
    )


def _open(path: Path) -> _Opened:
    try:
        return _open_ort(path) if path.suffix == ".ort" else _open_onnx(path)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise InputError(f"{path.name} is not a valid graph: {str(error)[:200]}") from error


def _open_onnx(path: Path) -> _Opened:
    model = onnx_graph.load_onnx(path)
    graph, functions = read_onnx(model, path)
    facts = {
        **_specs("input", [onnx_spec(value) for value in onnx_graph.graph_inputs(model.graph)]),
        **_specs("output", [onnx_spec(value) for value in model.graph.output]),
        **{f"opset {domain}": str(opset) for domain, opset in onnx_graph.opset_imports(model).items()},
        **{f"metadata {item.key}": str(item.value) for item in model.metadata_props},
        **{f"function {item.key[0]}:{item.key[1]}": function_digest(item) for item in functions},
        "IR version": str(model.ir_version),
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
        "model version": str(model.model_version),
        "domain": model.domain,
        "description": model.doc_string,
        "graph name": model.graph.name,
    }
    return _Opened(graph, facts)


def _open_ort(path: Path) -> _Opened:
    with ort_graph.reading(path):
        session = ort_graph.load_ort(path)
        graph = session.Model().Graph()
        types = ort_graph.value_types(graph)
        facts = {
            **_specs("input", [ort_spec(name, types[name]) for name in ort_graph.graph_inputs(graph)]),
            **_specs("output", [ort_spec(name, types[name]) for name in ort_graph.graph_outputs(graph)]),
            **{f"opset {domain}": str(opset) for domain, opset in ort_graph.opset_imports(session).items()},
            "IR version": str(session.Model().IrVersion()),
            "ORT format": str(ort_graph.format_version(session)),
        }
        return _Opened(read_ort(session, path), facts)


def _specs(side: str, specs: list[TensorSpec]) -> dict[str, str]:
    """`{"input ids": "int64[batch, sequence]"}`"""
    return {f"{side} {spec.name}": f"{spec.dtype}{spec.shape_text}" for spec in specs}
