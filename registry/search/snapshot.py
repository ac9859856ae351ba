"""The snapshot of a registry: one file with what can be searched, which one job publishes beside the tree.

It is a compressed SQLite file with a row for each model, and one for each artifact of each version whose files
are there; docs/query.md has its tables. Readers keep a copy, and fetch it again only if it changed. A snapshot
is a hint, as old as its `time`: searches read it, and nothing that decides about a version does.
"""

import gzip
import json
import secrets
import shutil
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from fnmatch import fnmatchcase
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self, TypeVar

from onnxreg.registry.search import candidate_table, db, search_index
from onnxreg.registry.store.layout import SNAPSHOT
from onnxreg.registry.store.protocol import PathReader, RegistryReader, innermost
from onnxreg.registry.support.actor import TIME_FORMAT
from onnxreg.schema.query.expression.fields import FIELDS, LABELLED, FieldKind

if TYPE_CHECKING:
    from onnxreg.registry.search.listing import ModelListing
    from onnxreg.registry.store.protocol import StoredObject
    from onnxreg.schema.query.expression.parser import Expression

FORMAT, FORMAT_VERSION = "onnxreg-snapshot", "1"
MAX_BYTES = 4 * 2**30
"""Bytes of the tables; more than this are not unpacked."""
_VIEW = ", ".join(
    {"name": "name", "profile": "nullif(profile, '') AS profile"}.get(field, f"candidates.{field}")
    for field in FIELDS
)
SCHEMA = (
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE models(
        id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, newest TEXT, versions INTEGER NOT NULL, channels TEXT NOT NULL,
        damage TEXT, gaps TEXT NOT NULL, head TEXT, token TEXT NOT NULL)""",
    db.CANDIDATES,
    f"CREATE VIEW artifacts AS SELECT {_VIEW} FROM models JOIN candidates ON model = id",
)
"""The tables of `FORMAT_VERSION`: a change of one increases it."""
COMPRESSION = 6
"""The level of zlib."""
COPY = "CREATE TABLE copy(url TEXT NOT NULL, token TEXT NOT NULL)"
"""One more table of a reader's copy: the place that it came from, and the token of the file there."""

Answer = TypeVar("Answer")


class SnapshotError(Exception):
    """A snapshot that cannot be used. Its text completes "the snapshot of PLACE"."""


class LaterFormatError(SnapshotError):
    """A snapshot that a later build published."""


class DamagedError(SnapshotError):
    """A snapshot whose rows are not as its tables promise."""


class AbsentError(SnapshotError):
    """Nobody has published a snapshot there."""


class SearchSnapshot:
    """A snapshot on this machine; SnapshotError if it cannot be read. `token` is that of the published file."""

    def __init__(self, file: Path, registry_id: str, is_copy: bool = False) -> None:
        self.file = file
        with _readable():
            self.database = _connect(file)
            with search_index.opened(self.database):
                _check_tables(self.database, is_copy)
                meta = dict(self.database.execute("SELECT * FROM meta"))
                datetime.strptime(meta.get("time", ""), TIME_FORMAT)
                copies = self.database.execute("SELECT url, token FROM copy").fetchall() if is_copy else []
        if meta.get("registry") != registry_id:
            self.close()
            raise SnapshotError("is of another registry")
        self.time: str = meta["time"]
        url, token = copies[0] if len(copies) == 1 else ("", "")
        self.url, self.token = str(url), str(token)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self.database.close()

    def models(self, pattern: str) -> tuple[list["ModelListing"], list[str]]:
        """The models whose name fits a shell pattern, and the reasons why others cannot be listed."""
        with _readable():
            models = search_index.select_models(self.database, pattern)
            for model in models:
                _check_values(model.to_json(), _LISTING)
                _check_values(model.channels, dict.fromkeys(model.channels, str))
            return models, search_index.select_damages(self.database, pattern)

    def query(
        self,
        expression: "Expression | None",
        pattern: str,
        take: Callable[[Iterator[dict[str, Any]]], Answer],
    ) -> tuple[Answer, list[str]]:
        """Pass the candidates that fit to `take`, with their profiles; see `SearchIndex.query`."""
        with _readable(), candidate_table.bounded(self.database):
            rows = candidate_table.matching(self.database, expression, pattern, profiled=True)
            answer = take(_checked(rows))
            return answer, self._damages(pattern)

    def damages(self, pattern: str) -> list[str]:
        """The reasons why models, or versions of models, cannot be read."""
        with _readable():
            return self._damages(pattern)

    def _damages(self, pattern: str) -> list[str]:
        rows = self.database.execute("SELECT name, gaps FROM models WHERE gaps <> '[]' ORDER BY name")
        gaps = [str(gap) for name, texts in rows if fnmatchcase(name, pattern) for gap in json.loads(texts)]
        return search_index.select_damages(self.database, pattern) + gaps

    def tokens(self) -> dict[str, str]:
        """The token of each model's index file when it was read."""
        with _readable():
            return dict(self.database.execute("SELECT name, token FROM models"))


def _checked(rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The rows, if their values are of the kinds that the tables promise: SQLite itself does not hold a file to that."""
    for row in rows:
        _check_values(row, _CANDIDATE)
        for name in _LISTS:
            _check_values(dict(enumerate(row[name])), dict.fromkeys(range(len(row[name])), str))
        for name in LABELLED:
            _check_values(row[name], dict.fromkeys(row[name], _NUMBER))
        yield row


def _check_values(row: Mapping[Any, Any], kinds: Mapping[Any, Any]) -> None:
    for name, kind in kinds.items():
        if not isinstance(row[name], kind) or (kind is not bool and isinstance(row[name], bool)):
            raise TypeError(f"{name} is a {type(row[name]).__name__}")


_NUMBER = int | float
_LISTING = {"name": str, "versions": int, "newest": str | None, "channels": dict}
_KINDS: dict[FieldKind, Any] = {
    **dict.fromkeys((FieldKind.TEXT, FieldKind.VERSION), str),
    **dict.fromkeys((FieldKind.SIZE, FieldKind.COUNT), int),
    **dict.fromkeys((FieldKind.NUMBER, FieldKind.SHARE), _NUMBER),
    FieldKind.FLAG: bool,
    FieldKind.LIST: list,
}
_LISTS = tuple(name for name, kind in FIELDS.items() if kind is FieldKind.LIST)
_UNKNOWN = ("task", "family", "license", "profile", "opset", "ort_format", "min_recall")
"""The fields that may be unknown."""
_CANDIDATE = {
    **{name: _KINDS[kind] | None if name in _UNKNOWN else _KINDS[kind] for name, kind in FIELDS.items()},
    **dict.fromkeys(LABELLED, dict),
}


@contextmanager
def _readable() -> Iterator[None]:
    """DamagedError if the rows are not as their tables say."""
    try:
        yield
    except (sqlite3.Error, ValueError, TypeError) as error:
        raise DamagedError(f"is damaged: {error}") from error


def _connect(file: Path) -> sqlite3.Connection:
    """Open a file from elsewhere to read: it cannot call functions, and sizes within it are checked."""
    database = sqlite3.connect(
        f"{file.absolute().as_uri()}?mode=ro&immutable=1", uri=True, isolation_level=None
    )
    database.execute("PRAGMA trusted_schema = OFF")
    database.execute("PRAGMA cell_size_check = ON")
    database.execute("PRAGMA temp_store = MEMORY")
    return database


def _check_tables(database: sqlite3.Connection, is_copy: bool) -> None:
    """SnapshotError unless the file has exactly the tables of `FORMAT_VERSION`."""
    statements = [
        sql
        for (sql,) in database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid")
    ]
    if statements[:1] != [SCHEMA[0]]:
        raise SnapshotError("is not a snapshot")
    meta = dict(database.execute("SELECT key, value FROM meta LIMIT 100"))
    if meta.get("format") != FORMAT:
        raise SnapshotError("is not a snapshot")
    version = str(meta.get("format_version"))[:20]
    if version != FORMAT_VERSION:
        raise LaterFormatError(f"has format {version}, this onnxreg reads {FORMAT_VERSION}")
    if statements != [*SCHEMA, *([COPY] if is_copy else [])]:
        raise SnapshotError("has other tables than its format")


@contextmanager
def fetch(reader: RegistryReader, file: Path | None) -> Iterator[SearchSnapshot]:
    """Fetch the snapshot of a registry, if it changed since the copy in `file` was made.

    `file` is None if nothing can be kept here. AbsentError if there is none, SnapshotError if it
    cannot be used; errors of the place as they are. A copy that turns out to be damaged is removed.
    """
    with TemporaryDirectory() as scratch, _current(reader, file or Path(scratch) / "copy") as snapshot:
        try:
            yield snapshot
        except DamagedError:
            with suppress(OSError):
                snapshot.file.unlink()
            raise


def _current(reader: RegistryReader, file: Path) -> SearchSnapshot:
    files = innermost(reader)
    if not isinstance(files, PathReader):
        raise AbsentError("is not there")
    copy = _copy_of(reader, file)
    stored = files.read_file(SNAPSHOT, (b"", copy.token) if copy and copy.token else None)
    if copy is not None:
        if stored is not None and stored[1] == copy.token:
            return copy
        copy.close()
    if stored is None:
        raise AbsentError("is not there")
    unpack(stored, reader, file)
    return SearchSnapshot(file, reader.registry_id, is_copy=True)


def _copy_of(reader: RegistryReader, file: Path) -> SearchSnapshot | None:
    """The copy that was fetched from this place before; None if there is none that can be used."""
    if file.is_symlink() or not file.is_file():
        return None
    with suppress(SnapshotError):
        snapshot = SearchSnapshot(file, reader.registry_id, is_copy=True)
        if snapshot.url == reader.url:
            return snapshot
        snapshot.close()
    return None


def unpack(stored: "StoredObject", reader: RegistryReader, target: Path) -> None:
    """Make the copy of a published file. SnapshotError if it is damaged or of a later format."""
    aside = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        with gzip.open(BytesIO(stored[0])) as source, aside.open("xb") as sink:
            while data := source.read(2**20):
                sink.write(data)
                if sink.tell() > MAX_BYTES:
                    raise SnapshotError("is too large")
        SearchSnapshot(aside, reader.registry_id).close()
        database = sqlite3.connect(aside)
        with search_index.opened(database, keep=False), database:
            database.execute("PRAGMA synchronous = OFF")
            database.execute(COPY)
            database.execute("INSERT INTO copy VALUES(?, ?)", (reader.url, stored[1]))
        aside.replace(target)
    except (EOFError, zlib.error, gzip.BadGzipFile, sqlite3.Error) as error:
        raise SnapshotError(f"is damaged: {error}") from error
    except OSError as error:
        raise SnapshotError(f"cannot be unpacked here: {error}") from error
    finally:
        aside.unlink(missing_ok=True)


def pack(file: Path) -> bytes:
    """The bytes to publish of a file with the tables; equal tables give equal bytes."""
    packed = BytesIO()
    with file.open("rb") as source, gzip.GzipFile("", "wb", COMPRESSION, packed, mtime=0) as target:
        shutil.copyfileobj(source, target, 2**20)
    return packed.getvalue()
