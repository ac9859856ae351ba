"""Compile an expression to an SQL condition over `candidates`, so that only matching rows reach Python.

Plain comparisons use SQLite's own operators. Versions, patterns, lists, recalls and metrics use functions that call
`Leaf.accepts` and cache the result of each value: there are few versions and few figures. If a value is unknown,
a test is false, so each is wrapped such that it never gives SQL's NULL.
"""

import json
import sqlite3
from functools import lru_cache
from itertools import count
from typing import Any

from onnxreg.schema.core.budget import spend
from onnxreg.schema.core.ref import Version
from onnxreg.schema.query.expression.tree import (
    And,
    FieldComparison,
    Flag,
    Leaf,
    Literal,
    Node,
    Not,
    OneOf,
    Or,
)

JSON_COLUMNS = ("channels", "providers", "recall", "metric")
"""The columns that hold JSON."""
CHARACTERS_PER_STEP = 256
"""Reading this many characters of JSON costs one step of the budget."""

COLUMNS = {"name": "models.name", "profile": "nullif(candidates.profile, '')"}
"""The SQL of fields that are not a column of the same name."""


class Condition:
    """`sql` with its `parameters`, for this connection only: it has the functions that the SQL calls."""

    def __init__(self, database: sqlite3.Connection, node: Node) -> None:
        self._database = database
        self._numbers = count()
        self.parameters: list[Any] = []
        self.sql = self._of(node)

    def _of(self, node: Node) -> str:
        match node:
            case And(operands):
                return f"({' AND '.join(map(self._of, operands))})"
            case Or(operands):
                return f"({' OR '.join(map(self._of, operands))})"
            case Not(operand):
                return f"NOT {self._of(operand)}"
        column = COLUMNS.get(node.field.name, f"candidates.{node.field.name}")
        match node:
            case Flag():
                return column
            case FieldComparison(_, sign, value) if _is_plain(node, value):
                return f"coalesce({column} {sign} {self._parameters(value)}, 0)"
            case OneOf(_, values, negated) if _is_plain(node, *values):
                word = "NOT IN" if negated else "IN"
                return f"coalesce({column} {word} ({self._parameters(*values)}), 0)"
        return f"{self._function(node)}({column})"

    def _parameters(self, *values: Literal) -> str:
        self.parameters += [value.value for value in values]
        return ", ".join("?" * len(values))

    def _function(self, leaf: Leaf) -> str:
        """Register a function that tests one column; return its name."""
        name = f"leaf{next(self._numbers)}"
        column = leaf.field.name

        @lru_cache(4096)
        def passes(value: Any) -> bool:
            spend(1)
            return leaf.accepts(_decoded(value) if column in JSON_COLUMNS else value)

        self._database.create_function(name, 1, passes, deterministic=True)
        return name


@lru_cache(4096)
def _decoded(value: str) -> Any:
    """The value of a JSON column, read once for all tests of a row."""
    spend(len(value) // CHARACTERS_PER_STEP)
    return json.loads(value)


def _is_plain(leaf: Leaf, *values: Literal) -> bool:
    """Check if SQLite compares the values in the same way: numbers, and texts by their code points."""
    return leaf.field.label is None and not any(isinstance(value.value, Version) for value in values)
