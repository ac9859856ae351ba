"""Match the formulas of two graphs: the same operators on the same operands, and constants of one place compared."""

from onnxreg.converters.prove.compare_values import compare
from onnxreg.converters.prove.comparison import Comparison
from onnxreg.converters.prove.fold import fold
from onnxreg.converters.prove.formula import COMMUTATIVE, INPUT, Formula, UnprovableError
from onnxreg.converters.prove.operators import is_random
from onnxreg.converters.prove.stored_value import StoredValue

LIKENESS_DEPTH = 5
"""Operators in a row that decide which operand is which."""
MAX_COMPARED = 4
"""Operands of an operator beyond which its likeness to another is not looked into."""
MAX_FOLDED = 2_000
"""Values that are computed because one side has stored the result."""
MAX_PAIRS = 500_000
"""Pairs of formulas that are compared: a hostile graph may share its parts otherwise than its parent."""


class Matcher:
    """Compares pairs of formulas, each once, in the order of a work list. `constants` are the pairs of stored values."""

    def __init__(self) -> None:
        self.nodes = 0
        self.folded = 0
        self._seen: dict[tuple[int, int], object] = {}
        self.constants: list[tuple[StoredValue, StoredValue]] = []

    def match(self, parent: Formula, child: Formula) -> None:
        """Raise UnprovableError, naming the node, unless the child's formula is the parent's."""
        waiting: list[tuple[Formula | None, Formula | None]] = [(parent, child)]
        while waiting:
            one, other = waiting.pop()
            key = (id(one), id(other))
            if key in self._seen:
                continue
            self._seen[key] = (one, other)
            if len(self._seen) > MAX_PAIRS:
                raise UnprovableError(f"more than {MAX_PAIRS:,} pairs of values would have to be compared")
            waiting += self._pair(one, other)

    def _pair(
        self, one: Formula | None, other: Formula | None
    ) -> list[tuple[Formula | None, Formula | None]]:
        if one is None or other is None:
            if one is not other:
                raise UnprovableError(f"{one or other} is an operand on one side only")
            return []
        if one.constant is not None or other.constant is not None:
            self._constant(one, other)
            return []
        _check_heads(one, other)
        self.nodes += 1
        return list(zip(one.operands, _ordered(one, other), strict=True))

    def _constant(self, one: Formula, other: Formula) -> None:
        values = []
        for side in (one, other):
            value = side.constant or fold(side)
            self.folded += side.constant is None
            if self.folded > MAX_FOLDED:
                raise UnprovableError(f"more than {MAX_FOLDED:,} values would have to be computed")
            if value is None:
                raise UnprovableError(f"the child computes {other}, the parent {one}")
            values.append(value)
        self.constants.append((values[0], values[1]))


def _ordered(one: Formula, other: Formula) -> tuple[Formula | None, ...]:
    """The child's operands, those of a commutative operator in the order in which they are more like the parent's."""
    operands = other.operands
    if other.operator not in COMMUTATIVE or len(operands) != 2:
        return operands
    if all(a and b and a.shape_of == b.shape_of for a, b in zip(one.operands, operands, strict=True)):
        return operands
    turned = operands[::-1]
    straight, crossed = (
        sum(_likeness(a, b, LIKENESS_DEPTH) for a, b in zip(one.operands, order, strict=True))
        for order in (operands, turned)
    )
    return turned if crossed > straight else operands


def _likeness(one: Formula | None, other: Formula | None, depth: int) -> int:
    """The number of operators that two formulas share near their heads."""
    if one is None or other is None or one.operator != other.operator or one.output != other.output:
        return 0
    if depth == 0 or len(one.operands) != len(other.operands) or len(one.operands) > MAX_COMPARED:
        return 1
    return 1 + sum(_likeness(a, b, depth - 1) for a, b in zip(one.operands, other.operands, strict=True))


def _check_heads(one: Formula, other: Formula) -> None:
    if one.operator != other.operator or one.output != other.output:
        raise UnprovableError(f"the child computes {other}, the parent {one}")
    if is_random(one):
        raise UnprovableError(f"{other} is random")
    if one.operator == INPUT:
        _check_inputs(one, other)
    elif one.epoch != other.epoch:
        raise UnprovableError(f"{other} is of operator version {other.epoch}, in the parent {one.epoch}")
    if one.attributes != other.attributes:
        names = sorted({name for name, _ in set(one.attributes) ^ set(other.attributes)})
        raise UnprovableError(f"{other} differs from the parent's {one} in {', '.join(names)}")
    if len(one.operands) != len(other.operands):
        raise UnprovableError(
            f"{other} has {len(other.operands)} operands, in the parent {len(one.operands)}"
        )


def _check_inputs(one: Formula, other: Formula) -> None:
    if one.attributes != other.attributes:
        raise UnprovableError(f"the child reads the input {other.node!r}, the parent {one.node!r}")
    if one.element != other.element and not (one.is_float and other.is_float):
        raise UnprovableError(f"an input is {other.element}, in the parent {one.element}")


def compare_constants(pairs: list[tuple[StoredValue, StoredValue]]) -> Comparison:
    """Compare the stored values that have one place, each pair once."""
    comparison = Comparison()
    compared = set()
    for parent, child in pairs:
        key = (parent.identity, child.identity)
        if key not in compared:
            compared.add(key)
            compare(comparison, parent, child)
    return comparison
