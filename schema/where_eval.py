"""Whether a candidate fits an expression. Pure.

Every expression is true or false of every candidate. A test of a value that nobody knows is false, whichever test it is,
`!=` and `not in` too; `not` turns that into true like any other false.
"""

import operator
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from onnxreg.schema.version import Version
from onnxreg.schema.where_fields import Candidate
from onnxreg.schema.where_tree import (
    Among,
    And,
    Comparison,
    Field,
    Flag,
    Glob,
    Literal,
    Member,
    Node,
    Not,
    Or,
)

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def matches(node: Node, candidate: Candidate) -> bool:
    """Whether the expression is true of the candidate."""
    match node:
        case And(operands):
            return all(matches(operand, candidate) for operand in operands)
        case Or(operands):
            return any(matches(operand, candidate) for operand in operands)
        case Not(operand):
            return not matches(operand, candidate)
        case Flag(field):
            return _held(candidate, field) is True
    found = _held(candidate, node.field)
    return found is not None and _passes(node, found)


def _passes(node: Comparison | Glob | Among | Member, found: Any) -> bool:
    """The test of a value that is known."""
    match node:
        case Comparison(_, sign, value):
            return COMPARE[sign](_ordered(found, value), _wanted(value))
        case Glob(_, pattern):
            return fnmatchcase(found, str(pattern.value).replace("[", "[[]"))
        case Among(_, values, negated):
            return any(_ordered(found, value) == _wanted(value) for value in values) is not negated
        case Member(value, _, negated):
            return (value.value in found) is not negated


def _held(candidate: Candidate, field: Field) -> Any:
    found = candidate.get(field.name)
    if field.label is not None and isinstance(found, Mapping):
        return found.get(field.label)
    return found


def _wanted(value: Literal) -> Any:
    return value.value.precedence if isinstance(value.value, Version) else value.value


def _ordered(found: Any, beside: Literal) -> Any:
    """What was found, as something that compares with the literal beside it."""
    return _precedence(found) if isinstance(beside.value, Version) else found


@lru_cache(4096)
def _precedence(version: str) -> tuple[object, ...]:
    return Version.parse(version).precedence


def fields(node: Node) -> frozenset[str]:
    """The names of the fields that decide; recall of any label is `recall`."""
    match node:
        case And(operands) | Or(operands):
            return frozenset().union(*map(fields, operands))
        case Not(operand):
            return fields(operand)
    return frozenset({node.field.name})
