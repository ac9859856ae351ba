"""Evaluation of expressions on columns of candidates. Pure.

Every expression is true or false of every candidate. A test of a value that nobody knows is false, whichever test it is,
`!=` and `not in` too; `not` turns that into true like any other false.

Candidates are rows of columns. A tree is turned into closures once; each test then walks its own column, of those rows
that are still in question, so that 10,000 candidates cost a few passes over lists and no object for each of them.
"""

import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from onnxreg.schema.core.budget import spend
from onnxreg.schema.core.globs import matcher
from onnxreg.schema.core.version import Version
from onnxreg.schema.query.expression.tree import (
    And,
    Comparison,
    FieldMember,
    Flag,
    Glob,
    Leaf,
    Literal,
    Node,
    Not,
    OneOf,
    Or,
)

Test = Callable[[Any], bool]
"""A test of a field's value; None is an unknown value."""


class ConstantColumn(NamedTuple):
    """A column that has one value in every row."""

    value: Any


CHARACTERS_PER_STEP = 8
"""Matching this many characters against a pattern costs one step."""

Columns = Callable[[str], Sequence[Any] | ConstantColumn]
"""The values of a field, row by row."""
Rows = Sequence[int]
Selection = Callable[[Columns, Rows], Rows]
"""Select the rows that fit, in the same order."""

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def selection(node: Node) -> Selection:
    """The expression as something to call."""
    match node:
        case And(operands):
            return _all([selection(operand) for operand in operands])
        case Or(operands):
            return _any([selection(operand) for operand in operands])
        case Not(operand):
            return _none(selection(operand))
    name, passes = node.field.name, test(node)

    def fitting(columns: Columns, rows: Rows) -> Rows:
        values = columns(name)
        if isinstance(values, ConstantColumn):
            return rows if passes(values.value) else ()
        spend(len(rows))
        return [row for row in rows if passes(values[row])]

    return fitting


def _all(operands: Sequence[Selection]) -> Selection:
    def fitting(columns: Columns, rows: Rows) -> Rows:
        for operand in operands:
            rows = operand(columns, rows)
        return rows

    return fitting


def _any(operands: Sequence[Selection]) -> Selection:
    def fitting(columns: Columns, rows: Rows) -> Rows:
        fitting_rows: set[int] = set()
        for operand in operands:
            fitting_rows.update(operand(columns, [row for row in rows if row not in fitting_rows]))
        return [row for row in rows if row in fitting_rows]

    return fitting


def _none(operand: Selection) -> Selection:
    def fitting(columns: Columns, rows: Rows) -> Rows:
        fitting_rows = set(operand(columns, rows))
        return [row for row in rows if row not in fitting_rows]

    return fitting


def test(leaf: Leaf) -> Test:
    """A single test as something to call; of a field with a label it takes what all labels have."""
    passes = _of_value(leaf)
    label = leaf.field.label
    return passes if label is None else lambda value: value is not None and passes(value.get(label))


def _of_value(leaf: Leaf) -> Test:
    match leaf:
        case Flag():
            return lambda actual: actual is True
        case Comparison(_, sign, value):
            return _compared(COMPARE[sign], value)
        case Glob(_, pattern):
            return _like(str(pattern.value))
        case OneOf(_, values, negated):
            return _among(values, negated)
        case FieldMember(value, _, negated):
            return lambda actual: actual is not None and (value.value in actual) is not negated


def _like(pattern: str) -> Test:
    fits = matcher(pattern)

    def passes(value: Any) -> bool:
        if value is None:
            return False
        spend(len(value) // CHARACTERS_PER_STEP)
        return fits(value)

    return passes


def _compared(compare: Callable[[Any, Any], bool], literal: Literal) -> Test:
    expected = literal.value
    if isinstance(expected, Version):
        precedence = expected.precedence
        return lambda value: value is not None and compare(_precedence(value), precedence)
    return lambda value: value is not None and compare(value, expected)


def _among(literals: Sequence[Literal], negated: bool) -> Test:
    versions = isinstance(literals[0].value, Version)
    expected = {
        literal.value.precedence if isinstance(literal.value, Version) else literal.value
        for literal in literals
    }
    if versions:
        return lambda value: value is not None and (_precedence(value) in expected) is not negated
    return lambda value: value is not None and (value in expected) is not negated


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
