"""Tell alternatives from stages of a pipeline among models that are registered together."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from onnxreg.converters.onnx.facts import GraphFacts
from onnxreg.schema.core.errors import Advice, InputError
from onnxreg.schema.manifest.family import Graph
from onnxreg.schema.manifest.pipeline import HINT, check_alternatives


def check_named(members: Mapping[Path, str], models: Sequence[Path]) -> None:
    """Raise InputError if only some models are named, or a named file is not a model."""
    if unknown := [file for file in members if file not in models]:
        raise InputError(
            f"{unknown[0].name} is not a model, so it cannot be a member", "name a .onnx or .ort file"
        )
    if members and (nameless := [model for model in models if model not in members]):
        raise InputError(
            f"{nameless[0].name} has no name, and other models have one",
            Advice("name-each-member", file=nameless[0].name),
        )


def check_contracts(
    path_of: Callable[[Path], str], read: Mapping[Path, GraphFacts], members: Mapping[Path, str]
) -> None:
    """InputError if models that are alternatives, all or those of one member, differ in what they take or give."""
    groups: dict[str | None, dict[str, Graph]] = {}
    for model, facts in read.items():
        groups.setdefault(members.get(model), {})[path_of(model)] = _graph(facts)
    for name, graphs in groups.items():
        check_alternatives(
            graphs, HINT if name is None else f"both are called {name}: give each its own name"
        )


def _graph(facts: GraphFacts) -> Graph:
    inputs, outputs = ({spec.name: spec.tensor for spec in side} for side in (facts.inputs, facts.outputs))
    return Graph(facts.semantic.graph, inputs, outputs)
