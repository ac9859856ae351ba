"""Prove that one model file is another one, rounded: from the bytes of both, without running either."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from onnxreg.converters.onnx.elements import FLOATS
from onnxreg.converters.onnx.onnx_graph import InvalidGraphError
from onnxreg.converters.prove.comparison import Comparison, compare_constants
from onnxreg.converters.prove.formula import UnprovableError
from onnxreg.converters.prove.match import Matcher
from onnxreg.converters.prove.read_formulas import FormulaGraph, read_formulas
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.gates.faithfulness import RULES, FaithfulnessReport, LargestError, RuleCount, Verdict
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
    try:
        one = read_formulas(parent)
        other = read_formulas(child, one.rewriter.shapes)
        _check_contract(one, other)
        matcher = Matcher(one.rewriter.shapes)
        for name, formula in other.outputs.items():
            matcher.match(one.outputs[name], formula)
        comparison = compare_constants(matcher.constants)
    except UnprovableError as reason:
        return _report(digests, "not-provable", [str(reason)])
    except (InvalidGraphError, ValueError, TypeError, RecursionError) as error:
        return _report(digests, "not-provable", [f"the graph is malformed: {str(error)[:200]}"])
    return _conclude(digests, one, other, matcher, comparison)


def _check_contract(parent: FormulaGraph, child: FormulaGraph) -> None:
    """Inputs and outputs must have the parent's names and types; a type may be another floating-point one."""
    for kind, one, other in (
        ("inputs", {spec.name: spec for spec in parent.inputs}, {spec.name: spec for spec in child.inputs}),
        ("outputs", parent.specs, child.specs),
    ):
        if one.keys() != other.keys():
            raise UnprovableError(
                f"{kind} differ: the child has {_listed(other)}; the parent has {_listed(one)}"
            )
        for name, spec in other.items():
            _check_spec(one[name], spec)
    if list(parent.specs) != list(child.specs):
        raise UnprovableError(f"the outputs are in another order: {', '.join(child.specs)}")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _check_spec(parent: TensorSpec, child: TensorSpec) -> None:
    if parent.dtype != child.dtype and not {parent.dtype, child.dtype} <= FLOATS:
        raise UnprovableError(f"{child.name} is {child.dtype}, in the parent {parent.dtype}")


def _conclude(
    digests: tuple[Digest, Digest],
    parent: FormulaGraph,
    child: FormulaGraph,
    matcher: Matcher,
    comparison: Comparison,
) -> FaithfulnessReport:
    doubts = list(comparison.doubts)
    ranges, others = sorted(child.rewriter.ranges), sorted(parent.rewriter.ranges)
    if ranges:
        doubts.append(
            f"{len(ranges)} activations have a fixed range, which the parent does not show: {ranges[0]} is the first"
        )
    if others:
        doubts.append(
            f"{len(others)} activations of the parent have a fixed range, which the child may not have: "
            f"{others[0]} is the first"
        )
    if len(doubts) > MAX_REASONS:
        doubts = [*doubts[:MAX_REASONS], f"and {len(doubts) - MAX_REASONS} more"]
    largest = comparison.largest
    used = dict(child.rewriter.used)
    used |= {"constant-folding": matcher.folded, "sizes": matcher.sizes}
    return _report(
        digests,
        "bounded" if doubts else "proven",
        doubts,
        nodes=matcher.nodes,
        tensors=comparison.tensors,
        weights=comparison.weights,
        quantized=comparison.quantized,
        clipped=comparison.clipped,
        ranges=len(ranges),
        unread_tensors=child.unread_tensors,
        unread_nodes=child.unread_nodes,
        largest=LargestError(steps=largest.steps, tensor=largest.tensor[:MAX_CHARACTERS], index=largest.index)
        if largest.tensor
        else None,
        rewrites=_counts(used),
        scales=_counts(comparison.scales),
        roundings=_counts(comparison.roundings),
    )


def _counts(counter: Mapping[str, int]) -> tuple[RuleCount, ...]:
    return tuple(RuleCount(rule=name, count=count) for name, count in sorted(counter.items()) if count)


def _report(
    digests: tuple[Digest, Digest], verdict: Verdict, reasons: list[str], **facts: object
) -> FaithfulnessReport:
    parent, child = digests
    return FaithfulnessReport.model_validate(
        {
            "format": "onnxreg-faithfulness",
            "format_version": 1,
            "rules": RULES,
            "artifact": child,
            "parent": parent,
            "verdict": verdict,
            "reasons": tuple(reason[:MAX_CHARACTERS] for reason in reasons),
            **{key: value for key, value in facts.items() if value is not None},
        }
    )
