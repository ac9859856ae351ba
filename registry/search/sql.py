"""An expression as a condition in SQL over `candidates`, so that a row that does not fit never reaches Python.

Plain comparisons are SQLite's own. Versions, patterns, lists and recalls are left to functions that ask `where_eval`,
whose answer for a value is remembered: there are few versions and few recalls. Where a value is not known, a test is
false, so each is wrapped such that SQL's third truth value never leaves it.
"""

import json
import sqlite3
from functools import lru_cache
from itertools import count
from typing import Any

from onnxreg.schema.core.budget import spend
from onnxreg.schema.core.version import Version
from onnxreg.schema.query.expression import evaluate
from onnxreg.schema.query.expression.tree import And, Comparison, Flag, Leaf, Literal, Node, Not, OneOf, Or

JSON = ("channels", "providers", "recall")
"""The columns that hold JSON."""

COLUMNS = {"name": "models.name", "profile": "nullif(candidates.profile, '')"}
"""What a field is in SQL, where that is not its column."""


class Condition:
    """`sql` with its `parameters`, to be used with this connection: functions that it calls are made there."""

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
            case Comparison(_, sign, value) if _is_plain(node, value):
                return f"coalesce({column} {sign} {self._parameters(value)}, 0)"
            case OneOf(_, values, negated) if _is_plain(node, *values):
                word = "NOT IN" if negated else "IN"
                return f"coalesce({column} {word} ({self._parameters(*values)}), 0)"
        return f"{self._function(node)}({column})"

    def _parameters(self, *values: Literal) -> str:
        self.parameters += [value.value for value in values]
        return ", ".join("?" * len(values))

    def _function(self, leaf: Leaf) -> str:
        """The name of a function of one column that tells whether a test is true of it."""
        name = f"leaf{next(self._numbers)}"
        column = leaf.field.name

        test = evaluate.test(leaf)

        @lru_cache(4096)
        def passes(found: Any) -> bool:
            spend(1)
            return test(json.loads(found) if column in JSON else found)

        self._database.create_function(name, 1, passes, deterministic=True)
        return name


def _is_plain(leaf: Leaf, *values: Literal) -> bool:
    """Whether SQLite compares as we do: numbers, and texts by their code points."""
    return leaf.field.label is None and not any(isinstance(value.value, Version) for value in values)
