"""Documents that cells quote: blobs and lines of logs, and the tables that follow from a field of a profile."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from onnxreg.schema.core import pointer
from onnxreg.schema.core.canonical import Json, decode
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.dossier.dossier import Citation, DossierCell, DossierTable
from onnxreg.schema.log.logline import LogLine

BLANK = DossierCell(value=None)
"""A cell for a place that does not exist."""


@dataclass(frozen=True)
class SourceDocument:
    """A JSON document, and how a citation names it. Rows and single values are quoted from `root`."""

    name: Mapping[str, Any]
    value: Json
    root: str = ""

    @classmethod
    def of_blob(cls, digest: Digest, data: bytes) -> "SourceDocument":
        return cls({"blob": digest}, decode(data, f"blob {digest.short}..."))

    @classmethod
    def of_line(cls, line: LogLine) -> "SourceDocument":
        """A line of the log of its model, or of the log of policies."""
        name = {"log": line.name, "line": line.seq, "digest": line.digest}
        return cls(name, decode(line.raw, "log line"))

    @classmethod
    def of_payload(cls, digest: Digest, payload: bytes) -> "SourceDocument":
        """The predicate of an in-toto statement, the payload of an envelope with this digest."""
        value = decode(payload, f"the payload of blob {digest.short}...")
        return cls({"blob": digest, "payload": True}, value, "/predicate")

    def cite(self, location: str) -> Citation:
        """The citation of a place, which must exist."""
        value = pointer.find(self.value, location)
        assert value is not pointer.ABSENT, location
        return Citation(**self.name, pointer=location, value=value)

    def quote(self, location: str) -> DossierCell:
        """A cell with the value of a place; blank if it does not exist or is null."""
        if pointer.find(self.value, location) in (pointer.ABSENT, None):
            return BLANK
        citation = self.cite(location)
        return DossierCell(value=citation.value, sources=(citation,))

    def quote_key(self, location: str) -> DossierCell:
        """A cell with the last key of a place."""
        return DossierCell(value=pointer.tokens(location)[-1], rule="name", sources=(self.cite(location),))

    def row(self, location: str, columns: Iterable[str]) -> tuple[DossierCell, ...]:
        """The cells of some relative pointers from a place."""
        places = (pointer.relative(location, column) for column in columns)
        return tuple(self.quote_key(at) if is_key else self.quote(at) for at, is_key in places)

    def rows(self, pattern: str, columns: Iterable[str]) -> list[tuple[DossierCell, ...]]:
        """A row for each place that a pattern means."""
        names = tuple(columns)
        return [self.row(location, names) for location in pointer.expand(self.value, f"{self.root}{pattern}")]


def single(cell: DossierCell) -> list[DossierTable]:
    """The tables of a field with one cell; none if it is blank."""
    return [] if cell is BLANK else [DossierTable(rows=((cell,),))]


def table(
    columns: Iterable[str],
    rows: Iterable[tuple[DossierCell, ...]],
    caption: str | None = None,
    about: tuple[DossierCell, ...] = (),
) -> list[DossierTable]:
    """The tables of a field with rows; none without rows. Columns that are blank in every row are left out."""
    body, header = list(rows), list(columns)
    shown = [index for index in range(len(header)) if any(row[index] is not BLANK for row in body)]
    if not shown:
        return []
    heading: dict[str, Any] = {} if caption is None else {"caption": caption}
    heading |= {"about": about} if about else {}
    names = tuple(header[index] for index in shown)
    cells = tuple(tuple(row[index] for index in shown) for row in body)
    return [DossierTable(**heading, columns=names, rows=cells)]
