"""Tables of the search index, and their update from the index files."""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onnxreg.registry.log import lookup
from onnxreg.registry.search import scan
from onnxreg.registry.search.listing import channels, newest
from onnxreg.registry.store.blobs import read_blob
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import HostError, IntegrityError, NotFoundError
from onnxreg.schema.core.version import Version
from onnxreg.schema.log.state import State, VersionEntry
from onnxreg.schema.log.summary import ArtifactSummary, FileSummary, VersionSummary

SCHEMA_VERSION = "4"
"""Increased if the meaning of a column changes."""

IDENTITY, INDEX = "registry.json", "index"

SCHEMA = (
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    # Marks of registry.json, index and the directories below it when they were read; see `scan.mark`.
    "CREATE TABLE places(path TEXT PRIMARY KEY, mark TEXT NOT NULL) WITHOUT ROWID",
    # `damage` is the reason why a model cannot be read; `whole`: `candidates` is complete as of `head`; 2: with profiles.
    """CREATE TABLE models(
        id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, place TEXT NOT NULL, mark TEXT NOT NULL,
        newest TEXT, versions INTEGER NOT NULL, channels TEXT NOT NULL, catalog TEXT, damage TEXT,
        head TEXT, whole INTEGER NOT NULL DEFAULT 0)""",
    "CREATE INDEX models_by_place ON models(place)",
    # The sealed versions are those of the catalog, the others those of the state line.
    """CREATE TABLE versions(
        model INTEGER NOT NULL REFERENCES models ON DELETE CASCADE, version TEXT NOT NULL, sealed INTEGER NOT NULL,
        manifest TEXT NOT NULL, size INTEGER NOT NULL, seq INTEGER NOT NULL,
        yanked INTEGER NOT NULL, pinned INTEGER NOT NULL, gone TEXT,
        PRIMARY KEY(model, version, sealed)) WITHOUT ROWID""",
    """CREATE VIEW present AS SELECT * FROM versions AS held WHERE gone IS NOT 'dropped' AND NOT (sealed AND EXISTS(
        SELECT 1 FROM versions AS later
        WHERE later.model = held.model AND later.version = held.version AND NOT later.sealed))""",
    # The versions that the state line summarises. The newest usable release has rank 0, and those of all models are
    # adjacent, since most queries are about them; versions that must be named exactly are below 0.
    """CREATE TABLE summaries(
        model INTEGER NOT NULL REFERENCES models ON DELETE CASCADE, rank INTEGER NOT NULL,
        version TEXT NOT NULL, manifest TEXT NOT NULL, task TEXT, family TEXT, license TEXT, files TEXT NOT NULL,
        PRIMARY KEY(rank, model)) WITHOUT ROWID""",
    "CREATE INDEX summaries_by_model ON summaries(model)",
    # The few combinations of format, precision and state of certification that artifacts have.
    """CREATE TABLE kinds(
        id INTEGER PRIMARY KEY, format TEXT NOT NULL, precision TEXT NOT NULL, state TEXT NOT NULL,
        UNIQUE(format, precision, state))""",
    """CREATE TABLE artifacts(
        model INTEGER NOT NULL REFERENCES models ON DELETE CASCADE, rank INTEGER NOT NULL, position INTEGER NOT NULL,
        kind INTEGER NOT NULL REFERENCES kinds, path TEXT NOT NULL, digest TEXT NOT NULL, size INTEGER NOT NULL, download_size INTEGER NOT NULL, opset INTEGER,
        ort_format INTEGER, operators TEXT, files TEXT NOT NULL, providers TEXT NOT NULL, recall TEXT NOT NULL,
        PRIMARY KEY(rank, model, position)) WITHOUT ROWID""",
    "CREATE INDEX artifacts_by_model ON artifacts(model)",
    "CREATE INDEX artifacts_by_kind ON artifacts(kind, model, rank)",
    # Every artifact of every version with files, with the fields of `expression/fields.py`; see `candidate_table`.
    # The profile is null if no manifest was read for it, and empty if the manifest has none.
    """CREATE TABLE candidates(
        model INTEGER NOT NULL REFERENCES models ON DELETE CASCADE, rank INTEGER NOT NULL, position INTEGER NOT NULL,
        version TEXT NOT NULL, manifest TEXT NOT NULL, channels TEXT NOT NULL,
        newest INTEGER NOT NULL, prerelease INTEGER NOT NULL, yanked INTEGER NOT NULL, pinned INTEGER NOT NULL,
        task TEXT, family TEXT, license TEXT, profile TEXT, format TEXT NOT NULL, precision TEXT NOT NULL, path TEXT NOT NULL,
        digest TEXT NOT NULL, size INTEGER NOT NULL, download_size INTEGER NOT NULL, state TEXT NOT NULL,
        certified INTEGER NOT NULL, opset INTEGER, ort_format INTEGER, providers TEXT NOT NULL, recall TEXT NOT NULL,
        min_recall REAL, metric TEXT NOT NULL, PRIMARY KEY(model, rank, position)) WITHOUT ROWID""",
)


def create(database: sqlite3.Connection, registry: str) -> None:
    """Create the empty tables."""
    with transaction(database):
        for statement in SCHEMA:
            database.execute(statement)
        meaning = {"registry": registry, "meaning": SCHEMA_VERSION}
        database.executemany("INSERT INTO meta VALUES(?, ?)", meaning.items())


def is_ours(database: sqlite3.Connection, registry: str) -> bool:
    """Check that the database has exactly these tables, of this schema version, for this registry."""
    statements = database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid")
    if [sql for (sql,) in statements] != list(SCHEMA):
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


def _mark(path: Path) -> str | None:
    status = scan.status_of(path)
    return None if status is None else scan.mark(status)


class _Update:
    """One transaction that reads again every file that changed before `now`."""

    def __init__(self, database: sqlite3.Connection, remote: DirectoryRegistry, now: int) -> None:
        self._database = database
        self._execute = database.execute
        self._remote = remote
        self._now = now

    def run(self) -> None:
        changed = stale(self._database, self._remote.root)
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
            self._forget(name)
        for name, model_mark in listing.models.items():
            if model_mark == scan.UNSETTLED or known_marks.get(name) != model_mark:
                self._read_model(name, path, model_mark)
        unsettled = self._execute("SELECT 1 FROM models WHERE place = ? AND mark = '' LIMIT 1", (path,))
        self._remember(path, mark and (scan.UNSETTLED if unsettled.fetchone() else mark))
        known_paths = {row[0] for row in self._execute("SELECT path FROM places")}
        for directory in sorted(f"{path}/{name}" for name in listing.directories):
            if directory not in known_paths:
                self._read_directory(directory)

    def _forget(self, name: str) -> None:
        self._execute("DELETE FROM models WHERE name = ?", (name,))

    def _read_model(self, name: str, path: str, mark: str) -> None:
        """Read one model. If it cannot be read or stored, record a damage, and try again at each update."""
        try:
            self._store(path, mark, lookup.read_state(self._remote, name))
        except (IntegrityError, NotFoundError, HostError) as error:
            self._damage(name, path, error.message)
        except (OverflowError, UnicodeEncodeError) as error:
            self._damage(name, path, f"the index of {name} cannot be listed: {error}")

    def _damage(self, name: str, path: str, message: str) -> None:
        self._forget(name)
        self._execute(
            "INSERT INTO models(name, place, mark, versions, channels, damage) VALUES(?, ?, ?, 0, '{}', ?)",
            (name, path, scan.UNSETTLED, message),
        )

    def _store(self, path: str, mark: str, state: State) -> None:
        model, catalog = self._model(state.name, path)
        sealed, head = _text(state.catalog), str(state.head)
        self._execute("DELETE FROM versions WHERE model = ? AND NOT sealed", (model,))
        self._insert("versions", (_version(model, v, e, False) for v, e in state.versions.items()))
        if sealed != catalog:
            self._execute("DELETE FROM versions WHERE model = ? AND sealed", (model,))
            self._insert("versions", (_version(model, v, e, True) for v, e in self._catalog(state).items()))
        self._summarise(model, state)
        self._execute(
            "UPDATE models SET mark = ?, newest = ?, channels = ?, catalog = ?, damage = NULL, "
            "versions = (SELECT count(*) FROM present WHERE model = ?), whole = whole AND head IS ?, head = ? "
            "WHERE id = ?",
            (mark, newest(state), json.dumps(channels(state)), sealed, model, head, head, model),
        )

    def _model(self, name: str, path: str) -> tuple[int, str | None]:
        """Get or create the row of a model; return its id and the digest of the catalog that was read for it."""
        row = self._execute("SELECT id, catalog FROM models WHERE name = ?", (name,)).fetchone()
        if row is not None:
            return row[0], row[1]
        cursor = self._execute(
            "INSERT INTO models(name, place, mark, versions, channels) VALUES(?, ?, '', 0, '{}')",
            (name, path),
        )
        return int(cursor.lastrowid or 0), None

    def _catalog(self, state: State) -> dict[Version, VersionEntry]:
        if state.catalog is None:
            return {}
        return lookup.read_catalog(read_blob(self._remote, state.catalog), state.name)

    def _insert(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        tuples = list(rows)
        if tuples:
            values = ", ".join("?" * len(tuples[0]))
            self._database.executemany(f"INSERT INTO {table} VALUES({values})", tuples)

    def _summarise(self, model: int, state: State) -> None:
        self._execute("DELETE FROM summaries WHERE model = ?", (model,))
        self._execute("DELETE FROM artifacts WHERE model = ?", (model,))
        for rank, version in self._ranked(model, state):
            summary = lookup.held_summary(state, version)
            if summary is not None:
                document = state.summaries[str(version)]
                self._insert("summaries", [_summary(model, rank, version, summary, document)])
                artifact_paths = state.versions[version].held if version in state.versions else None
                rows = [(item, size, self._kind(item)) for item, size in summary.downloads(artifact_paths)]
                artifacts = (
                    (model, rank, position, kind, *_artifact(item, size))
                    for position, (item, size, kind) in enumerate(rows)
                )
                self._insert("artifacts", artifacts)

    def _kind(self, artifact: ArtifactSummary) -> int:
        kind = (artifact.format, artifact.precision, artifact.state)
        self._execute("INSERT OR IGNORE INTO kinds(format, precision, state) VALUES(?, ?, ?)", kind)
        sql = "SELECT id FROM kinds WHERE format = ? AND precision = ? AND state = ?"
        return int(self._execute(sql, kind).fetchone()[0])

    def _ranked(self, model: int, state: State) -> Iterator[tuple[int, Version]]:
        """Rank the summarised versions: usable releases from rank 0 up, newest first; the others below 0."""
        versions = list(state.summaries)
        present_rows = self._execute(
            f"SELECT version, seq, manifest, yanked OR gone IS NOT NULL FROM present "
            f"WHERE model = ? AND version IN ({', '.join('?' * len(versions))})",
            (model, *versions),
        ).fetchall()
        rows = [(Version.parse(version), *columns) for version, *columns in present_rows]
        releases = [(v, seq) for v, seq, _, unusable in rows if not (unusable or v.is_prerelease)]
        others = sorted({row[0] for row in rows} - {version for version, _ in releases})
        releases.sort(key=lambda item: (item[0].precedence, item[1]), reverse=True)
        yield from enumerate((version for version, _ in releases), start=0)
        yield from ((-1 - position, version) for position, version in enumerate(others))


def _version(model: int, version: Version, entry: VersionEntry, sealed: bool) -> tuple[Any, ...]:
    gone = None if entry.gone is None else entry.gone.how
    facts = (str(entry.manifest), entry.size, entry.seq, entry.yanked, entry.pinned, gone)
    return (model, str(version), sealed, *facts)


def _summary(
    model: int, rank: int, version: Version, summary: VersionSummary, document: dict[str, Any]
) -> tuple[Any, ...]:
    about = (
        value if isinstance(value := document.get(key), str) else None
        for key in ("task", "family", "license")
    )
    return (model, rank, str(version), str(summary.manifest), *about, _files(summary.files))


def _artifact(artifact: ArtifactSummary, download_size: int) -> tuple[Any, ...]:
    return (
        *(artifact.path, str(artifact.digest), artifact.size, download_size),
        *(artifact.opset, artifact.ort_format, _text(artifact.operators), _files(artifact.files)),
        *(json.dumps(artifact.providers), json.dumps(artifact.recall)),
    )


def _text(digest: Digest | None) -> str | None:
    return None if digest is None else str(digest)


def _files(files: Iterable[FileSummary]) -> str:
    return json.dumps(
        [{"role": f.role, "path": f.path, "digest": str(f.digest), "size": f.size} for f in files]
    )
