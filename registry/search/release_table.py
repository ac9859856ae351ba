"""The newest release of each model in the search index, and the search for models by plain words.

Size, task, licence and formats come from the index files. When a release was published, its description and the words
that find it are in its log line and its manifest: `fill` reads these once for each release, when a page needs them.
"""

import json
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple
from unicodedata import normalize

from onnxreg.registry.log import lookup
from onnxreg.registry.log.ledger import split_segment
from onnxreg.registry.log.lookup import read_blob
from onnxreg.registry.search.candidate_table import bounded
from onnxreg.registry.search.db import transaction
from onnxreg.registry.search.listing import ModelListing
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, RegError
from onnxreg.schema.log.state import SEGMENT_LINES

MAX_WORDS = 20
"""Words of one search."""
MAX_FACETS = 100
"""Values of a filter that are offered, those of the most models."""
BATCH_RELEASES = 256
"""Releases that are read between two writes."""
_JOIN = (
    "models LEFT JOIN summaries ON summaries.model = id AND rank = 0 LEFT JOIN releases ON releases.model = id "
    "AND releases.version = summaries.version AND releases.manifest = summaries.manifest"
)


@dataclass(frozen=True, slots=True)
class ModelFilter:
    """Conditions on the newest release of a model: every word is part of its texts; task, licence and format are
    exactly these ("": any).
    """

    words: tuple[str, ...] = ()
    task: str = ""
    license: str = ""
    format: str = ""

    @classmethod
    def of(cls, text: str, **filters: str) -> "ModelFilter":
        """Read what a person typed. InputError for too many words."""
        words = tuple(dict.fromkeys(_folded(text).split()))
        if len(words) > MAX_WORDS:
            raise InputError(f"{len(words)} words are too many for one search", f"use at most {MAX_WORDS}")
        return cls(words, **filters)

    def condition(self) -> tuple[str, list[str]]:
        """SQL on `_JOIN`, and its parameters."""
        terms = ["damage IS NULL", *["instr(coalesce(words, name), ?)"] * len(self.words)]
        values = list(self.words)
        for column in ("task", "license"):
            if value := getattr(self, column):
                terms.append(f"{column} = ?")
                values.append(value)
        if self.format:
            terms.append(
                "EXISTS(SELECT 1 FROM artifacts JOIN kinds ON kinds.id = kind "
                "WHERE artifacts.model = models.id AND artifacts.rank = 0 AND format = ?)"
            )
            values.append(self.format)
        return " AND ".join(terms), values


class ModelRow(NamedTuple):
    """A model, and its newest release: size in bytes of the files that are here, time in RFC 3339."""

    listing: ModelListing
    task: str | None
    license: str | None
    size: int | None
    published: str | None
    description: str | None


class Facets(NamedTuple):
    """The values of each filter, with the number of models that have it."""

    task: list[tuple[str, int]]
    license: list[tuple[str, int]]
    format: list[tuple[str, int]]


def facets(database: sqlite3.Connection) -> Facets:
    """The values that newest releases have, those of the most models first."""
    newest = "FROM summaries JOIN models ON id = model WHERE rank = 0 AND damage IS NULL"
    artifacts = "FROM artifacts JOIN kinds ON kinds.id = kind WHERE rank = 0"
    sources = {"task": newest, "license": newest, "format": artifacts}
    return Facets(
        *(
            database.execute(
                f"SELECT {column}, count(DISTINCT model) AS models {source} AND {column} IS NOT NULL "
                f"GROUP BY {column} ORDER BY models DESC, {column} LIMIT {MAX_FACETS}"
            ).fetchall()
            for column, source in sources.items()
        )
    )


def find(
    database: sqlite3.Connection, remote: RegistryReader, question: ModelFilter, after: str, limit: int
) -> tuple[list[ModelRow], int]:
    """The first models after a name, by name, and the number of all that fit.

    A search by words reads the releases that were never read; a list reads those that it shows.
    """
    if question.words:
        fill(database, remote)
    with bounded(database):
        condition, values = question.condition()
        (total,) = database.execute(f"SELECT count(*) FROM {_JOIN} WHERE {condition}", values).fetchone()
        sql = f"SELECT name FROM {_JOIN} WHERE {condition} AND name > ? ORDER BY name LIMIT {limit}"
        names = [name for (name,) in database.execute(sql, [*values, after])]
    fill(database, remote, names)
    return list(_rows(database, names)), total


def _rows(database: sqlite3.Connection, names: Collection[str]) -> Iterator[ModelRow]:
    columns = "name, newest, versions, channels, task, license, total_size, published, description"
    for name in names:
        for row in database.execute(f"SELECT {columns} FROM {_JOIN} WHERE name = ?", (name,)):
            name, newest, versions, channels, *about = row
            yield ModelRow(ModelListing(name, newest, versions, json.loads(channels)), *about)


def fill(database: sqlite3.Connection, remote: RegistryReader, names: Collection[str] | None = None) -> None:
    """Read the newest releases of some models (None: all) that were not read before. One that cannot be read is left
    out: its page says why.
    """
    sql = (
        f"SELECT id, name, summaries.version, summaries.manifest, task, family, license FROM {_JOIN} "
        "WHERE damage IS NULL AND summaries.version IS NOT NULL AND releases.version IS NULL"
    )
    shown_names = None if names is None else set(names)
    unread = [row for row in database.execute(sql).fetchall() if shown_names is None or row[1] in shown_names]
    for start in range(0, len(unread), BATCH_RELEASES):
        rows = [row for release in unread[start : start + BATCH_RELEASES] for row in _read(remote, *release)]
        with transaction(database):
            database.executemany("INSERT OR REPLACE INTO releases VALUES(?, ?, ?, ?, ?, ?)", rows)


def _read(
    remote: RegistryReader, model: int, name: str, version: str, manifest: str, *about: str | None
) -> Iterator[tuple[Any, ...]]:
    """The row of a release; nothing if its manifest or its log line cannot be read."""
    with suppress(RegError, ValueError, TypeError, LookupError, AttributeError):
        value = canonical.decode(read_blob(remote, Digest.parse(manifest)), f"manifest of {name}")
        published = _published(remote, name, version)
        description = value.get("description")
        texts = [name, *about, description, *_labels(value), *value["formats"]]
        words = "\n".join(_folded(text) for text in texts if isinstance(text, str))
        yield model, version, manifest, published, description, words


def _published(remote: RegistryReader, name: str, version: str) -> str:
    """The time of the log line that published a version."""
    index = remote.read_index(name)
    state = lookup.state_of(remote, name, index)
    assert index is not None, "state_of raises without an index file"
    seq = next(
        entry.seq for item, entry in lookup.all_versions(remote, state).items() if str(item) == version
    )
    sealed = len(state.segments) * SEGMENT_LINES
    if seq > sealed:
        line = index.data.split(b"\n")[seq - sealed]
    else:
        segment = read_blob(remote, state.segments[(seq - 1) // SEGMENT_LINES])
        line = list(split_segment(segment, name))[(seq - 1) % SEGMENT_LINES]
    return str(json.loads(line)["event"]["time"])


def _labels(manifest: dict[str, Any]) -> list[Any]:
    """The labels, each once, without the marks `B-` and `I-` of spans."""
    labels = manifest.get("labels") or ()
    return list(dict.fromkeys(label.removeprefix("B-").removeprefix("I-") for label in labels))


def _folded(text: str) -> str:
    """Text whose letters are compared without regard to case and form."""
    return normalize("NFKC", text).casefold()
