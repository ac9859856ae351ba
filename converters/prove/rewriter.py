"""Makes formulas in their one form, by rules for operators."""

from collections import Counter, defaultdict
from collections.abc import Callable

from onnxreg.converters.prove.formula import Attributes, Formula
from onnxreg.converters.prove.operators import SINCE, result_type
from onnxreg.converters.prove.shapes import Shapes

Rule = Callable[["Rewriter", Formula], Formula | None]
RULES: dict[str, list[tuple[str, Rule]]] = defaultdict(list)
"""The rules for each operator, in the order in which they are tried."""


def rule(name: str, *kinds: str) -> Callable[[Rule], Rule]:
    """Enter a rule for some operators under its documented name."""

    def enter(function: Rule) -> Rule:
        for kind in kinds:
            RULES[kind].append((name, function))
        return function

    return enter


class Rewriter:
    """Makes the formulas of one graph in their one form.

    `used` counts rewrites, `ranges` static activation ranges. `transposed` are formulas whose transposition was moved
    before them, None of those whose was not; `waiting` are those of which that is under way.
    """

    def __init__(self, shapes: Shapes) -> None:
        self.shapes = shapes
        self.used: Counter[str] = Counter()
        self.ranges: set[str] = set()
        self.transposed: dict[tuple[Formula, tuple[int, ...]], Formula | None] = {}
        self.waiting: list[Formula] = []

    def op(
        self, name: str, *operands: Formula | None, node: str = "", attributes: Attributes = ()
    ) -> Formula:
        """The first output of an operator of ONNX, in its newest meaning."""
        return self.apply(name, operands, attributes, node, epoch=SINCE.get(name, 1))

    def apply(
        self,
        operator: str,
        operands: tuple[Formula | None, ...],
        attributes: Attributes = (),
        node: str = "",
        output: int = 0,
        element: str | None = None,
        epoch: int = 1,
    ) -> Formula:
        """The formula of one output of an operator, rewritten as far as the rules go.

        Without an `element` the type is that which the operands give.
        """
        if element is None:
            element = result_type(operator, epoch, operands, output)
        formula = Formula(operator, operands, attributes, output, element, node, epoch)
        for name, rewrite in RULES.get(operator, ()):
            result = rewrite(self, formula)
            if result is not None:
                self.used[name] += 1
                return result
        return formula
