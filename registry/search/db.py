"""Tables of the search index, and their update from the index files."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from onnxreg.registry.search import scan
from onnxreg.registry.search.model_tables import ModelTables
from onnxreg.registry.store.directory.directory import DirectoryRegistry

SCHEMA_VERSION = "6"
"""Increased if the meaning of a column changes."""

IDENTITY, INDEX = "registry.json", "index"

CANDIDATES = """CREATE TABLE candidates(
        model INTEGER NOT NULL REFERENCES models ON DELETE CASCADE, rank INTEGER NOT NULL, position INTEGER NOT NULL,
        version TEXT NOT NULL, manifest TEXT NOT NULL, channels TEXT NOT NULL,
        newest INTEGER NOT NULL, prerelease INTEGER NOT NULL, yanked INTEGER NOT NULL, pinned INTEGER NOT NULL,
        task TEXT, family TEXT, license TEXT, profile TEXT, format TEXT NOT NULL, precision TEXT NOT NULL, path TEXT NOT NULL,
        digest TEXT NOT NULL, size INTEGER NOT NULL, download_size INTEGER NOT NULL, state TEXT NOT NULL,
        certified INTEGER NOT NULL, opset INTEGER, ort_format INTEGER, providers TEXT NOT NULL, recall TEXT NOT NULL,
        min_recall REAL, metric TEXT NOT NULL, PRIMARY KEY(model, rank, position)) WITHOUT ROWID"""
"""Every artifact of every version with files, with the fields of `expression/fields.py`; see `candidate_table`.

The profile is null if no manifest was read for it, and empty if the manifest has none.
"""
SCHEMA = (
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    # Marks of registry.json, index and the directories below it when they were read; see `scan.mark`.
    "CREATE TABLE places(path TEXT PRIMARY KEY, mark TEXT NOT NULL) WITHOUT ROWID",
    # `sealed`: the versions of the catalog. `damage`: the reason why a model cannot be read; `whole`: `candidates` is complete as of `head`; 2: with profiles.
    """CREATE TABLE models(
        id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, place TEXT NOT NULL, mark TEXT NOT NULL,
        newest TEXT, versions INTEGER NOT NULL, channels TEXT NOT NULL, catalog TEXT, sealed TEXT, damage TEXT,
        head TEXT, whole INTEGER NOT NULL DEFAULT 0)""",
    # The versions that the state line summarises. The newest usable release has rank 0, and those of all models are
    # adjacent, since most queries are about them; versions that must be named exactly are below 0.
    """CREATE TABLE summaries(
        model INTEGER NOT NULL REFERENCES models ON DELETE CASCADE, rank INTEGER NOT NULL,
        version TEXT NOT NULL, manifest TEXT NOT NULL, task TEXT, family TEXT, license TEXT, total_size INTEGER NOT NULL,
        PRIMARY KEY(rank, model)) WITHOUT ROWID""",
    # What only the manifest and the log say of the newest releases that were read; see `release_table`.
    """CREATE TABLE releases(
        model INTEGER PRIMARY KEY REFERENCES models ON DELETE CASCADE, version TEXT NOT NULL, manifest TEXT NOT NULL,
        published TEXT NOT NULL, description TEXT, words TEXT NOT NULL)""",
    # The few combinations of format, precision and state of certification that artifacts have.
    """CREATE TABLE kinds(
        id INTEGER PRIMARY KEY, format TEXT NOT NULL, precision TEXT NOT NULL, state TEXT NOT NULL,
        UNIQUE(format, precision, state))""",
    """CREATE TABLE artifacts(
        model INTEGER NOT NULL REFERENCES models ON DELETE CASCADE, rank INTEGER NOT NULL, position INTEGER NOT NULL,
        kind INTEGER NOT NULL REFERENCES kinds, path TEXT NOT NULL, digest TEXT NOT NULL,
        size INTEGER NOT NULL, download_size INTEGER NOT NULL, PRIMARY KEY(rank, model, position)) WITHOUT ROWID""",
    CANDIDATES,
)
INDEXES = (
    "CREATE INDEX models_by_place ON models(place)",
    "CREATE INDEX summaries_by_model ON summaries(model)",
    "CREATE INDEX artifacts_by_model ON artifacts(model)",
    "CREATE INDEX artifacts_by_kind ON artifacts(kind, model, rank)",
)
"""Made when the first rows are there: SQLite sorts them faster than it inserts them one by one."""


def create(database: sqlite3.Connection, registry: str) -> None:
    """Create the empty tables, without `INDEXES`."""
    with transaction(database):
        for statement in SCHEMA:
            database.execute(statement)
        meaning = {"registry": registry, "meaning": SCHEMA_VERSION}
        database.executemany("INSERT INTO meta VALUES(?, ?)", meaning.items())


def create_indexes(database: sqlite3.Connection) -> None:
    with transaction(database):
        for statement in INDEXES:
            database.execute(statement)


def is_ours(database: sqlite3.Connection, registry: str) -> bool:
    """Check that the database has exactly these tables, of this schema version, for this registry."""
    statements = database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid")
    if [sql for (sql,) in statements] != [*SCHEMA, *INDEXES]:
        return False
    return dict(database.execute("SELECT * FROM meta")) == {"registry": registry, "meaning": SCHEMA_VERSION}


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Run a block as one transaction; waits for other writers."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        database.rollback()
        raise
    database.commit()


def update(database: sqlite3.Connection, remote: DirectoryRegistry, file: Path | None) -> None:
    """Bring the tables up to date. `file`: the path of the database, None if it is in memory."""
    if stale(database, remote.root):
        now = scan.clock(file)
        with transaction(database):
            _Update(database, remote, now).run()


def stale(database: sqlite3.Connection, root: Path) -> set[str]:
    """Paths that may have changed: all of them if `registry.json` did, since the tree may then be another
    copy.
    """
    rows = database.execute("SELECT path, mark FROM places")
    marks: dict[str, str | None] = {IDENTITY: scan.UNSETTLED, INDEX: None, **dict(rows)}
    changed = {path for path, mark in marks.items() if _mark(root / path) != mark}
    return set(marks) if IDENTITY in changed else changed


def remember(database: sqlite3.Connection, marks: Mapping[str, str], models: int) -> None:
    """Record paths that were listed, with their marks before, if the tables have all of so many models.

    A directory with a damaged model is read again at each update.
    """
    with transaction(database):
        (stored,) = database.execute("SELECT count(*) FROM models").fetchone()
        if stored == models:
            database.executemany("INSERT INTO places VALUES(?, ?)", marks.items())
            database.execute(
                "UPDATE places SET mark = '' WHERE path IN (SELECT place FROM models WHERE mark = '')"
            )


def _mark(path: Path) -> str | None:
    status = scan.status_of(path)
    return None if status is None else scan.mark(status)


class _Update:
    """One transaction that reads again every file that changed before `now`."""

    def __init__(self, database: sqlite3.Connection, remote: DirectoryRegistry, now: int) -> None:
        self._execute = database.execute
        self._remote = remote
        self._now = now
        self._models = ModelTables(database, remote)

    def run(self) -> None:
        changed = stale(self._models.database, self._remote.root)
        if IDENTITY in changed:
            self._remember(IDENTITY, self._mark(IDENTITY))
        for path in sorted(changed - {IDENTITY}):
            self._read_directory(path)

    def _mark(self, path: str) -> str | None:
        status = scan.status_of(self._remote.root / path)
        return None if status is None else scan.settled_mark(status, self._now)

    def _remember(self, path: str, mark: str | None) -> None:
        self._execute("DELETE FROM places WHERE path = ?", (path,))
        if mark is not None:
            self._execute("INSERT INTO places VALUES(?, ?)", (path, mark))

    def _read_directory(self, path: str) -> None:
        """Read the models of a changed directory, and its new directories."""
        mark = self._mark(path)
        listing = scan.scan(self._remote.root, path, self._now)
        known_marks = dict(self._execute("SELECT name, mark FROM models WHERE place = ?", (path,)))
        for name in known_marks.keys() - listing.models.keys():
            self._models.forget(name)
        for name, model_mark in listing.models.items():
            if model_mark == scan.UNSETTLED or known_marks.get(name) != model_mark:
                self._models.read(name, path, model_mark)
        unsettled = self._execute("SELECT 1 FROM models WHERE place = ? AND mark = '' LIMIT 1", (path,))
        self._remember(path, mark and (scan.UNSETTLED if unsettled.fetchone() else mark))
        known_paths = {row[0] for row in self._execute("SELECT path FROM places")}
        for directory in sorted(f"{path}/{name}" for name in listing.directories):
            if directory not in known_paths:
                self._read_directory(directory)
