"""Prove from the bytes of two model files that one is the other, rounded. Neither model is run."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from onnxreg.converters.onnx.onnx_graph import InvalidGraphError
from onnxreg.converters.onnx.tensors import FLOATS
from onnxreg.converters.prove.comparison import MAX_CHARACTERS, compare_constants
from onnxreg.converters.prove.formula import (
    COMMUTATIVE,
    INPUT,
    Formula,
    Operand,
    StoredValue,
    UnprovableError,
    computed,
)
from onnxreg.converters.prove.operators import RANDOM
from onnxreg.converters.prove.read_formulas import FormulaGraph, read_formulas
from onnxreg.converters.prove.shapes import REFUSED, Shapes
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.gates.statements import RULES, FaithfulnessReport, RuleCount
from onnxreg.schema.manifest.parts import TensorSpec

MAX_NEAR = 100
"""The most operators below an operand that are compared to pair the operands of two formulas."""
MAX_FOLDED = 2_000
"""The most values to compute because only one side has stored the result."""
RESHAPES = frozenset({"Reshape", "Expand"})
"""Operators whose result has the elements of the first operand in another shape."""
MAX_PAIRS = 500_000
"""The most pairs of formulas to compare: a hostile graph may need far more pairs than it has nodes."""


Pair = tuple[Operand, Operand]


class Matcher:
    """Compares pairs of formulas, each once, from a work list. `constants` are the pairs of stored values found.

    `sizes` counts the pairs that are equal because both values follow from the sizes of inputs in the same way.
    """

    def __init__(self, shapes: Shapes) -> None:
        self.nodes = 0
        self.folded = 0
        self.sizes = 0
        self._shapes = shapes
        self._near: dict[Formula, Counter[tuple[str, int]]] = {}
        self._seen: dict[tuple[int, int], Pair] = {}
        self.constants: list[tuple[StoredValue, StoredValue]] = []

    def match(self, parent: Formula, child: Formula) -> None:
        """Raise UnprovableError, naming the node, unless the child's formula equals the parent's."""
        waiting: list[Pair] = [(parent, child)]
        while waiting:
            pair = waiting.pop()
            key = (id(pair[0]), id(pair[1]))
            if key not in self._seen:
                self._seen[key] = pair
                waiting += self._pair(*pair)
            if len(self._seen) > MAX_PAIRS:
                raise UnprovableError(f"more than {MAX_PAIRS:,} pairs of values would have to be compared")

    def _pair(self, one: Operand, other: Operand) -> list[Pair]:
        """The pairs that must be equal for these two to be equal. UnprovableError if the two are not."""
        if one is other is None:
            return []
        if one is None or other is None:
            raise UnprovableError(f"{one or other} is an operand on one side only")
        if self._same_sizes(one, other):
            self.sizes += 1
            return []
        if one.constant is not None or other.constant is not None:
            stored = [side.constant or self._folded(side) for side in (one, other)]
            if stored[0] is None or stored[1] is None:
                raise UnprovableError(f"the child computes {other}, the parent {one}")
            self.constants.append((stored[0], stored[1]))
            return []
        if one.operator != other.operator:
            moved = self._moved(one), self._moved(other)
            if moved != (one, other):
                return [moved]
        _check_heads(one, other)
        self.nodes += 1
        if one.operator in RESHAPES and self._same_shape(one, other):
            self.sizes += 1
            return [(one.operands[0], other.operands[0])]
        return list(zip(one.operands, self._in_order(one, other), strict=True))

    def _in_order(self, one: Formula, other: Formula) -> tuple[Operand, ...]:
        """The child's operands; a commutative operator's are swapped if the swapped order is more like the parent's."""
        straight, crossed = other.operands, other.operands[::-1]
        if other.operator not in COMMUTATIVE or len(straight) != 2:
            return straight
        if all(a and b and a.shape_of == b.shape_of for a, b in zip(one.operands, straight, strict=True)):
            return straight
        likeness = [sum(map(self._likeness, one.operands, order)) for order in (straight, crossed)]
        return crossed if likeness[1] > likeness[0] else straight

    def _likeness(self, one: Operand, other: Operand) -> int:
        """Count the operators that occur near both results."""
        if one is None or other is None or (one.operator, one.output) != (other.operator, other.output):
            return 0
        for formula in (one, other):
            if formula not in self._near:
                near = [formula]
                for item in near:  # but for sizes, which the child may have stored
                    new = (part for part in item.operands if part and self._shapes.value(part) is None)
                    near += [part for part in new if len(near) < MAX_NEAR and part not in near]
                self._near[formula] = Counter((item.operator, item.output) for item in near[:MAX_NEAR])
        return (self._near[one] & self._near[other]).total()

    def _same_sizes(self, one: Formula, other: Formula) -> bool:
        """Return True if both values are computed from sizes of inputs, and are equal for all sizes."""
        a, b = self._shapes.value(one), self._shapes.value(other)
        return a is not None and b is not None and object in (a.dtype, b.dtype) and np.array_equal(a, b)

    def _same_shape(self, one: Formula, other: Formula) -> bool:
        dims = self._shapes.dims(one)
        return dims is not None and dims == self._shapes.dims(other)

    def _moved(self, formula: Formula) -> Formula:
        """The operand of a Reshape or Expand if it has the result's shape already, else the formula itself."""
        source = formula.operands[0] if formula.operator in RESHAPES and formula.operands else None
        return source if source is not None and self._same_shape(formula, source) else formula

    def _folded(self, formula: Formula) -> StoredValue | None:
        """The stored form of a value that depends on no input; None for any other value."""
        self.folded += 1
        if self.folded > MAX_FOLDED:
            raise UnprovableError(f"more than {MAX_FOLDED:,} values would have to be computed")
        value = self._shapes.value(formula)
        return None if value is None or value.dtype == object else computed(formula.node, value)


def _check_heads(one: Formula, other: Formula) -> None:
    """Raise UnprovableError if two formulas differ in anything except operands."""
    if one.operator != other.operator or one.output != other.output:
        raise UnprovableError(f"the child computes {other}, the parent {one}")
    if one.operator.rpartition(":")[2] in RANDOM or one.attribute("seed") is not None:
        raise UnprovableError(f"{other} is random")
    if one.operator == INPUT and one.attributes != other.attributes:
        raise UnprovableError(f"the child reads the input {other.node!r}, the parent {one.node!r}")
    if one.epoch != other.epoch:
        raise UnprovableError(f"{other} is of operator version {other.epoch}, in the parent {one.epoch}")
    if repr(one.attributes) != repr(other.attributes):  # -0.0 is not 0.0, and 1 is not 1.0
        texts = [{*map(repr, side.attributes)} for side in (one, other)]
        items = (item for item in (*one.attributes, *other.attributes) if repr(item) in texts[0] ^ texts[1])
        names = ", ".join(sorted({name for name, _ in items}))
        raise UnprovableError(f"{other} differs from the parent's {one} in {names}")
    if len(one.operands) != len(other.operands):
        message = f"{other} has {len(other.operands)} operands, in the parent {len(one.operands)}"
        raise UnprovableError(message)


MAX_REASONS = 20
"""The most reasons that a report lists; further reasons are counted."""


def prove(parent: Path, child: Path, digests: tuple[Digest, Digest]) -> FaithfulnessReport:
    """Prove that the child is the parent, rounded; return the report.

    Args:
        digests: the digests of the parent's file and of the child's, in this order.

    Raises InputError for a file that is not a model, or cannot be read.
    """
    facts: dict[str, Any] = {}
    try:
        facts = _compare(parent, child)
        reasons = facts.pop("doubts")
        verdict = "bounded" if reasons else "proven"
    except UnprovableError as reason:
        verdict, reasons = "not-provable", [str(reason)]
    except (InvalidGraphError, *REFUSED, RecursionError) as error:
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
    """The figures and doubts of a report. Raise UnprovableError if the child is not shown to be its parent."""
    parent = read_formulas(parent_file)
    child = read_formulas(child_file, parent.rewriter.shapes)
    _check_contract(parent, child)
    matcher = Matcher(parent.rewriter.shapes)
    for name, formula in child.outputs.items():
        matcher.match(parent.outputs[name], formula)
    comparison = compare_constants(matcher.constants)
    doubts = list(comparison.doubts)
    for graph, problem in (
        (child, "activations have a fixed range, which the parent does not show"),
        (parent, "activations of the parent have a fixed range, which the child may not have"),
    ):
        if ranges := sorted(graph.rewriter.ranges):
            doubts.append(f"{len(ranges)} {problem}: {ranges[0]} is the first")
    used = {**child.rewriter.used, "constant-folding": matcher.folded, "sizes": matcher.sizes}
    counters = {"rewrites": used, "scales": comparison.scales, "roundings": comparison.roundings}
    figures = ("tensors", "weights", "quantized", "clipped", "largest")
    return {
        "doubts": doubts,
        "nodes": matcher.nodes,
        **{name: value for name in figures if (value := getattr(comparison, name)) is not None},
        "ranges": len(child.rewriter.ranges),
        "unread_tensors": child.unread_tensors,
        "unread_nodes": child.unread_nodes,
        **{name: _counts(counter) for name, counter in counters.items()},
    }


def _counts(counter: Mapping[str, int]) -> tuple[RuleCount, ...]:
    return tuple(RuleCount(rule=name, count=count) for name, count in sorted(counter.items()) if count)


def _check_contract(parent: FormulaGraph, child: FormulaGraph) -> None:
    """Raise UnprovableError unless inputs and outputs are the parent's; a floating-point type may become another one."""
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
