"""Prove from two model files that one model is the other with rounded weights. Neither model is run."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from onnxreg.converters.onnx.onnx_graph import InvalidGraphError, external_digests
from onnxreg.converters.onnx.tensors import FLOATS
from onnxreg.converters.prove.comparison import MAX_CHARACTERS, compare_constants
from onnxreg.converters.prove.formula import INPUT, Formula, Operand, StoredValue, UnprovableError, computed
from onnxreg.converters.prove.operators import RANDOM
from onnxreg.converters.prove.read_formulas import FormulaGraph, read_formulas
from onnxreg.converters.prove.shapes import REFUSED, Shapes
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.gates.statements import RULES, FaithfulnessReport, RuleCount

MAX_FOLDED = 2_000
MAX_PAIRS = 500_000
Pair = tuple[Operand, Operand]


class Matcher:
    """Compares formulas in pairs (parent, child). `constants` collects pairs of stored values, to be compared later."""

    def __init__(self, parent: Shapes, child: Shapes) -> None:
        self.nodes = 0
        self.used = Counter[str]()
        self._shapes = parent, child
        self.constants: list[tuple[StoredValue, StoredValue]] = []

    def match(self, pairs: Iterable[Pair]) -> None:
        """Compare formulas, down to the inputs. Raise UnprovableError at the first pair that differs."""
        waiting, visited = [*pairs][::-1], set[Pair]()
        while waiting:
            pair = waiting.pop()
            if pair not in visited:
                visited.add(pair)
                waiting += self._pair(*pair)
            if len(visited) > MAX_PAIRS:
                raise UnprovableError(f"more than {MAX_PAIRS:,} pairs of values would have to be compared")

    def _pair(self, one: Operand, other: Operand) -> list[Pair]:
        """Compare one pair and return the pairs of its operands, which are to be compared next."""
        if one is other is None:
            return []
        if one is None or other is None:
            raise UnprovableError(f"{one or other} is an operand on one side only")
        values = [shapes.value(side) for shapes, side in zip(self._shapes, (one, other), strict=True)]
        kinds = ["" if value is None else value.dtype.kind for value in values]
        if "" not in kinds and "O" in kinds and np.array_equal(*values):
            self.used["sizes"] += 1
            return []
        if one.constant is None and other.constant is None:
            _check_heads(one, other)
            self.nodes += 1
            return list(zip(one.operands, other.operands, strict=True))
        pairs = list(zip((one, other), values, kinds, strict=True))
        if any(side.constant is None and kind in ("", "O") for side, _, kind in pairs):
            raise UnprovableError(f"the child computes {other}, the parent {one}")
        self.used["constant-folding"] += one.constant is None or other.constant is None
        if self.used["constant-folding"] > MAX_FOLDED:
            raise UnprovableError(f"more than {MAX_FOLDED:,} values would have to be computed")
        stored = [side.constant or computed(side.node, value) for side, value, _ in pairs]
        self.constants.append((stored[0], stored[1]))
        return []


def _check_heads(one: Formula, other: Formula) -> None:
    if one.operator != other.operator or one.output != other.output:
        raise UnprovableError(f"the child computes {other}, the parent {one}")
    if one.operator.rpartition(":")[2] in RANDOM or one.attribute("seed") is not None:
        raise UnprovableError(f"{other} is random")
    if one.operator == INPUT and one.attributes != other.attributes:
        raise UnprovableError(f"the child reads the input {other.node!r}, the parent {one.node!r}")
    if one.epoch != other.epoch:
        raise UnprovableError(f"{other} is of operator version {other.epoch}, in the parent {one.epoch}")
    texts = [{(name, repr(value)) for name, value in side.attributes} for side in (one, other)]
    if texts[0] != texts[1]:  # -0.0 is not 0.0, and 1 is not 1.0
        names = ", ".join(sorted({name for name, _ in texts[0] ^ texts[1]}))
        raise UnprovableError(f"{other} differs from the parent's {one} in {names}")
    if len(one.operands) != len(other.operands):
        message = f"{other} has {len(other.operands)} operands, in the parent {len(one.operands)}"
        raise UnprovableError(message)


MAX_REASONS = 20


def prove(parent: Path, child: Path, digests: tuple[Digest, Digest]) -> FaithfulnessReport:
    """Try to prove that the child is the parent with rounded weights, and return the report.

    `digests` has the parent's digest, then the child's. Raises InputError if a model cannot be read.
    """
    verdict, facts = "not-provable", dict[str, Any]()
    try:
        reasons, facts = _compare(parent, child)
        verdict = "bounded" if reasons else "proven"
        if weights := external_digests((parent, child)):
            facts["external_data"] = weights
    except UnprovableError as reason:
        reasons = [str(reason)]
    except (InvalidGraphError, *REFUSED, RecursionError) as error:
        reasons = [f"the graph is malformed: {str(error)[:200]}"]
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


def _compare(parent_file: Path, child_file: Path) -> tuple[list[str], dict[str, Any]]:
    """Compare two files. Return the doubts and the figures of the report. Raise UnprovableError if a proof fails."""
    parent = read_formulas(parent_file)
    child = read_formulas(child_file, parent.rewriter.shapes)
    _check_contract(parent, child)
    matcher = Matcher(parent.rewriter.shapes, child.rewriter.shapes)
    matcher.match(zip(parent.formulas, child.formulas, strict=True))
    comparison = compare_constants(matcher.constants)
    doubts = list(comparison.doubts)
    for graph, problem in (
        (child, "activations have a fixed range, which the parent does not show"),
        (parent, "activations of the parent have a fixed range, which the child may not have"),
    ):
        if ranges := sorted(graph.rewriter.ranges):
            doubts.append(f"{len(ranges)} {problem}: {ranges[0]} is the first")
    used = child.rewriter.used + matcher.used
    counters = {"rewrites": used, "scales": comparison.scales, "roundings": comparison.roundings}
    figures = ("tensors", "weights", "quantized", "clipped", "largest")
    return doubts, {
        "nodes": matcher.nodes,
        **{name: value for name in figures if (value := getattr(comparison, name)) is not None},
        "ranges": len(child.rewriter.ranges),
        "unread_tensors": child.unread_tensors,
        "unread_nodes": child.unread_nodes,
        **{
            name: tuple(RuleCount(rule=rule, count=count) for rule, count in sorted(counter.items()) if count)
            for name, counter in counters.items()
        },
    }


def _check_contract(parent: FormulaGraph, child: FormulaGraph) -> None:
    for kind in ("inputs", "outputs"):
        one, other = ({spec.name: spec for spec in getattr(graph, kind)} for graph in (parent, child))
        lists = [[*names] if kind == "outputs" else sorted(names) for names in (other, one)]
        if lists[0] != lists[1]:
            listed = [", ".join(names) or "none" for names in lists]
            raise UnprovableError(f"{kind} differ: the child has {listed[0]}; the parent has {listed[1]}")
        for name, spec in other.items():
            types = {one[name].dtype, spec.dtype}
            if len(types) > 1 and not types <= FLOATS:
                raise UnprovableError(f"{name} is {spec.dtype}, in the parent {one[name].dtype}")
