"""Search index: queries over all models of a local registry, in a SQLite file that may be deleted at any
time.

`local/search.sqlite` has the content of the index files, and nothing else. It is updated before each answer:
by one stat for each directory, and by reading the index files that changed. If it is missing, damaged, of
another build or of another registry, it is created again; if it cannot be written (a read-only directory, a
full disk, a long lock of another process), the same happens in memory. So it can make an answer slow, but not
wrong.

Operations on one model never use it.
"""

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from onnxreg.registry.search import db, shards
from onnxreg.registry.search.listing import ModelListing
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.schema.core.errors import RegError
from onnxreg.schema.core.progress import SILENT, Progress

if TYPE_CHECKING:
    from onnxreg.registry.search.release_table import Facets, ModelFilter, ModelRow
    from onnxreg.schema.query.expression.parser import Expression

FILE = "local/search.sqlite"
LOCK_TIMEOUT_SECONDS = 10.0
"""Time to wait for another process that changes the file."""

Answer = TypeVar("Answer")
Revision = tuple[int, int]
"""The times a database was opened, and SQLite's counter of changes by other processes."""
FAILURES = (sqlite3.Error, RegError, OSError)


@dataclass(frozen=True, slots=True)
class ArtifactKind:
    """Conditions on an artifact: one of these formats (none: any), this precision, certified."""

    formats: tuple[str, ...] = ()
    precision: str | None = None
    certified: bool = False

    def condition(self) -> tuple[str, list[str]]:
        """SQL on the columns of `kinds`, and its parameters."""
        terms, values = ["TRUE"], list(self.formats)
        if self.formats:
            terms.append(f"format IN ({', '.join('?' * len(self.formats))})")
        if self.precision is not None:
            terms.append("precision = ?")
            values.append(self.precision)
        if self.certified:
            terms.append("state = 'certified'")
        return " AND ".join(terms), values


class ArtifactMatch(NamedTuple):
    """A matching artifact; sizes in bytes, `download_size` includes all files that it needs."""

    format: str
    precision: str
    path: str
    digest: str
    size: int
    download_size: int
    state: str


class Match(NamedTuple):
    """A model, and the matching artifacts of its newest summarised release that has any."""

    model: ModelListing
    version: str
    manifest: str
    artifacts: tuple[ArtifactMatch, ...]


class SearchIndex:
    """The content of a registry's index files, read at creation and at each `refresh`."""

    def __init__(self, remote: DirectoryRegistry) -> None:
        self._remote = remote
        self._file = remote.root / FILE
        self._database: sqlite3.Connection | None = None
        self._openings = 0
        self.refresh()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def refresh(self) -> None:
        """Bring the index up to date with the index files. HostError if these cannot be listed."""
        if not self._is_current():
            self._try(self._updated_file, self._updated_copy, self._new_file, self._new_in_memory)

    def _is_current(self) -> bool:
        """Check if the open database is up to date. Costs one stat for each directory."""
        with suppress(*FAILURES):
            return self._database is not None and not db.stale(self._database, self._remote.root)
        return False

    @property
    def revision(self) -> Revision:
        """A value that changes if `models` or `damages` change."""
        return self._openings, self._answer(lambda database: _single(database, "PRAGMA data_version"))

    def models(self, pattern: str = "*") -> list[ModelListing]:
        """The models whose name fits a shell pattern, by name; damaged ones are in `damages` instead."""
        return self._answer(lambda database: select_models(database, pattern))

    def find_models(
        self, question: "ModelFilter", after: str = "", limit: int = -1
    ) -> tuple[list["ModelRow"], int]:
        """The models that fit, by name: the first ones after a name, and the number of all."""
        from onnxreg.registry.search import release_table

        return self._answer(
            lambda database: release_table.find(database, self._remote, question, after, limit)
        )

    def facets(self) -> "Facets":
        """The values of the filters of models."""
        from onnxreg.registry.search import release_table

        return self._answer(release_table.facets)

    def matches(self, kind: ArtifactKind, pattern: str = "*") -> list[Match]:
        """The models that have artifacts of a kind, by name.

        Only versions in the summary of the index file count (the newest four releases and the holders of
        channels), without pre-releases and versions that are yanked or gone.
        """
        return self._answer(lambda database: _matches(database, kind, pattern))

    def query(
        self,
        expression: "Expression | None",
        pattern: str,
        take: Callable[[Iterator[dict[str, Any]]], Answer],
        progress: Progress = SILENT,
        limit: int | None = None,
        profiled: bool = False,
    ) -> tuple[Answer, list[str]]:
        """Pass the candidates that fit to `take`, by name, version and path; return its result and the
        damages of others.

        The profile is None unless the expression uses it, or `profiled`: this reads every manifest.
        With a `limit`, `take` gets at most that many, and memory does not grow with the others.

        Every version whose files are here counts; the expression None fits all. `take` may be called a second
        time. `progress` gets the steps of long work: reading manifests that were not read before.
        """
        from onnxreg.registry.search import candidate_table

        with_profiles = profiled or (expression is not None and "profile" in expression.fields())

        def ask(database: sqlite3.Connection) -> tuple[Answer, list[str]]:
            damages = candidate_table.fill(database, self._remote, pattern, progress, with_profiles)
            with candidate_table.bounded(database):
                answer = take(candidate_table.matching(database, expression, pattern, limit, with_profiles))
            return answer, select_damages(database, pattern) + damages

        return self._answer(ask)

    def damages(self, pattern: str = "*") -> list[str]:
        """Errors of the models that cannot be listed; each message names its model."""
        return self._answer(lambda database: select_damages(database, pattern))

    def _answer(self, ask: Callable[[sqlite3.Connection], Answer]) -> Answer:
        """Run a query; if the file is damaged, create it again and run the query once more."""
        if self._database is None:
            self.refresh()
        assert self._database is not None
        try:
            return ask(self._database)
        except (sqlite3.Error, ValueError, TypeError):
            self._try(self._new_file, self._new_in_memory)
        return ask(self._database)

    def _try(self, *ways: Callable[[], sqlite3.Connection]) -> None:
        """Use the first way that gives a database; raise the error of the last way."""
        self.close()
        self._openings += 1
        for way in ways[:-1]:
            with suppress(*FAILURES):
                self._database = way()
                return
        self._database = ways[-1]()

    def _updated_file(self) -> sqlite3.Connection:
        with opened(self._connect()) as database:
            db.update(database, self._remote, self._file)
        return database

    def _updated_copy(self) -> sqlite3.Connection:
        """In memory; the file stays as it is. The lock on it is taken first, since `backup` would wait
        forever.
        """
        with opened(_connect(":memory:")) as copy:
            with opened(self._connect(), keep=False) as database:
                database.execute("BEGIN")
                database.execute("SELECT 1 FROM meta").fetchone()
                database.backup(copy)
            db.update(copy, self._remote, None)
        return copy

    def _new_file(self) -> sqlite3.Connection:
        """Create the file aside and rename it when complete; an earlier journal must not be applied to it."""
        with self._remote.staging() as directory:
            aside = directory / "search.sqlite"
            with opened(_connect(aside), keep=False) as database:
                database.execute("PRAGMA synchronous = OFF")
                self._fill(database, aside)
            self._remote.disk.sync_file(aside)
            for beside in self._files()[1:]:
                beside.unlink(missing_ok=True)
            aside.replace(self._file)
        return self._connect()

    def _new_in_memory(self) -> sqlite3.Connection:
        with opened(_connect(":memory:")) as database:
            self._fill(database, None)
        return database

    def _fill(self, database: sqlite3.Connection, file: Path | None) -> None:
        db.create(database, self._remote.registry_id)
        database.execute("PRAGMA foreign_keys = OFF")
        shards.load(database, self._remote, file)
        database.execute("PRAGMA foreign_keys = ON")
        db.create_indexes(database)
        db.update(database, self._remote, file)

    def _connect(self) -> sqlite3.Connection:
        """Open the file. sqlite3.Error if it does not exist or does not fit this build and registry."""
        if self._file.parent.is_symlink() or any(_is_special(path) for path in self._files()):
            raise sqlite3.DatabaseError("it is a link or a pipe, which somebody else may have put there")
        with opened(_connect(f"{self._file.absolute().as_uri()}?mode=rw")) as database:
            if not db.is_ours(database, self._remote.registry_id):
                raise sqlite3.DatabaseError("it is of another build or of another registry")
        return database

    def _files(self) -> list[Path]:
        """The file, and the files that SQLite may keep beside it."""
        return [self._file.with_name(self._file.name + suffix) for suffix in ("", "-journal", "-wal", "-shm")]


def _is_special(path: Path) -> bool:
    """Check if a path is something other than a file: a link leads elsewhere, a pipe never ends."""
    return os.path.lexists(path) and (path.is_symlink() or not path.is_file())


@contextmanager
def opened(database: sqlite3.Connection, keep: bool = True) -> Iterator[sqlite3.Connection]:
    """Close the database after an error; without `keep`, always."""
    try:
        yield database
    except BaseException:
        database.close()
        raise
    if not keep:
        database.close()


def _connect(database: Path | str) -> sqlite3.Connection:
    connection = sqlite3.connect(database, timeout=LOCK_TIMEOUT_SECONDS, isolation_level=None, uri=True)
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cache_size = -65536")
    connection.execute("PRAGMA temp_store = MEMORY")
    return connection


def _single(database: sqlite3.Connection, sql: str) -> int:
    return int(database.execute(sql).fetchone()[0])


def _model(name: str, newest: str | None, versions: int, channels: str) -> ModelListing:
    return ModelListing(name, newest, versions, json.loads(channels))


def select_models(database: sqlite3.Connection, pattern: str) -> list[ModelListing]:
    """The models whose name fits a shell pattern, by name."""
    rows = database.execute(
        "SELECT name, newest, versions, channels FROM models WHERE damage IS NULL ORDER BY name"
    )
    return [_model(*row) for row in rows if pattern == "*" or fnmatchcase(row[0], pattern)]


def select_damages(database: sqlite3.Connection, pattern: str) -> list[str]:
    """The reasons why models cannot be listed."""
    rows = database.execute("SELECT name, damage FROM models WHERE damage IS NOT NULL ORDER BY name")
    return [str(damage) for name, damage in rows if fnmatchcase(name, pattern)]


def _matches(database: sqlite3.Connection, kind: ArtifactKind, pattern: str) -> list[Match]:
    condition, values = kind.condition()
    rows = database.execute(
        f"""WITH wanted AS (SELECT id FROM kinds WHERE {condition})
            SELECT name, position, newest, versions, channels, version, manifest,
                   format, precision, path, digest, size, download_size, state
            FROM (SELECT model, min(rank) AS rank FROM artifacts WHERE kind IN wanted AND rank >= 0 GROUP BY model)
                 CROSS JOIN models ON models.id = model CROSS JOIN summaries USING (model, rank)
                 CROSS JOIN artifacts USING (model, rank) CROSS JOIN kinds ON kinds.id = kind
            WHERE kind IN wanted""",
        values,
    )
    fitting = sorted(row for row in rows if pattern == "*" or fnmatchcase(row[0], pattern))
    matches = []
    for name, group in groupby(fitting, key=itemgetter(0)):
        (_, _, newest, versions, channels, version, manifest, *_), *_ = parts = list(group)
        model = _model(name, newest, versions, channels)
        matches.append(Match(model, version, manifest, tuple(ArtifactMatch._make(row[7:]) for row in parts)))
    return matches
