"""The inputs of a dossier as people write them: its profile, and the facts that only a person can state.

A profile has sections of fields, each quoted, generated, or a person's:

    dossier: 1
    name: plain
    title: Model dossier
    sections:
      - title: Identity
        fields:
          - {label: Licence, from: manifest, value: /license}
          - {label: Artifacts, from: manifest, rows: /artifacts/*, columns: [[File, 0/path], [Bytes, 0/size]]}
          - {label: Later evaluations, from: log, kinds: [attest], having: /event/artifact, columns: [[Line, 0/seq]]}
          - {label: History, generate: history}
          - {label: Intended purpose, owner: intended_purpose}

`value` is a JSON pointer. `rows` is a pointer in which `*` means every item, and each column has a label and a relative
JSON pointer from the place of the row: `0/path` is below it, `2/path` below the place two levels up, `0#` its own key.

The facts are a YAML file, and the statement by which a key signs them for one version:

    facts: 1
    name: acme/pii
    statements:
      provider: Acme GmbH, Berlin
      intended_purpose:
        - Find names and dates in clinical notes before they leave the hospital.
        - It is not meant for other languages than English.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from onnxreg.schema.core import canonical, pointer
from onnxreg.schema.core.canonical import items, mapping, required, text
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.document import Document, First, Items, ModelName, Table, Text
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.signing.dsse import STATEMENT

OwnerKey = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
SourceName = Literal["manifest", "published", "log", "policy", "statements"]
"""The manifest, the line that published the version, lines of the model's log, the policy in force, attested statements."""
GeneratorName = Literal["signatures", "changes", "history", "policy"]
"""Tables that are more than quotations of one document: who signed the version, the changes since the one published before,
the moves of its channels with findings and changes, and the rules in force for them."""
PREDICATE = "urn:onnxreg:facts:v1"
"""The predicate type: these are facts about this version."""
Paragraphs = Text | Items[Text]


class ProfileField(Document):
    """A field, which is filled in by exactly one of `from`, `generate` and `owner`.

    `kinds` and `having` choose lines of the log: kinds of events, and a place that must exist; `this` are only those that
    name this version's manifest. `format` chooses statements by their key of that name. `help` tells a person what belongs into the field.
    """

    model_config = ConfigDict(extra="forbid")

    label: Text
    point: Text | None = None
    help: Text | None = None
    from_: Annotated[SourceName | None, Field(alias="from")] = None
    value: Text | None = None
    rows: Text | None = None
    columns: (
        Annotated[Items[Annotated[tuple[Text, Text], Field(fail_fast=True)]], Field(min_length=1)] | None
    ) = None
    kinds: Items[Text] = ()
    having: Text | None = None
    this: bool = False
    format: Text | None = None
    generate: GeneratorName | None = None
    owner: OwnerKey | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if sum(part is not None for part in (self.from_, self.generate, self.owner)) != 1:
            raise ValueError("a field has exactly one of from, generate and owner")
        if (self.from_ is not None) != ((self.value is not None) != (self.columns is not None)):
            raise ValueError("a field with from has a value or columns, any other has neither")
        if self.from_ != "log" and (self.kinds or self.having is not None or self.this):
            raise ValueError("kinds, having and this choose lines: they are for from: log")
        if (self.from_ == "statements") != (self.format is not None) or (
            self.format and self.columns is None
        ):
            raise ValueError(
                "format chooses statements: from: statements has it and columns, any other has none"
            )
        for location in filter(None, (self.value, self.rows, self.having)):
            pointer.tokens(location)
        return self


class ProfileSection(Document):
    """A part of the dossier. `note` is printed below its title."""

    model_config = ConfigDict(extra="forbid")

    title: Text
    number: Text | None = None
    note: Text | None = None
    fields: Annotated[Items[ProfileField], Field(min_length=1)]


class DossierProfile(Document):
    """A table of sections and fields. `basis` names the text that it follows."""

    model_config = ConfigDict(extra="forbid")

    dossier: First
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
    title: Text
    basis: Text | None = None
    sections: Annotated[Items[ProfileSection], Field(min_length=1)]

    def owner_keys(self) -> Iterator[str]:
        """The keys that a person may fill in."""
        return (field.owner for section in self.sections for field in section.fields if field.owner)


class OwnerFacts(Document):
    """Statements by the owner of a model, by the keys of a profile. Each is a text or a list of paragraphs."""

    model_config = ConfigDict(extra="forbid")

    facts: First
    name: ModelName
    statements: Annotated[Table[Paragraphs], Field(description="Keys of the profile's owner fields.")]

    def paragraphs(self, key: str) -> tuple[str, ...]:
        """The text of a key; empty if it is not stated."""
        value = self.statements.get(key, ())
        return (value,) if isinstance(value, str) else tuple(value)


@dataclass(frozen=True, slots=True)
class FactsStatement:
    """The statement that a file has the facts about a version: an in-toto Statement v1 with both as subjects."""

    file: Digest
    manifest: Digest

    def encode(self) -> bytes:
        """The canonical bytes, the payload to be signed."""
        return canonical.encode(
            {
                "_type": STATEMENT,
                "subject": [
                    {"name": "facts", "digest": {"sha256": self.file.hex}},
                    {"name": "manifest", "digest": {"sha256": self.manifest.hex}},
                ],
                "predicateType": PREDICATE,
                "predicate": {},
            }
        )

    @classmethod
    def decode(cls, payload: bytes) -> "FactsStatement":
        """Read a statement. InputError if it is malformed or about something else."""
        value = mapping(canonical.decode(payload, "statement"))
        if value.get("_type") != STATEMENT or value.get("predicateType") != PREDICATE:
            raise InputError("not a statement about an owner's facts")
        subjects = items(required(value, "subject"), mapping)
        digests = {
            text(required(subject, "name")): Digest(
                text(required(mapping(required(subject, "digest")), "sha256"))
            )
            for subject in subjects
        }
        if len(subjects) != 2 or digests.keys() != {"facts", "manifest"}:
            raise InputError("the statement is not about facts and a manifest")
        return cls(digests["facts"], digests["manifest"])
