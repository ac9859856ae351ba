"""A parsed expression as a tree that says whether it is true of a candidate.

Every node is true or false of every candidate. A test of an unknown value is false, `!=` and `not in` too; `not` turns
that into true like any other false. `str` of a tree is an expression that parses to an equal tree. A `Budget` limits
the steps that a question may take: a step is one test of one value.
"""

import operator
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from fnmatch import translate
from functools import cached_property, lru_cache
from typing import Any

from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.query.expression.fields import FieldValues

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
    """A value of an expression; `text` is its spelling."""

    value: str | int | float | Version
    text: str

    def __str__(self) -> str:
        return self.text

    @classmethod
    def of_text(cls, value: str) -> "Literal":
        """A text in quotes; it holds one kind of quotes at most."""
        quote = '"' if "'" in value else "'"
        return cls(value, f"{quote}{value}{quote}")

    @property
    def key(self) -> Any:
        """The value as it is compared: a version by its precedence."""
        return self.value.precedence if isinstance(self.value, Version) else self.value


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a candidate; `label` names one number of a field that has several."""

    name: str
    label: str | None = None

    def __str__(self) -> str:
        return self.name if self.label is None else f"{self.name}[{Literal.of_text(self.label)}]"


@dataclass(frozen=True)
class Test:
    """A test of one field, which costs one step of the budget.

    `sign` is empty for a flag, a comparison of `COMPARE`, `~` for a pattern, `in` if the field equals one of the
    values, or `has` if the list in the field has the value. `negated` belongs to the last two.
    """

    field: Field
    sign: str = ""
    values: tuple[Literal, ...] = ()
    negated: bool = False

    def __str__(self) -> str:
        word = "not in" if self.negated else "in"
        match self.sign:
            case "":
                return str(self.field)
            case "in":
                return f"{self.field} {word} ({', '.join(map(str, self.values))})"
            case "has":
                return f"{self.values[0]} {word} {self.field}"
        return f"{self.field} {self.sign} {self.values[0]}"

    def matches(self, candidate: FieldValues) -> bool:
        spend(1)
        value = candidate.get(self.field.name)
        if value is not None and self.field.label is not None:
            value = value.get(self.field.label)
        return value is not None and self._accepts(value)

    def fields(self) -> frozenset[str]:
        return frozenset({self.field.name})

    @cached_property
    def _accepts(self) -> Callable[[Any], bool]:
        """The test of a value that is known."""
        keys, negated = [literal.key for literal in self.values], self.negated
        match self.sign:
            case "":
                return lambda value: value is True
            case "has":
                return lambda value: (keys[0] in value) is not negated
            case "~":
                return matcher(str(self.values[0].value))
        key_of = _precedence if isinstance(self.values[0].value, Version) else lambda value: value
        if self.sign == "in":
            among = frozenset(keys)
            return lambda value: (key_of(value) in among) is not negated
        compare, key = COMPARE[self.sign], keys[0]
        return lambda value: compare(key_of(value), key)


@dataclass(frozen=True, slots=True)
class Not:
    operand: "Node"

    def __str__(self) -> str:
        return f"not ({self.operand})" if isinstance(self.operand, Junction) else f"not {self.operand}"

    def matches(self, candidate: FieldValues) -> bool:
        return not self.operand.matches(candidate)

    def fields(self) -> frozenset[str]:
        return self.operand.fields()


@dataclass(frozen=True, slots=True)
class Junction:
    """Several conditions, joined by the word `and` or `or`."""

    word: str
    operands: tuple["Node", ...]

    def __str__(self) -> str:
        bracketed = ("and", "or") if self.word == "and" else ("or",)
        return f" {self.word} ".join(
            f"({node})" if isinstance(node, Junction) and node.word in bracketed else str(node)
            for node in self.operands
        )

    def matches(self, candidate: FieldValues) -> bool:
        join = all if self.word == "and" else any
        return join(node.matches(candidate) for node in self.operands)

    def fields(self) -> frozenset[str]:
        return frozenset[str]().union(*(node.fields() for node in self.operands))


Node = Test | Not | Junction


@lru_cache(4096)
def _precedence(version: str) -> tuple[object, ...]:
    return Version.parse(version).precedence


def matcher(pattern: str) -> Callable[[str], bool]:
    """Compile a pattern of `*` (any characters) and `?` (one) to a test of a whole text; case matters.

    The regular expression of `fnmatch` never returns to an earlier `*`, so no pattern runs away.
    """
    match = re.compile(translate(pattern.replace("[", "[[]"))).match

    def fits(text: str) -> bool:
        spend(len(text) // CHARACTERS_PER_STEP)
        return match(text) is not None

    return fits


class Budget:
    """The steps that are left."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.left = steps


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


def spend(steps: int) -> None:
    """Take steps from the budget of the present question, if it has one. InputError if too few are left."""
    budget = _budget.get()
    if budget is not None:
        budget.left -= steps
        if budget.left < 0:
            raise InputError(
                f"the question takes more than {budget.steps:,} steps",
                "use fewer or simpler tests, or ask the registry itself instead of a server",
            )
