"""Tables of the search index, their update from the index files, and the rows of one model in them."""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from onnxreg.registry.log import lookup
from onnxreg.registry.log.lookup import read_blob
from onnxreg.registry.search import scan
from onnxreg.registry.search.listing import channels, newest, total_size
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import HostError, IntegrityError, NotFoundError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.state import State, VersionEntry

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
UPSERT = (
    "INSERT INTO models(id, name, place, mark, newest, versions, channels, catalog, sealed, damage, head) "
    "VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(id) DO UPDATE SET mark = excluded.mark, "
    "newest = excluded.newest, versions = excluded.versions, channels = excluded.channels, "
    "catalog = excluded.catalog, sealed = excluded.sealed, damage = NULL, "
    "whole = whole AND head IS excluded.head, head = excluded.head"
)
Row = tuple[Any, ...]


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


class ModelRows(NamedTuple):
    """One model: the columns of `models` but its number, and its rows in `summaries` and `artifacts` without it.

    `kind` of an artifact is (format, precision, state). Only values that `marshal` writes.
    """

    name: str
    directory: str
    mark: str
    newest: str | None
    versions: int
    channels: str
    catalog: str | None
    sealed: str | None
    damage: str | None
    head: str | None
    summaries: list[Row]
    artifacts: list[Row]


class ModelTables:
    """Writer of the tables `models`, `summaries`, `kinds` and `artifacts`, in the caller's
    transaction.
    """

    def __init__(self, database: sqlite3.Connection, remote: DirectoryRegistry) -> None:
        self.database = database
        self._execute = database.execute
        self._remote = remote
        self._kinds: dict[Row, int] = {}

    def read(self, name: str, directory: str, mark: str) -> None:
        """Read one model. If it cannot be read or stored, record a damage, and try again at each update."""
        row = self._execute("SELECT id, catalog, sealed FROM models WHERE name = ?", (name,)).fetchone()
        number, catalog, sealed = row or (None, "", "")
        rows = read_rows(self._remote, name, directory, mark, {catalog: sealed})
        try:
            self._store(number, rows)
        except (OverflowError, UnicodeEncodeError) as error:
            message = f"the index of {name} cannot be listed: {error}"
            self._store(None, damaged(name, directory, message))

    def forget(self, name: str) -> None:
        self._execute("DELETE FROM models WHERE name = ?", (name,))

    def add(self, models: Iterable[ModelRows]) -> None:
        """Write models that the tables do not have yet."""
        (last,) = self._execute("SELECT coalesce(max(id), 0) FROM models").fetchone()
        self._insert(list(enumerate(models, last + 1)))

    def _store(self, number: int | None, rows: ModelRows) -> None:
        """Write one model; its number stays, unless it is damaged."""
        if number is None or rows.damage is not None:
            self.forget(rows.name)
            self.add([rows])
            return
        self._execute("DELETE FROM summaries WHERE model = ?", (number,))
        self._execute("DELETE FROM artifacts WHERE model = ?", (number,))
        self._insert([(number, rows)])

    def _insert(self, models: Sequence[tuple[int, ModelRows]]) -> None:
        """Write rows in the order of the tables' keys, which is the fastest."""
        self.database.executemany(UPSERT, ((number, *rows[:-2]) for number, rows in models))
        summaries = [(number, *row) for number, rows in models for row in rows.summaries]
        artifacts = [
            (number, rank, position, self._kind(kind), *more)
            for number, rows in models
            for rank, position, kind, *more in rows.artifacts
        ]
        for table, rows in (("summaries", summaries), ("artifacts", artifacts)):
            if rows:
                rows.sort(key=itemgetter(1, 0))
                values = ", ".join("?" * len(rows[0]))
                self.database.executemany(f"INSERT INTO {table} VALUES({values})", rows)

    def _kind(self, kind: Row) -> int:
        if kind not in self._kinds:
            self._execute("INSERT OR IGNORE INTO kinds(format, precision, state) VALUES(?, ?, ?)", kind)
            sql = "SELECT id FROM kinds WHERE format = ? AND precision = ? AND state = ?"
            self._kinds[kind] = int(self._execute(sql, kind).fetchone()[0])
        return self._kinds[kind]


def read_rows(
    remote: DirectoryRegistry, name: str, directory: str, mark: str, sealed: Mapping[str, str] = {}
) -> ModelRows:
    """The rows of one model; a damage if it cannot be read, which is tried again at each update.

    `sealed`: the versions of a catalog that was read before.
    """
    try:
        return _rows(remote, directory, mark, lookup.state_of(remote, name, remote.read_index(name)), sealed)
    except (IntegrityError, NotFoundError, HostError) as error:
        return damaged(name, directory, error.message)


def damaged(name: str, directory: str, message: str) -> ModelRows:
    """The rows of a model that cannot be read."""
    return ModelRows(name, directory, scan.UNSETTLED, None, 0, "{}", None, None, message, None, [], [])


def _rows(
    remote: DirectoryRegistry, directory: str, mark: str, state: State, catalogs: Mapping[str, str]
) -> ModelRows:
    catalog = _text(state.catalog)
    sealed = "[]" if catalog is None else catalogs.get(catalog) or _sealed(remote, state, state.catalog)
    versions = sum([not entry.dropped for entry in state.versions.values()])
    older = [] if catalog is None else json.loads(sealed)
    versions += sum([Version.parse(text) not in state.versions for text in older])
    summaries: list[Row] = []
    artifacts: list[Row] = []
    for rank, version, entry in _ranked(state):
        summary = lookup.held_summary(state, version)
        if summary is not None:
            held_paths = entry.held
            about = (summary.task, summary.family, summary.license, total_size(summary, held_paths))
            summaries.append((rank, str(version), str(summary.manifest), *about))
            artifacts += (
                (
                    rank,
                    position,
                    (item.format, item.precision, item.state),
                    item.path,
                    str(item.digest),
                    item.size,
                    size,
                )
                for position, (item, size) in enumerate(summary.downloads(held_paths))
            )
    return ModelRows(
        *(state.name, directory, mark, newest(state), versions, json.dumps(channels(state))),
        *(catalog, sealed, None, str(state.head), summaries, artifacts),
    )


def _sealed(remote: DirectoryRegistry, state: State, catalog: Digest | None) -> str:
    """The versions of the catalog that were not dropped, as JSON."""
    assert catalog is not None
    entries = lookup.read_catalog(read_blob(remote, catalog), state.name)
    return json.dumps([str(version) for version, entry in entries.items() if not entry.dropped])


def _ranked(state: State) -> Iterator[tuple[int, Version, VersionEntry]]:
    """Rank the summarised versions: usable releases from rank 0 up, newest first; the others below 0."""
    releases: list[tuple[Version, VersionEntry]] = []
    others: list[tuple[Version, VersionEntry]] = []
    for version in map(Version.parse, filter(Version.is_version, state.summaries)):
        entry = state.versions.get(version)
        if entry is not None and not entry.dropped:
            part = releases if entry.usable and not version.is_prerelease else others
            part.append((version, entry))
    releases.sort(key=lambda release: (release[0].precedence, release[1].seq), reverse=True)
    yield from ((rank, *release) for rank, release in enumerate(releases))
    yield from ((-1 - position, *other) for position, other in enumerate(sorted(others, key=itemgetter(0))))


def _text(digest: Digest | None) -> str | None:
    return None if digest is None else str(digest)
