"""The dossier: what a registry knows of a version, and what its owner states, in the order of a profile.

A cell is either a quotation, equal to the one value that it cites, or follows from the cited values by one of `RULES`.
So a program that knows nothing of onnxreg checks each cell against the files of the registry. It has no time and no
machine. A `SourceDocument` is what cells quote: a blob or a line of a log.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import model_validator

from onnxreg.schema.core import pointer
from onnxreg.schema.core.canonical import Json, decode
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.document import (
    Count,
    Document,
    First,
    Items,
    ModelName,
    RelPath,
    Table,
    Text,
)
from onnxreg.schema.log.logline import LogLine
from onnxreg.schema.signing.keys import PublicKey

RULES = {
    "name": "the last key of the cited place",
    "diff": "the change between the cited values, by the rules of docs/diff.md; one value if it was added or removed",
    "plan": "yes if each cited list of planned changes has the kind or the severity of the change in this row, else no",
    "signer": "the reader's name of the key that made the cited signature, or why it does not count",
}
NOT_PROVIDED = "not provided"
"""The text of a field that a person must fill in."""
NOT_RECORDED = "not recorded"
"""The text of a field about which the registry has nothing."""
NOTICE = (
    "This document is a template filled in from a registry. It is not legal advice, and it does not show that a law is met: "
    "that is for a person to judge."
)


class Citation(Document):
    """A place in a source, and the value there.

    The source is a blob, or a line of a log (`.policy` is the log of policies) with the digest of its bytes.
    `pointer` is a JSON pointer (RFC 6901); with `payload`, into the payload of the DSSE envelope that the blob is.
    """

    blob: Digest | None = None
    payload: bool = False
    log: Text | None = None
    line: Count | None = None
    digest: Digest | None = None
    pointer: Text
    value: Any

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.blob is None) == (None in (self.log, self.line, self.digest)):
            raise ValueError("a citation is of a blob, or of a line of a log with its digest")
        return self

    @property
    def source(self) -> Digest:
        """The digest of the cited bytes."""
        digest = self.blob or self.digest
        assert digest is not None, "_check lets nothing else in"
        return digest


class DossierCell(Document):
    """A value with its citations. Without `rule` it is a quotation; without citations it is empty."""

    value: Any
    rule: Literal["name", "diff", "plan", "signer"] | None = None
    sources: Items[Citation] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (
            self.rule is None
            and [source.value for source in self.sources] != [self.value][: self.value is not None]
        ):
            raise ValueError("a cell without a rule quotes the one value that it cites")
        return self


class DossierTable(Document):
    """Rows of cells. A table without columns is one cell. `about` are cells that belong to the caption."""

    caption: Text | None = None
    about: Items[DossierCell] = ()
    columns: Items[Text] = ()
    rows: Items[Items[DossierCell]]


class DossierField(Document):
    """One field: generated tables, the owner's words, or nothing.

    `point` is the place in the law or standard, `key` the field of the owner's file, `help` what belongs there.
    `text` are the owner's words as paragraphs, or for an absent field the reason.
    """

    label: Text
    point: Text | None = None
    origin: Literal["generated", "owner", "absent"]
    key: Text | None = None
    help: Text | None = None
    text: Items[Text] = ()
    tables: Items[DossierTable] = ()


class DossierSection(Document):
    """A part of the dossier."""

    title: Text
    number: Text | None = None
    note: Text | None = None
    fields: Items[DossierField]


class DossierSubject(Document):
    """The version that a dossier is about, and the channels whose history it tells."""

    registry: Text
    name: ModelName
    version: Text
    manifest: Digest
    channels: Items[Text] = ()


class ProfileReference(Document):
    """The profile: its name, the digest of its file, and the text that it follows."""

    name: Text
    title: Text
    digest: Digest
    basis: Text | None = None


class DossierFacts(Document):
    """The owner's file, and who signed it for this version.

    `signers` are the reader's names of the keys that validly signed it; `unchecked` says of each other signature why nobody
    checked it: its key is unknown.
    """

    file: RelPath
    digest: Digest
    signers: Items[Text] = ()
    unchecked: Items[Text] = ()


class LogHead(Document):
    """The last line of a log that the dossier was made from."""

    line: Count
    digest: Digest


class DossierFile(Document):
    """A file beside the dossier."""

    path: RelPath
    digest: Digest
    size: Count
    about: Text


class DossierKey(Document):
    """A key that the reader trusts, by the reader's own name for it."""

    name: Text
    key: Text

    @model_validator(mode="after")
    def _check(self) -> Self:
        PublicKey.parse(self.key)
        return self


class Dossier(Document):
    """A dossier. `logs` are the heads of the logs, by name, that it was made from; `rules` say how cells follow from citations."""

    format: Literal["onnxreg-dossier"]
    format_version: First
    notice: Text
    profile: ProfileReference
    subject: DossierSubject
    facts: DossierFacts | None = None
    keys: Items[DossierKey] = ()
    logs: Table[LogHead]
    rules: Table[Text]
    sections: Items[DossierSection]
    files: Items[DossierFile] = ()

    @property
    def fields(self) -> list[DossierField]:
        return [field for section in self.sections for field in section.fields]


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
