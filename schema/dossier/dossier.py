"""The dossier: what a registry knows of a version, and what its owner states, in the order of a profile.

A cell is either a quotation, equal to the one value that it cites, or follows from the cited values by one of `RULES`. So a
program that knows nothing of onnxreg checks each cell against the files of the registry. It has no time and no machine.
"""

from typing import Literal, Self

from pydantic import model_validator

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.document import (
    Count,
    Document,
    First,
    Items,
    JsonValue,
    ModelName,
    RelPath,
    Table,
    Text,
)
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
    value: JsonValue

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

    value: JsonValue
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
