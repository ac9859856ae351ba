"""The job that publishes the snapshot of a registry. It reads only the index files that changed since the last one.

A store that lists its files with tokens (a directory, S3, the Hub) says which ones changed; from other stores all
are read. Manifests never change: those in the last snapshot are not read again.
"""

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from onnxreg.registry.search import candidate_table, candidates, db, scan, search_index, table_export
from onnxreg.registry.search.candidates import ModelCandidates
from onnxreg.registry.search.snapshot import (
    FORMAT,
    FORMAT_VERSION,
    SCHEMA,
    LaterFormatError,
    SearchSnapshot,
    SnapshotError,
    fetch,
    pack,
)
from onnxreg.registry.store.directory.scratch import temporary
from onnxreg.registry.store.layout import SNAPSHOT, SNAPSHOT_TABLE, UPGRADE
from onnxreg.registry.store.protocol import (
    MAX_DOCUMENT_BYTES,
    IndexLister,
    LocalStore,
    PathStore,
    RegistryStore,
    innermost,
)
from onnxreg.registry.support.actor import TIME_FORMAT
from onnxreg.registry.support.disk import host_errors
from onnxreg.schema.core.errors import HostError, InputError, LostRaceError
from onnxreg.schema.core.progress import SILENT, Progress


class SnapshotPublication(NamedTuple):
    """The snapshot after a run: its time, models and artifacts, the models that `changed`, what cannot be read.

    `size` is in bytes, None if nothing was written.
    """

    time: str
    models: int
    artifacts: int
    changed: int
    size: int | None
    damages: list[str]


def publish(
    store: RegistryStore,
    copy: Path | None,
    if_changed: bool = False,
    table: bool = False,
    progress: Progress = SILENT,
) -> SnapshotPublication:
    """Publish the snapshot of a registry; with `if_changed` only if a model changed since the last one.

    `copy` is the file of this machine's copy of the last one, None if nothing can be kept. `table` also writes the
    Parquet file, that of the last snapshot if no model changed. InputError for a mirror, or a place that is only read;
    LostRaceError if another run was faster.
    """
    files = innermost(store)
    if store.is_mirror:
        raise InputError(f"{store.url} is a mirror", "publish at the registry; a mirror carries its snapshot")
    if not isinstance(files, PathStore):
        raise InputError(f"{store.url} is only read", "publish where the registry is written")
    if table:
        table_export.check_file(Path(Path(SNAPSHOT_TABLE).name))
    with ExitStack() as stack, host_errors("making a temporary directory"), _database_errors(store):
        file = stack.enter_context(temporary()) / "snapshot.sqlite"
        last = _last(store, copy, stack)
        update = _Update(store, file, last, progress)
        is_changed = update.run() if not if_changed or last is None or update.is_due else False
        table_file = file.with_suffix(".parquet")
        if if_changed and last is not None and not is_changed:
            if table:
                files.write_files({SNAPSHOT_TABLE: _table(last, table_file)})
            return _publication(last, 0, None)
        data = pack(file)
        if len(data) > MAX_DOCUMENT_BYTES:
            raise InputError(
                f"the snapshot has {len(data):,} bytes, readers take at most {MAX_DOCUMENT_BYTES:,}",
                "split the registry by organisation",
            )
        with SearchSnapshot(file, store.registry_id) as snapshot:
            if not files.swap_file(SNAPSHOT, data, _token(files, last)):
                raise LostRaceError("another run published a snapshot meanwhile", "run one job")
            if table:
                files.write_files({SNAPSHOT_TABLE: _table(snapshot, table_file)})
            return _publication(snapshot, update.changed, len(data))


@contextmanager
def _database_errors(store: RegistryStore) -> Iterator[None]:
    """HostError if the tables cannot be read or written."""
    try:
        yield
    except sqlite3.Error as error:
        hint = f"is the disk full? If not, remove {SNAPSHOT} there, which is made anew"
        raise HostError(f"making the snapshot of {store.url} failed: {error}", hint) from error


def _last(store: RegistryStore, copy: Path | None, stack: ExitStack) -> SearchSnapshot | None:
    """The snapshot that is there; None if there is none, or a damaged one. HostError for one of a later format."""
    try:
        return stack.enter_context(fetch(store, copy))
    except LaterFormatError as error:
        raise HostError(f"the snapshot of {store.url} {error}", UPGRADE) from error
    except SnapshotError:
        return None


def _token(files: PathStore, last: SearchSnapshot | None) -> str | None:
    """The token of the file that is replaced."""
    if last is not None:
        return last.token
    damaged = files.read_file(SNAPSHOT)
    return damaged[1] if damaged else None


def _table(snapshot: SearchSnapshot, file: Path) -> bytes:
    snapshot.query(None, "*", lambda rows: table_export.write(file, rows))
    return file.read_bytes()


def _publication(snapshot: SearchSnapshot, changed: int, size: int | None) -> SnapshotPublication:
    (models,), (artifacts,) = (
        snapshot.database.execute(f"SELECT count(*) FROM {table}").fetchone()
        for table in ("models", "candidates")
    )
    return SnapshotPublication(snapshot.time, models, artifacts, changed, size, snapshot.damages("*"))


class _Update:
    """The tables of a new snapshot: the rows of the last one, but for the models that changed."""

    def __init__(
        self, store: RegistryStore, file: Path, last: SearchSnapshot | None, progress: Progress
    ) -> None:
        self._store = store
        self._file = file
        self._last = last
        self._progress = progress
        self._tokens = _index_tokens(store)
        tokens = last.tokens() if last else {}
        self._gone = tokens.keys() - self._tokens.keys()
        self._stale = sorted(
            name for name, token in self._tokens.items() if not token or tokens.get(name) != token
        )
        self.changed = 0

    @property
    def is_due(self) -> bool:
        """True if a model may have changed."""
        return bool(self._gone or self._stale)

    def run(self) -> bool:
        """Write the tables; True if a model changed."""
        database = sqlite3.connect(self._file, isolation_level=None)
        with search_index.opened(database, keep=False):
            database.execute("PRAGMA journal_mode = OFF")
            database.execute("PRAGMA synchronous = OFF")
            with db.transaction(database):
                self._create(database)
            if self._last is not None:
                self._copy(database, self._last)
            for batch in candidates.batches(self._stale, self._progress):
                contents = dict(
                    item
                    for name in batch
                    if self._last
                    for item in candidate_table.read_contents(self._last.database, name, True)
                )
                models = candidates.read(self._store, batch, contents, candidates.MANIFEST_FIELDS)
                with db.transaction(database):
                    for model in models:
                        self._insert(database, model)
        self.changed += len(self._gone)
        return self.changed > 0

    def _create(self, database: sqlite3.Connection) -> None:
        for statement in SCHEMA:
            database.execute(statement)
        meta = {"format": FORMAT, "format_version": FORMAT_VERSION, "registry": self._store.registry_id}
        meta["time"] = datetime.now(UTC).strftime(TIME_FORMAT)
        database.executemany("INSERT INTO meta VALUES(?, ?)", meta.items())

    def _copy(self, database: sqlite3.Connection, last: SearchSnapshot) -> None:
        """Copy the rows of the models that did not change."""
        database.execute("ATTACH ? AS last", (str(last.file),))
        with db.transaction(database):
            database.execute("CREATE TEMP TABLE dropped(name TEXT PRIMARY KEY)")
            names = [(name,) for name in (*self._gone, *self._stale)]
            database.executemany("INSERT INTO dropped VALUES(?)", names)
            database.execute(
                "INSERT INTO main.models SELECT * FROM last.models WHERE name NOT IN (SELECT name FROM dropped)"
            )
            database.execute(
                "INSERT INTO main.candidates SELECT * FROM last.candidates "
                "WHERE model IN (SELECT id FROM main.models)"
            )
        database.execute("DETACH last")

    def _insert(self, database: sqlite3.Connection, model: ModelCandidates) -> None:
        listing, damages = model.listing, list(model.damages)
        (number,) = database.execute("SELECT coalesce(max(id), 0) + 1 FROM models").fetchone()
        if listing is not None:
            damages += candidate_table.insert(database, number, model, profiled=True)
        gaps = json.dumps([] if listing is None else damages)
        damage = "; ".join(damages) if listing is None else None
        columns = (
            (listing.newest, listing.versions, json.dumps(listing.channels)) if listing else (None, 0, "{}")
        )
        token = "" if damages else self._tokens[model.name]
        row = (number, model.name, *columns, damage, gaps, model.head, token)
        database.execute("INSERT INTO models VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        self.changed += self._revision(model.name) != (damage, gaps, model.head)

    def _revision(self, name: str) -> tuple[str | None, str, str | None] | None:
        """The columns of a model in the last snapshot from which its other ones follow."""
        sql = "SELECT damage, gaps, head FROM models WHERE name = ?"
        row: tuple[str | None, str, str | None] | None = (
            self._last.database.execute(sql, (name,)).fetchone() if self._last else None
        )
        return row


def _index_tokens(store: RegistryStore) -> Mapping[str, str]:
    """The token of each model's index file; "" if it must be read."""
    inner = innermost(store)
    if isinstance(inner, LocalStore):
        now = time.time_ns()
        root = scan.scan(inner.root, db.INDEX, now)
        below = (scan.scan(inner.root, f"{db.INDEX}/{name}", now) for name in root.directories)
        return {name: mark for listing in (root, *below) for name, mark in listing.models.items()}
    if isinstance(inner, IndexLister):
        return inner.index_tokens()
    return dict.fromkeys(inner.names(), "")
