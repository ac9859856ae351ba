"""Cells of a dossier: each is quoted from a document of the registry, or follows from cited values by a rule."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from onnxreg.schema.core import canonical, pointer
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.log.logline import LogLine

RULES = {
    "name": "the last key of the cited place",
    "diff": "the change between the cited values, by the rules of docs/diff.md; one value if it was added or removed",
    "plan": "yes if each cited list of planned changes has the kind or the severity of the change in this row, else no",
    "signer": "the reader's name of the key that made the cited signature, or why it does not count",
}


class Cell(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value with its citations. Without a `rule` it is the one value that it cites; without citations it is empty.

    A citation has a `pointer` (RFC 6901), the `value` there, and the source: a `blob`, or a `line` of a `log` with its
    `digest`.
    """

    value: Any
    rule: str | None = None
    sources: tuple[dict[str, Any], ...] = ()


BLANK = Cell(None)
"""A cell for a place that does not exist."""
Row = tuple[Cell, ...]


class Table(msgspec.Struct, frozen=True, omit_defaults=True):
    """Rows of cells. A table without columns is one cell."""

    rows: tuple[Row, ...]
    columns: tuple[str, ...] = ()
    caption: str | None = None


def table(columns: Iterable[str], rows: Iterable[Row], caption: str | None = None) -> list[Table]:
    """The table of some rows, without columns that are blank in every row; none if all are."""
    body, header = list(rows), tuple(columns)
    shown = [index for index in range(len(header)) if any(row[index] is not BLANK for row in body)]
    cells = tuple(tuple(row[index] for index in shown) for row in body)
    return [Table(cells, tuple(header[index] for index in shown), caption)] if shown else []


class Source(NamedTuple):
    """A JSON document, and how a citation names it."""

    name: Mapping[str, Any]
    value: Any

    @classmethod
    def of_blob(cls, digest: Digest, data: bytes) -> "Source":
        return cls({"blob": str(digest)}, canonical.decode(data, f"blob {digest.short}..."))

    @classmethod
    def of_line(cls, line: LogLine) -> "Source":
        name = {"log": line.name, "line": line.seq, "digest": str(line.digest)}
        return cls(name, canonical.decode(line.raw, "log line"))

    def cite(self, location: str) -> dict[str, Any]:
        """The citation of a place, which must exist."""
        return {**self.name, "pointer": location, "value": pointer.find(self.value, location)}

    def quote(self, location: str) -> Cell:
        """A cell with the value of a place; blank if it does not exist or is null."""
        value = pointer.find(self.value, location)
        return BLANK if value in (pointer.ABSENT, None) else Cell(value, sources=(self.cite(location),))

    def rows(self, pattern: str, columns: Iterable[str]) -> list[Row]:
        """A row for each place that a pattern means; `columns` are relative pointers from it."""
        return [
            tuple(
                Cell(pointer.tokens(target)[-1], "name", (self.cite(target),))
                if is_key
                else self.quote(target)
                for target, is_key in (pointer.relative(location, column) for column in columns)
            )
            for location in pointer.expand(self.value, pattern)
        ]
