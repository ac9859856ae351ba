"""The rows of one model in the search index: written when its index file changed."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from onnxreg.registry.log import lookup
from onnxreg.registry.search import scan
from onnxreg.registry.search.listing import channels, newest, total_size
from onnxreg.registry.store.blobs import read_blob
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import HostError, IntegrityError, NotFoundError
from onnxreg.schema.core.version import Version
from onnxreg.schema.log.state import State
from onnxreg.schema.log.summary import ArtifactSummary

Row = tuple[Any, ...]


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
        try:
            self._store(directory, mark, lookup.read_state(self._remote, name))
        except (IntegrityError, NotFoundError, HostError) as error:
            self._damage(name, directory, error.message)
        except (OverflowError, UnicodeEncodeError) as error:
            self._damage(name, directory, f"the index of {name} cannot be listed: {error}")

    def forget(self, name: str) -> None:
        self._execute("DELETE FROM models WHERE name = ?", (name,))

    def _damage(self, name: str, directory: str, message: str) -> None:
        self.forget(name)
        self._execute(
            "INSERT INTO models(name, place, mark, versions, channels, damage) VALUES(?, ?, ?, 0, '{}', ?)",
            (name, directory, scan.UNSETTLED, message),
        )

    def _store(self, directory: str, mark: str, state: State) -> None:
        model, sealed = self._prepare(state)
        sealed = self._sealed(state) if sealed is None else sealed
        names = {str(v) for v, entry in state.versions.items() if not entry.dropped}
        names |= set(json.loads(sealed)) - {str(v) for v in state.versions}
        self._execute(
            "INSERT INTO models(id, name, place, mark, newest, versions, channels, catalog, sealed, head) "
            "VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(id) DO UPDATE SET mark = excluded.mark, "
            "newest = excluded.newest, versions = excluded.versions, channels = excluded.channels, "
            "catalog = excluded.catalog, sealed = excluded.sealed, damage = NULL, "
            "whole = whole AND head IS excluded.head, head = excluded.head",
            (
                *(model, state.name, directory, mark, newest(state), len(names), json.dumps(channels(state))),
                *(_text(state.catalog), sealed, str(state.head)),
            ),
        )
        self._summarise(model, state)

    def _prepare(self, state: State) -> tuple[int, str | None]:
        """Return the id of a model, and its sealed versions if the same catalog was read before.

        Its rows that follow from the state line are removed.
        """
        row = self._execute("SELECT id, catalog, sealed FROM models WHERE name = ?", (state.name,)).fetchone()
        if row is None:
            (model,) = self._execute("SELECT coalesce(max(id), 0) + 1 FROM models").fetchone()
            return model, None
        model, catalog, sealed = row
        self._execute("DELETE FROM summaries WHERE model = ?", (model,))
        self._execute("DELETE FROM artifacts WHERE model = ?", (model,))
        return model, sealed if catalog == _text(state.catalog) else None

    def _sealed(self, state: State) -> str:
        """The versions of the catalog that were not dropped, as JSON."""
        if state.catalog is None:
            return "[]"
        entries = lookup.read_catalog(read_blob(self._remote, state.catalog), state.name)
        return json.dumps([str(version) for version, entry in entries.items() if not entry.dropped])

    def _insert(self, table: str, rows: Sequence[Row]) -> None:
        if rows:
            values = ", ".join("?" * len(rows[0]))
            self.database.executemany(f"INSERT INTO {table} VALUES({values})", rows)

    def _summarise(self, model: int, state: State) -> None:
        summaries: list[Row] = []
        artifacts: list[Row] = []
        for rank, version in _ranked(state):
            summary = lookup.held_summary(state, version)
            if summary is not None:
                held_paths = state.versions[version].held
                about = (summary.task, summary.family, summary.license, total_size(summary, held_paths))
                summaries.append((model, rank, str(version), str(summary.manifest), *about))
                artifacts += (
                    (model, rank, position, self._kind(item), item.path, str(item.digest), item.size, size)
                    for position, (item, size) in enumerate(summary.downloads(held_paths))
                )
        self._insert("summaries", summaries)
        self._insert("artifacts", artifacts)

    def _kind(self, artifact: ArtifactSummary) -> int:
        kind = (artifact.format, artifact.precision, artifact.state)
        if kind not in self._kinds:
            self._execute("INSERT OR IGNORE INTO kinds(format, precision, state) VALUES(?, ?, ?)", kind)
            sql = "SELECT id FROM kinds WHERE format = ? AND precision = ? AND state = ?"
            self._kinds[kind] = int(self._execute(sql, kind).fetchone()[0])
        return self._kinds[kind]


def _ranked(state: State) -> Iterator[tuple[int, Version]]:
    """Rank the summarised versions: usable releases from rank 0 up, newest first; the others below 0."""
    entries = {
        v: entry for v, entry in state.versions.items() if str(v) in state.summaries and not entry.dropped
    }
    releases = [v for v, entry in entries.items() if entry.usable and not v.is_prerelease]
    releases.sort(key=lambda version: (version.precedence, entries[version].seq), reverse=True)
    yield from enumerate(releases)
    yield from ((-1 - position, v) for position, v in enumerate(sorted(entries.keys() - set(releases))))


def _text(digest: Digest | None) -> str | None:
    return None if digest is None else str(digest)
