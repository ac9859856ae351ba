"""Sizes that are not known before the model runs: expressions of SymPy, as onnx_ir has them, in the sizes of the inputs.

A size is an int, or an expanded expression of symbols that are integers of zero or more.
"""

from collections.abc import Iterable
from typing import Any

import sympy  # type: ignore[import-untyped]  # of onnx_ir

Size = Any
MAX_OPERATIONS = 200
"""Operations of an expression: sizes of real graphs have a few."""
MAX_FACTOR, MAX_POWER, MAX_CHOICES = 2**63, 64, 4
SLICE = sympy.Function("slice", integer=True, nonnegative=True)
"""The size of a slice of a size, between a start and an end."""


def of_input(name: str) -> Size:
    """The size of an input, which is at least one."""
    return sympy.Symbol(name, integer=True, positive=True)


def fresh() -> Size:
    """A size of which nothing is known."""
    return sympy.Dummy("?", integer=True, nonnegative=True)


def simple(size: Any) -> Size:
    """The one form of an expression. OverflowError for one that is larger than those of real graphs."""
    if isinstance(size, int):
        return size
    is_long = size.count_ops() > MAX_OPERATIONS or any(one.exp > MAX_POWER for one in size.atoms(sympy.Pow))
    if is_long or any(abs(number) >= MAX_FACTOR for number in size.atoms(sympy.Integer)):
        raise OverflowError("a size is too large")
    expanded = sympy.expand(size)
    return int(expanded) if expanded.is_Integer else expanded


def is_positive(size: Size) -> bool:
    """Return True if a size is at least one whatever the inputs are; False may mean that this is not known."""
    return size > 0 if isinstance(size, int) else bool(size.is_positive)


def is_natural(size: Size) -> bool:
    """Return True if a size is zero or more; False may mean that this is not known."""
    return size >= 0 if isinstance(size, int) else bool(size.is_nonnegative)


def product(sizes: Iterable[Size]) -> Size:
    total: Any = 1
    for size in sizes:
        total = simple(total * size)
    return total


def divide(one: Size, other: Size) -> Size | None:
    """The quotient if it is exact, and the divisor positive, and the same or a single product; None otherwise."""
    if one == other and is_positive(other):
        return 1
    if not is_positive(other) or isinstance(other, sympy.Add):
        return None
    quotient = sympy.expand(sympy.sympify(one) / other)
    factors = [part for term in sympy.Add.make_args(quotient) for part in term.as_powers_dict().items()]
    is_exact = all(power.is_nonnegative and (base.is_integer or not power) for base, power in factors)
    return simple(quotient) if is_exact else None


def floor_of_quotient(one: Size, other: Size) -> Size | None:
    """The quotient of two positive sizes, without its fraction; None if one may be another number."""
    if not (is_positive(one) and is_positive(other)):
        return None
    exact = divide(one, other)
    return simple(sympy.floor(sympy.sympify(one) / sympy.sympify(other))) if exact is None else exact


def smaller(one: Size, other: Size) -> Size | None:
    """The smaller of two positive sizes; None if one may be another number, or both are long: SymPy compares all pairs."""
    is_long = sum(sympy.sympify(size).count_ops() for size in (one, other)) > MAX_CHOICES
    return simple(sympy.Min(one, other)) if not is_long and is_positive(one) and is_positive(other) else None


def is_part(one: Size, other: Size) -> bool:
    """Return True if the first size is the smaller one of the second and another."""
    return isinstance(one, sympy.Min) and other in one.args


def is_equal(one: Size, other: Size) -> bool | None:
    """True or False if two sizes are equal, or differ, whatever the inputs are; None otherwise."""
    difference = simple(one - other)
    if isinstance(difference, int):
        return difference == 0
    return False if is_positive(difference) or is_positive(simple(-difference)) else None
