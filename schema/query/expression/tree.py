"""A parsed expression as a tree that answers whether it is true of a candidate. Pure.

Every node is true or false of every candidate. A test of an unknown value is false, whichever test it is, `!=` and
`not in` too; `not` turns that into true like any other false. `str` of a tree is an expression that parses to the same
tree.

Patterns of `*` (any characters) and `?` (one) are matched in time linear in the text. All places in
the pattern where a match may be are the bits of one number, which a character moves on at once (Baeza-Yates and
Gonnet, "A new approach to text searching", 1992). So no pattern can run away, as a backtracking matcher can.

A `Budget` limits the steps that one question may take: a step is one test of one value.
"""

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.query.expression.fields import FieldValues

Value = str | int | float | Version

CHARACTERS_PER_STEP = 8
"""Matching this many characters against a pattern costs one step of the budget."""

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Literal:
    """A value that was written down; `text` is how to write it."""

    value: Value
    text: str

    def __str__(self) -> str:
        return self.text

    @classmethod
    def of_text(cls, value: str) -> "Literal":
        """A text in quotes; it holds one kind of quotes at most."""
        quote = '"' if "'" in value else "'"
        return cls(value, f"{quote}{value}{quote}")

    @cached_property
    def key(self) -> Any:
        """The value as it is compared: a version by its precedence."""
        return self.value.precedence if isinstance(self.value, Version) else self.value

    def key_of(self, value: Any) -> Any:
        """A field's value as it is compared with this one."""
        return _precedence(value) if isinstance(self.value, Version) else value


@lru_cache(4096)
def _precedence(version: str) -> tuple[object, ...]:
    return Version.parse(version).precedence


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a candidate; `label` names one number of a field that has several."""

    name: str
    label: str | None = None

    def __str__(self) -> str:
        return self.name if self.label is None else f"{self.name}[{Literal.of_text(self.label)}]"


class Leaf(ABC):
    """A test of one field, which costs one step of the budget."""

    field: Field

    def matches(self, candidate: FieldValues) -> bool:
        spend(1)
        return self.accepts(candidate.get(self.field.name))

    def accepts(self, value: Any) -> bool:
        """Test a value of the field; if it has a label, the mapping from labels to numbers."""
        if value is not None and self.field.label is not None:
            value = value.get(self.field.label)
        return value is not None and self._accepts(value)

    @abstractmethod
    def _accepts(self, value: Any) -> bool:
        """Test a value that is not unknown."""

    def fields(self) -> frozenset[str]:
        return frozenset({self.field.name})


@dataclass(frozen=True)
class Flag(Leaf):
    """True if the field is."""

    field: Field

    def __str__(self) -> str:
        return str(self.field)

    def _accepts(self, value: Any) -> bool:
        return value is True


@dataclass(frozen=True)
class FieldComparison(Leaf):
    """`operator` is = != < <= > or >=."""

    field: Field
    operator: str
    value: Literal

    def __str__(self) -> str:
        return f"{self.field} {self.operator} {self.value}"

    def _accepts(self, value: Any) -> bool:
        return COMPARE[self.operator](self.value.key_of(value), self.value.key)


@dataclass(frozen=True)
class Glob(Leaf):
    """The text of the field fits a pattern of `*` (any characters) and `?` (one)."""

    field: Field
    pattern: Literal

    def __str__(self) -> str:
        return f"{self.field} ~ {self.pattern}"

    @cached_property
    def _fits(self) -> Callable[[str], bool]:
        return matcher(str(self.pattern.value))

    def _accepts(self, value: Any) -> bool:
        spend(len(value) // CHARACTERS_PER_STEP)
        return self._fits(value)


@dataclass(frozen=True)
class OneOf(Leaf):
    """The field equals one of the values; with `negated` none of them."""

    field: Field
    values: tuple[Literal, ...]
    negated: bool

    def __str__(self) -> str:
        return f"{self.field} {_in(self.negated)} ({', '.join(map(str, self.values))})"

    @cached_property
    def _keys(self) -> frozenset[Any]:
        return frozenset(literal.key for literal in self.values)

    def _accepts(self, value: Any) -> bool:
        return (self.values[0].key_of(value) in self._keys) is not self.negated


@dataclass(frozen=True)
class FieldMember(Leaf):
    """The list that the field holds has this text; with `negated` it has not."""

    value: Literal
    field: Field
    negated: bool

    def __str__(self) -> str:
        return f"{self.value} {_in(self.negated)} {self.field}"

    def _accepts(self, value: Any) -> bool:
        return (self.value.value in value) is not self.negated


@dataclass(frozen=True, slots=True)
class Not:
    operand: "Node"

    def __str__(self) -> str:
        return f"not {_inner(self.operand, And, Or)}"

    def matches(self, candidate: FieldValues) -> bool:
        return not self.operand.matches(candidate)

    def fields(self) -> frozenset[str]:
        return self.operand.fields()


@dataclass(frozen=True, slots=True)
class And:
    operands: tuple["Node", ...]

    def __str__(self) -> str:
        return " and ".join(_inner(operand, And, Or) for operand in self.operands)

    def matches(self, candidate: FieldValues) -> bool:
        return all(operand.matches(candidate) for operand in self.operands)

    def fields(self) -> frozenset[str]:
        return frozenset[str]().union(*(operand.fields() for operand in self.operands))


@dataclass(frozen=True, slots=True)
class Or:
    operands: tuple["Node", ...]

    def __str__(self) -> str:
        return " or ".join(_inner(operand, Or) for operand in self.operands)

    def matches(self, candidate: FieldValues) -> bool:
        return any(operand.matches(candidate) for operand in self.operands)

    def fields(self) -> frozenset[str]:
        return frozenset[str]().union(*(operand.fields() for operand in self.operands))


Node = Leaf | Not | And | Or


def _in(negated: bool) -> str:
    return "not in" if negated else "in"


def _inner(node: Node, *bracketed: type) -> str:
    return f"({node})" if isinstance(node, bracketed) else str(node)


def matcher(pattern: str) -> Callable[[str], bool]:
    """Compile a pattern to a function that is True if a whole text fits; it is case-sensitive."""
    beginning = pattern.rstrip("*")
    if pattern != beginning and not {"*", "?"} & {*beginning}:
        return lambda text: text.startswith(beginning)
    steps, loops = _bits(pattern)
    if not steps and not loops:
        return lambda text: not text
    return _automaton(steps, loops)


def _bits(pattern: str) -> tuple[list[str], int]:
    """The characters that move a match on, and the places (as bits) that a `*` lets it stay in."""
    steps: list[str] = []
    loops = 0
    for character in pattern:
        if character == "*":
            loops |= 1 << len(steps)
        else:
            steps.append(character)
    return steps, loops


def _automaton(steps: list[str], loops: int) -> Callable[[str], bool]:
    anything = sum(1 << index for index, step in enumerate(steps) if step == "?")
    moves = {
        step: anything | sum(1 << index for index, candidate in enumerate(steps) if candidate == step)
        for step in {*steps} - {"?"}
    }
    final = 1 << len(steps)

    def fits(text: str) -> bool:
        places = 1
        for character in text:
            places = (places & moves.get(character, anything)) << 1 | places & loops
            if not places:
                return False
        return bool(places & final)

    return fits


class Budget:
    """The steps that are left."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.left = steps

    @property
    def is_spent(self) -> bool:
        return self.left < 0

    def error(self) -> InputError:
        return InputError(
            f"the question takes more than {self.steps:,} steps",
            "use fewer or simpler tests, or ask the registry itself instead of a server",
        )


_budget: ContextVar[Budget | None] = ContextVar("budget", default=None)


@contextmanager
def limited(steps: int) -> Iterator[Budget]:
    """Limit the questions inside this context to this many steps."""
    budget = Budget(steps)
    token = _budget.set(budget)
    try:
        yield budget
    finally:
        _budget.reset(token)


def current() -> Budget | None:
    """The budget of the present question, if it has one."""
    return _budget.get()


def spend(steps: int) -> None:
    """Take steps. InputError if there are not as many left."""
    budget = _budget.get()
    if budget is not None:
        budget.left -= steps
        if budget.is_spent:
            raise budget.error()
