"""Documents that people write for a dossier (docs/dossier.md): its profile, and facts that only people can state."""

from collections.abc import Collection
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from onnxreg.schema.core import pointer
from onnxreg.schema.core.document import First, Items, ModelName, Table, Text, WrittenDocument

OwnerKey = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
# The manifest, the log line that published the version, or lines of the model's log.
SourceName = Literal["manifest", "published", "log"]
# Signers, changes since the previous publication, moves of the version's channels, or rules for them.
GeneratorName = Literal["signatures", "changes", "history", "policy"]
Column = Annotated[tuple[Text, Text], Field(fail_fast=True)]


class ProfileField(WrittenDocument):
    """A field of a dossier. It has one of the keys `from`, `generate` and `owner`. `help` says what the owner should
    write.

    A field with `from` shows the value at the JSON pointer `value`, or a table. The table has a row for each match of
    the pointer `rows`, in which `*` means any key. A column is a label and a path from the row, such as `../size`. A
    path that ends in `#` gives the key. With `from: log`, the field shows lines of the log. `kinds` selects lines by
    the kind of event. `having` selects lines that have a value at this pointer. `this` selects lines about the
    dossier's version or the artifacts of this version.
    """

    label: Text
    point: Text | None = None
    help: Text | None = None
    from_: Annotated[SourceName | None, Field(alias="from")] = None
    value: Text | None = None
    rows: Text | None = None
    columns: Annotated[Items[Column], Field(min_length=1)] | None = None
    kinds: Items[Text] = ()
    having: Text | None = None
    this: bool = False
    generate: GeneratorName | None = None
    owner: OwnerKey | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if [self.from_, self.generate, self.owner].count(None) != 2:
            raise ValueError("a field has exactly one of from, generate and owner")
        if (self.from_ is not None) != ((self.value is not None) != (self.columns is not None)):
            raise ValueError("a field with from has a value or columns, any other has neither")
        if self.from_ != "log" and (self.kinds or self.having or self.this):
            raise ValueError("kinds, having and this choose lines: they are for from: log")
        for location in filter(None, (self.value, self.rows, self.having)):
            pointer.tokens(location)
        return self

    def chooses(self, line: dict[str, Any], digests: Collection[str]) -> bool:
        """True if the field shows this log line. `digests` has the digests of the manifest and of the artifacts."""
        event = line["event"]
        is_kind = not self.kinds or event["kind"] in self.kinds
        is_about = not self.this or not {event.get("manifest"), event.get("artifact")}.isdisjoint(digests)
        return is_kind and is_about and pointer.find(line, self.having or "") is not pointer.ABSENT


class ProfileSection(WrittenDocument):
    """A section of a dossier. `note` is printed below the title."""

    title: Text
    number: Text | None = None
    note: Text | None = None
    fields: Annotated[Items[ProfileField], Field(min_length=1)]


class DossierProfile(WrittenDocument):
    """A form of a dossier: sections with fields. `basis` names the law or other text on which the form is based."""

    dossier: First
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
    title: Text
    basis: Text | None = None
    sections: Annotated[Items[ProfileSection], Field(min_length=1)]

    def owner_keys(self) -> set[str]:
        """Return the keys of the fields that people may fill in."""
        return {field.owner for section in self.sections for field in section.fields if field.owner}


class OwnerFacts(WrittenDocument):
    """Statements that the owner of a model made. `statements` maps the key of an owner field to the statement, which is
    a text or a list of paragraphs.
    """

    facts: First
    name: ModelName
    statements: Annotated[Table[Text | Items[Text]], Field(description="Keys of the profile's owner fields.")]

    def paragraphs(self, key: str) -> tuple[str, ...]:
        """Return the paragraphs of the statement with this key, or () if there is none."""
        value = self.statements.get(key, ())
        return (value,) if isinstance(value, str) else tuple(value)
