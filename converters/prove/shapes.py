"""Shapes of the values of a graph, and the values of its small tensors, as far as they follow from the sizes of inputs."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from onnxreg.converters.prove.compute import MAX_ELEMENTS, compute, is_computable
from onnxreg.converters.prove.formula import INPUT, Formula, array_of
from onnxreg.converters.prove.polynomial import Size, Symbol, of_symbol
from onnxreg.converters.prove.shape_rules import Dims, result_dims
from onnxreg.converters.prove.stored_value import ArrayTensor, StoredValue, is_readable

MAX_COMPUTED = 2**24
"""Elements of all values that are computed for one proof."""


@dataclass(frozen=True)
class Inference:
    """The shape of a formula, and its value if inputs change it by their sizes at most; None of what is not known.

    An array of objects is one of int64 with a `Polynomial` among its elements.
    """

    dims: Dims | None = None
    value: Any = None


class Shapes:
    """Infers shapes and values, each once, from operands upwards. `inputs` has the shapes of the graph's inputs."""

    def __init__(self, inputs: Mapping[str, Dims]) -> None:
        self._inputs = inputs
        self._inferred: dict[Formula, Inference] = {}
        self._numbers = count()
        self._computed = 0

    def dims(self, formula: Formula | None) -> Dims | None:
        return self._of(formula).dims if formula is not None else None

    def value(self, formula: Formula | None) -> Any:
        """The array of a formula that depends on sizes at most; None of any other, and of a large one."""
        if formula is None or formula.constant is not None:
            return array_of(formula, MAX_ELEMENTS)
        return self._of(formula).value

    def fold(self, formula: Formula) -> StoredValue | None:
        """The stored form of a formula that depends on no input; None of any other."""
        value = self.value(formula)
        if value is None or value.dtype == object:
            return None
        return StoredValue.of(ArrayTensor(formula.node or formula.operator, value))

    def fresh(self) -> Size:
        """A size of which nothing is known."""
        return of_symbol(Symbol(f"?{next(self._numbers)}"))

    def _of(self, formula: Formula) -> Inference:
        waiting = [formula]
        while waiting:
            one = waiting[-1]
            missing = [part for part in one.operands if part is not None and part not in self._inferred]
            if one in self._inferred or not missing:
                waiting.pop()
            if one not in self._inferred and not missing:
                self._inferred[one] = self._infer(one)
            waiting += missing
        return self._inferred[formula]

    def _infer(self, formula: Formula) -> Inference:
        if formula.constant is not None:
            return Inference(formula.constant.dims)
        if formula.operator == INPUT:
            return Inference(self._inputs.get(formula.attribute("name")))
        value = self._value(formula)
        if value is not None:
            self._computed += value.size
            return Inference(value.shape, value)
        try:
            return Inference(result_dims(self, formula))
        except (ValueError, TypeError, LookupError, ArithmeticError):
            return Inference()

    def _value(self, formula: Formula) -> Any:
        import numpy as np

        if formula.is_op("Shape"):
            dims = self.dims(formula.operands[0])
            if dims is None:
                return None
            part = dims[formula.attribute("start", 0) : formula.attribute("end", None)]
            return np.array(part, np.int64 if all(isinstance(size, int) for size in part) else object)
        if not is_computable(formula) or self._computed > MAX_COMPUTED:
            return None
        if not all(one is None or self._has_value(one) for one in formula.operands):
            return None
        operands = [self.value(one) for one in formula.operands]
        missing = any(
            array is None and one is not None for array, one in zip(operands, formula.operands, strict=True)
        )
        return None if missing else compute(formula, operands)

    def _has_value(self, formula: Formula) -> bool:
        value = formula.constant
        if value is None:
            return self._inferred[formula].value is not None
        return value.quantization is None and value.size <= MAX_ELEMENTS and is_readable(value.tensor)
