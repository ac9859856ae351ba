"""Lazily filled `candidates` table of the search index: every version of every model; and expressions as its conditions.

Rows are valid as long as a model's head stays the same; no manifest is read twice. They are written batch by
batch, so that an interruption loses little and other processes never wait for long.

An expression becomes an SQL condition, so that only matching rows reach Python. Plain comparisons use SQLite's own
operators. Versions, patterns, lists, recalls and metrics use functions that call `Leaf.accepts` and cache the result
of each value: there are few versions and few figures. If a value is unknown, a test is false, so each is wrapped such
that it never gives SQL's NULL.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import count, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from onnxreg.registry.search.db import transaction
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.schema.core.progress import Progress
from onnxreg.schema.query.expression.fields import ARTIFACT_FIELDS, FIELDS, FieldKind
from onnxreg.schema.query.expression.tree import Junction, Node, Not, Test, current, spend

if TYPE_CHECKING:
    from onnxreg.registry.search.candidates import Contents, ModelCandidates
    from onnxreg.schema.query.expression.parser import Expression

INSTRUCTIONS_PER_CHECK = 10_000
"""Instructions of SQLite's virtual machine between two checks of the budget."""
INSTRUCTIONS_PER_STEP = 100
"""Instructions that count as one step of the budget."""

COLUMNS = tuple(FIELDS)[1:]
"""Columns of `candidates` after model, rank and position; the name is a column of `models`."""
FLAG_COLUMNS = tuple(name for name, kind in FIELDS.items() if kind is FieldKind.FLAG)
JSON_COLUMNS = ("channels", "providers", "recall", "metric")
"""The columns that hold JSON."""
CHARACTERS_PER_STEP = 256
"""Reading this many characters of JSON costs one step of the budget."""

SQL_OF_FIELDS = {"name": "models.name", "profile": "nullif(candidates.profile, '')"}
"""The SQL of fields that are not a column of the same name."""


def fill(
    database: sqlite3.Connection,
    remote: RegistryReader,
    pattern: str,
    progress: Progress,
    profiled: bool = False,
) -> list[str]:
    """Update the candidates of the models whose name fits; return the damages of those that cannot be read.

    `profiled`: with their profiles.
    """
    level = 2 if profiled else 1
    rows = database.execute(
        "SELECT name FROM models WHERE whole < ? AND damage IS NULL ORDER BY name", (level,)
    )
    stale = [name for (name,) in rows.fetchall() if fnmatchcase(name, pattern)]
    if not stale:
        return []
    from onnxreg.registry.search import candidates

    damages: list[str] = []
    fields = candidates.MANIFEST_FIELDS if profiled else ("metric",)
    for batch in candidates.batches(stale, progress):
        known_contents = dict(item for name in batch for item in read_contents(database, name, profiled))
        models = candidates.read(remote, batch, known_contents, fields)
        with transaction(database):
            for model in models:
                damages += [*model.damages, *_store(database, model, profiled)]
    return damages


def read_contents(
    database: sqlite3.Connection, name: str, profiled: bool
) -> Iterator[tuple[str, "Contents"]]:
    """The contents of a model's manifests that were read before, by digest."""
    rows = database.execute(
        f"SELECT manifest, rank, {', '.join(ARTIFACT_FIELDS)} FROM models JOIN candidates ON model = id "
        "WHERE name = ? AND (profile IS NOT NULL OR NOT ?) ORDER BY rank, position",
        (name, profiled),
    )
    for (manifest, _), group in groupby(rows, key=itemgetter(0, 1)):
        yield manifest, [_decoded(ARTIFACT_FIELDS, row[2:]) for row in group]


def _store(database: sqlite3.Connection, update: "ModelCandidates", profiled: bool) -> list[str]:
    """Replace the candidates of a model; return the reasons why that failed."""
    row = database.execute("SELECT id FROM models WHERE name = ?", (update.name,)).fetchone()
    if row is None:
        return []
    (model,) = row
    damages = insert(database, model, update, profiled)
    if not damages:
        level = 0 if update.damages else 2 if profiled else 1
        database.execute(
            "UPDATE models SET whole = CASE WHEN head IS ? THEN ? ELSE 0 END WHERE id = ?",
            (update.head, level, model),
        )
    return damages


def insert(database: sqlite3.Connection, model: int, update: "ModelCandidates", profiled: bool) -> list[str]:
    """Write the candidates of the model with this id instead of those before; return the reasons why that failed."""
    database.execute("DELETE FROM candidates WHERE model = ?", (model,))
    values = ", ".join("?" * (3 + len(COLUMNS)))
    try:
        database.executemany(
            f"INSERT INTO candidates VALUES({values})", _rows(model, update.candidates, profiled)
        )
    except (OverflowError, UnicodeEncodeError) as error:
        database.execute("DELETE FROM candidates WHERE model = ?", (model,))
        return [f"the artifacts of {update.name} cannot be listed: {error}"]
    return []


def _rows(model: int, candidates: Iterable[dict[str, Any]], profiled: bool) -> Iterator[tuple[Any, ...]]:
    for rank, (_, group) in enumerate(groupby(candidates, key=itemgetter("version"))):
        for position, candidate in enumerate(group):
            values = {**candidate, **{name: json.dumps(candidate[name]) for name in JSON_COLUMNS}}
            if profiled:
                values["profile"] = candidate["profile"] or ""
            yield (model, rank, position, *(values[name] for name in COLUMNS))


@contextmanager
def bounded(database: sqlite3.Connection) -> Iterator[None]:
    """Apply the current budget to a query, including SQLite's own work. InputError if it is spent.

    SQLite hides exceptions of functions, so that the budget is checked here.
    """
    budget = current()
    if budget is None:
        yield
        return

    def is_spent() -> bool:
        budget.left -= INSTRUCTIONS_PER_CHECK // INSTRUCTIONS_PER_STEP
        return budget.is_spent

    database.set_progress_handler(is_spent, INSTRUCTIONS_PER_CHECK)
    try:
        yield
    except sqlite3.OperationalError:
        if budget.is_spent:
            raise budget.error() from None
        raise
    finally:
        database.set_progress_handler(None, INSTRUCTIONS_PER_CHECK)


def matching(
    database: sqlite3.Connection,
    expression: "Expression | None",
    pattern: str,
    limit: int | None = None,
    profiled: bool = False,
) -> Iterator[dict[str, Any]]:
    """The candidates that fit, by name, then version, then path; at most `limit`. The profile is None unless
    `profiled`.
    """
    condition = None if expression is None else Condition(database, expression.tree)
    database.create_function("is_asked", 1, lambda name: fnmatchcase(name, pattern), deterministic=True)
    hidden = () if profiled else ("profile",)
    columns = ", ".join("NULL" if name in hidden else f"candidates.{name}" for name in COLUMNS)
    rows = database.execute(
        f"SELECT name, {columns} FROM models CROSS JOIN candidates ON model = id "
        f"WHERE damage IS NULL AND is_asked(name) AND {'TRUE' if condition is None else condition.sql} "
        f"ORDER BY name, rank, position LIMIT {-1 if limit is None else limit}",
        [] if condition is None else condition.parameters,
    )
    return (_decoded(("name", *COLUMNS), row) for row in rows)


def _decoded(names: tuple[str, ...], row: tuple[Any, ...]) -> dict[str, Any]:
    candidate = dict(zip(names, row, strict=True))
    for name, read in _READERS:
        if name in candidate:
            candidate[name] = read(candidate[name])
    return candidate


_READERS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    *((name, json.loads) for name in JSON_COLUMNS),
    *((name, bool) for name in FLAG_COLUMNS),
    ("profile", lambda profile: profile or None),
)


class Condition:
    """`sql` with its `parameters`, for this connection only: it has the functions that the SQL calls."""

    def __init__(self, database: sqlite3.Connection, node: Node) -> None:
        self._database = database
        self._numbers = count()
        self.parameters: list[Any] = []
        self.sql = self._of(node)

    def _of(self, node: Node) -> str:
        match node:
            case Junction(word, operands):
                return f"({f' {word.upper()} '.join(map(self._of, operands))})"
            case Not(operand):
                return f"NOT {self._of(operand)}"
        column = SQL_OF_FIELDS.get(node.field.name, f"candidates.{node.field.name}")
        return f"{self._function(node)}({column})"

    def _function(self, leaf: Test) -> str:
        """Register a function that tests one column; return its name."""
        name = f"leaf{next(self._numbers)}"
        column = leaf.field.name

        @lru_cache(4096)
        def passes(value: Any) -> bool:
            if column in FLAG_COLUMNS:
                value = bool(value)
            return leaf.matches({column: _json_value(value) if column in JSON_COLUMNS else value})

        self._database.create_function(name, 1, passes, deterministic=True)
        return name


@lru_cache(4096)
def _json_value(value: str) -> Any:
    """The value of a JSON column, read once for all tests of a row."""
    spend(len(value) // CHARACTERS_PER_STEP)
    return json.loads(value)
