"""The rows of one model in the search index: made from its index file, written when that changed."""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from onnxreg.registry.log import lookup
from onnxreg.registry.search import scan
from onnxreg.registry.search.listing import channels, newest, total_size
from onnxreg.registry.store.blobs import read_blob
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import HostError, IntegrityError, NotFoundError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.state import State, VersionEntry

Row = tuple[Any, ...]


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


UPSERT = (
    "INSERT INTO models(id, name, place, mark, newest, versions, channels, catalog, sealed, damage, head) "
    "VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(id) DO UPDATE SET mark = excluded.mark, "
    "newest = excluded.newest, versions = excluded.versions, channels = excluded.channels, "
    "catalog = excluded.catalog, sealed = excluded.sealed, damage = NULL, "
    "whole = whole AND head IS excluded.head, head = excluded.head"
)


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
        return _rows(remote, directory, mark, lookup.state_of(remote, name, remote.view_index(name)), sealed)
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
