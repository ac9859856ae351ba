"""The candidates of all models in the search index: every version, filled in when the first expression asks for them.

They are kept as long as a model's head stays; what a manifest says of its artifacts is never read twice. They are
written down batch by batch, so that an interruption loses little and other processes never wait for long.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from onnxreg.registry.search.db import transaction
from onnxreg.registry.search.sql import JSON, Condition
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.schema.core.budget import current
from onnxreg.schema.query.expression.fields import FIELDS, FieldKind

if TYPE_CHECKING:
    from onnxreg.registry.search.candidates import Contents, ModelCandidates
    from onnxreg.schema.query.expression.parser import Expression

INSTRUCTIONS = 10_000
"""Instructions of SQLite's machine between two looks at the budget."""
PER_STEP = 100
"""So many of them are a step."""

COLUMNS = tuple(FIELDS)[1:]
"""Those of `candidates`, behind model, rank and position; the name is the model's."""
OF_MANIFEST = COLUMNS[COLUMNS.index("task") :]
FLAGS = tuple(name for name, kind in FIELDS.items() if kind is FieldKind.FLAG)


def fill(
    database: sqlite3.Connection,
    remote: RegistryReader,
    pattern: str,
    report: Callable[[str], None],
    profiled: bool = False,
) -> list[str]:
    """Bring the candidates of the models whose name fits up to date; returns what is wrong with those that cannot be.

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
    for batch in candidates.batches(stale, report):
        known = dict(item for name in batch for item in _known(database, name, profiled))
        told = candidates.read(remote, batch, known, profiled)
        with transaction(database):
            for model in told:
                damages += [*model.damages, *_store(database, model, profiled)]
    return damages


def _known(database: sqlite3.Connection, name: str, profiled: bool) -> Iterator[tuple[str, "Contents"]]:
    """What the manifests of a model say, as far as they were read before."""
    rows = database.execute(
        f"SELECT manifest, rank, {', '.join(OF_MANIFEST)} FROM models JOIN candidates ON model = id "
        "WHERE name = ? AND (profile IS NOT NULL OR NOT ?) ORDER BY rank, position",
        (name, profiled),
    )
    for (manifest, _), group in groupby(rows, key=itemgetter(0, 1)):
        yield manifest, [_decoded(OF_MANIFEST, row[2:]) for row in group]


def _store(database: sqlite3.Connection, told: "ModelCandidates", profiled: bool) -> list[str]:
    """Replace the candidates of a model; returns what stands in the way."""
    found = database.execute("SELECT id FROM models WHERE name = ?", (told.name,)).fetchone()
    if found is None:
        return []
    (model,) = found
    database.execute("DELETE FROM candidates WHERE model = ?", (model,))
    values = ", ".join("?" * (3 + len(COLUMNS)))
    try:
        database.executemany(
            f"INSERT INTO candidates VALUES({values})", _rows(model, told.candidates, profiled)
        )
    except (OverflowError, UnicodeEncodeError) as error:
        database.execute("DELETE FROM candidates WHERE model = ?", (model,))
        return [f"the artifacts of {told.name} cannot be listed: {error}"]
    level = 0 if told.damages else 2 if profiled else 1
    database.execute(
        "UPDATE models SET whole = CASE WHEN head IS ? THEN ? ELSE 0 END WHERE id = ?",
        (told.head, level, model),
    )
    return []


def _rows(model: int, found: Iterable[dict[str, Any]], profiled: bool) -> Iterator[tuple[Any, ...]]:
    for rank, (_, group) in enumerate(groupby(found, key=itemgetter("version"))):
        for position, candidate in enumerate(group):
            told = {**candidate, **{name: json.dumps(candidate[name]) for name in JSON}}
            if profiled:
                told["profile"] = candidate["profile"] or ""
            yield (model, rank, position, *(told[name] for name in COLUMNS))


@contextmanager
def bounded(database: sqlite3.Connection) -> Iterator[None]:
    """Hold a question to the present budget, in which SQLite's own work counts. InputError if it is spent.

    SQLite hides what a function raises, so that the budget is asked here.
    """
    budget = current()
    if budget is None:
        yield
        return

    def is_spent() -> bool:
        budget.left -= INSTRUCTIONS // PER_STEP
        return budget.is_spent

    database.set_progress_handler(is_spent, INSTRUCTIONS)
    try:
        yield
    except sqlite3.OperationalError:
        if budget.is_spent:
            raise budget.error() from None
        raise
    finally:
        database.set_progress_handler(None, INSTRUCTIONS)


def matching(
    database: sqlite3.Connection,
    expression: "Expression | None",
    pattern: str,
    limit: int | None = None,
    profiled: bool = False,
) -> Iterator[dict[str, Any]]:
    """The candidates that fit, by name, then version, then path; at most `limit`. The profile is None unless `profiled`."""
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
    *((name, json.loads) for name in JSON),
    *((name, bool) for name in FLAGS),
    ("profile", lambda profile: profile or None),
)
