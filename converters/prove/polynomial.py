"""Sizes that are not known before the model runs: polynomials with integer coefficients in the sizes of its inputs."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

MAX_TERMS = 64
"""Terms of a polynomial, and symbols of a term: sizes of real graphs have one or two."""
MAX_CHARACTERS = 1000
"""Of the text of a symbol."""
MAX_FACTOR = 2**63


@dataclass(frozen=True, order=True)
class Symbol:
    """A number that is not known, zero or more. Symbols of one text are equal.

    `is_positive` if it is at least one whatever the inputs are. `choices` are the sizes of which it is the smallest.
    """

    text: str
    is_positive: bool = field(default=False, compare=False)
    choices: "tuple[Size, ...]" = field(default=(), compare=False)


Product = tuple[Symbol, ...]


@dataclass(frozen=True)
class Polynomial:
    """A sum of products of symbols, in order, each with its factor; never a plain number."""

    terms: frozenset[tuple[Product, int]]

    @property
    def is_positive(self) -> bool:
        """True if it is at least one whatever the inputs are; False may mean that this is not known."""
        return self.is_natural and any(all(one.is_positive for one in product) for product, _ in self.terms)

    @property
    def is_natural(self) -> bool:
        """True if it is zero or more; False may mean that this is not known."""
        return all(factor > 0 for _, factor in self.terms)

    def __add__(self, other: "Size") -> "Size":
        return _sum((*self.terms, *_terms(other)))

    def __mul__(self, other: "Size") -> "Size":
        return _sum(
            (tuple(sorted(one + two)), factor * by) for one, factor in self.terms for two, by in _terms(other)
        )

    def __sub__(self, other: "Size") -> "Size":
        return self + other * -1

    def __rsub__(self, other: int) -> "Size":
        return self * -1 + other

    __radd__, __rmul__ = __add__, __mul__

    def __str__(self) -> str:
        terms = ("*".join((str(factor), *(one.text for one in product))) for product, factor in self.terms)
        return " + ".join(sorted(terms))


Size = int | Polynomial


def of_symbol(symbol: Symbol) -> Polynomial:
    """Raise OverflowError for an expression that is longer than those of real graphs."""
    if len(symbol.text) > MAX_CHARACTERS:
        raise OverflowError("the text of a size is too long")
    return Polynomial(frozenset({((symbol,), 1)}))


def is_positive(size: Size) -> bool:
    return size.is_positive if isinstance(size, Polynomial) else size > 0


def is_natural(size: Size) -> bool:
    return size.is_natural if isinstance(size, Polynomial) else size >= 0


def product(sizes: Iterable[Size]) -> Size:
    total: Size = 1
    for size in sizes:
        total = total * size
    return total


def divide(one: Size, other: Size) -> Size | None:
    """The quotient if it is exact, and the divisor the same or a single product; None otherwise."""
    divisor = list(_terms(other))
    if one == other and divisor:
        return 1
    if len(divisor) != 1:
        return None
    (symbols, by), quotient = divisor[0], []
    for dividend, factor in _terms(one):
        remaining = Counter(dividend)
        remaining.subtract(symbols)
        if factor % by or min(remaining.values(), default=0) < 0:
            return None
        quotient.append((tuple(sorted(remaining.elements())), factor // by))
    return _sum(quotient)


def floor_of_quotient(one: Size, other: Size) -> Size | None:
    """The quotient of two positive sizes, without its fraction; None if one may be another number."""
    if not (is_positive(one) and is_positive(other)):
        return None
    exact = divide(one, other)
    return of_symbol(Symbol(f"div({one}, {other})")) if exact is None else exact


def smaller(one: Size, other: Size) -> Size | None:
    """The smaller of two positive sizes; None if one may be another number."""
    if not (is_positive(one) and is_positive(other)):
        return None
    if one == other or other == 1:
        return other
    text = f"min({', '.join(sorted((str(one), str(other))))})"
    return 1 if one == 1 else of_symbol(Symbol(text, True, (one, other)))


def is_part(one: Size, other: Size) -> bool:
    """Return True if the first size is the smaller one of the second and another."""
    if not isinstance(one, Polynomial) or len(one.terms) != 1:
        return False
    ((symbols, factor),) = one.terms
    return factor == 1 and len(symbols) == 1 and other in symbols[0].choices


def is_equal(one: Size, other: Size) -> bool | None:
    """True or False if two sizes are equal, or differ, whatever the inputs are; None otherwise."""
    difference = one - other
    if isinstance(difference, int):
        return difference == 0
    return False if is_positive(difference) or is_positive(difference * -1) else None


def _terms(size: Size) -> Iterable[tuple[Product, int]]:
    if isinstance(size, Polynomial):
        return size.terms
    return (((), size),) if size else ()


def _sum(terms: Iterable[tuple[Product, int]]) -> Size:
    """Raise OverflowError for more terms, symbols or a larger factor than sizes of real graphs have."""
    total: Counter[Product] = Counter()
    for symbols, factor in terms:
        total[symbols] += factor
        if max(len(total), len(symbols)) > MAX_TERMS or abs(total[symbols]) >= MAX_FACTOR:
            raise OverflowError("a size has too many terms")
    terms_left = {symbols: factor for symbols, factor in total.items() if factor}
    return Polynomial(frozenset(terms_left.items())) if terms_left.keys() - {()} else terms_left.get((), 0)
