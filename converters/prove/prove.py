"""Prove that one model file is another one, rounded: from the bytes of both, without running either."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx.elements import FLOATS
from onnxreg.converters.onnx.onnx_graph import InvalidGraphError
from onnxreg.converters.prove.comparison import compare_constants
from onnxreg.converters.prove.formula import UnprovableError
from onnxreg.converters.prove.match import Matcher
from onnxreg.converters.prove.read_formulas import FormulaGraph, read_formulas
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.gates.statements import RULES, FaithfulnessReport, LargestError, RuleCount
from onnxreg.schema.manifest.parts import TensorSpec

MAX_CHARACTERS = 1000
"""Of a reason or a name in a report: those of a hostile file may be longer."""
MAX_REASONS = 20
"""Reasons that a report lists; the others are counted."""


def prove(parent: Path, child: Path, digests: tuple[Digest, Digest]) -> FaithfulnessReport:
    """The proof that the child is the parent, rounded.

    Args:
        digests: of the parent's file and of the child's, in this order.

    Raises InputError for a file that is not a model, or cannot be read.
    """
    facts: dict[str, Any] = {}
    try:
        facts = _compare(parent, child)
        reasons = facts.pop("doubts")
        verdict = "bounded" if reasons else "proven"
    except UnprovableError as reason:
        verdict, reasons = "not-provable", [str(reason)]
    except (InvalidGraphError, ValueError, TypeError, RecursionError) as error:
        verdict, reasons = "not-provable", [f"the graph is malformed: {str(error)[:200]}"]
    if len(reasons) > MAX_REASONS:
        reasons = [*reasons[:MAX_REASONS], f"and {len(reasons) - MAX_REASONS} more"]
    return FaithfulnessReport.model_validate(
        {
            "format": "onnxreg-faithfulness",
            "format_version": 1,
            "rules": RULES,
            "artifact": digests[1],
            "parent": digests[0],
            "verdict": verdict,
            "reasons": tuple(reason[:MAX_CHARACTERS] for reason in reasons),
            **facts,
        }
    )


def _compare(parent_file: Path, child_file: Path) -> dict[str, Any]:
    """The figures of a report, and the doubts. UnprovableError if the child is not shown to be its parent."""
    parent = read_formulas(parent_file)
    child = read_formulas(child_file, parent.rewriter.shapes)
    _check_contract(parent, child)
    matcher = Matcher(parent.rewriter.shapes)
    for name, formula in child.outputs.items():
        matcher.match(parent.outputs[name], formula)
    comparison = compare_constants(matcher.constants)
    doubts, largest = list(comparison.doubts), comparison.largest
    for graph, problem in (
        (child, "activations have a fixed range, which the parent does not show"),
        (parent, "activations of the parent have a fixed range, which the child may not have"),
    ):
        if ranges := sorted(graph.rewriter.ranges):
            doubts.append(f"{len(ranges)} {problem}: {ranges[0]} is the first")
    steps = LargestError(steps=largest.steps, tensor=largest.tensor[:MAX_CHARACTERS], index=largest.index)
    used = {**child.rewriter.used, "constant-folding": matcher.folded, "sizes": matcher.sizes}
    return {
        "doubts": doubts,
        "nodes": matcher.nodes,
        "tensors": comparison.tensors,
        "weights": comparison.weights,
        "quantized": comparison.quantized,
        "clipped": comparison.clipped,
        "ranges": len(child.rewriter.ranges),
        "unread_tensors": child.unread_tensors,
        "unread_nodes": child.unread_nodes,
        **({"largest": steps} if largest.tensor else {}),
        "rewrites": _counts(used),
        "scales": _counts(comparison.scales),
        "roundings": _counts(comparison.roundings),
    }


def _counts(counter: Mapping[str, int]) -> tuple[RuleCount, ...]:
    return tuple(RuleCount(rule=name, count=count) for name, count in sorted(counter.items()) if count)


def _check_contract(parent: FormulaGraph, child: FormulaGraph) -> None:
    """Inputs and outputs must have the parent's names and types; a type may be another floating-point one."""
    specs: dict[str, list[Mapping[str, TensorSpec]]] = {
        "inputs": [{spec.name: spec for spec in graph.inputs} for graph in (parent, child)],
        "outputs": [parent.specs, child.specs],
    }
    for kind, (one, other) in specs.items():
        if one.keys() != other.keys():
            listed = [", ".join(sorted(names)) or "none" for names in (other, one)]
            raise UnprovableError(f"{kind} differ: the child has {listed[0]}; the parent has {listed[1]}")
        for name, spec in other.items():
            types = {one[name].dtype, spec.dtype}
            if len(types) > 1 and not types <= FLOATS:
                raise UnprovableError(f"{name} is {spec.dtype}, in the parent {one[name].dtype}")
    if list(parent.specs) != list(child.specs):
        raise UnprovableError(f"the outputs are in another order: {', '.join(child.specs)}")
