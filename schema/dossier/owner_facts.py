"""The facts that only a person can state, a YAML file; and the statement by which a key signs them for one version.

facts: 1
name: acme/pii
statements:
  provider: Acme GmbH, Berlin
  intended_purpose:
    - Find names and dates in clinical notes before they leave the hospital.
    - It is not meant for other languages than English.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import ConfigDict, Field

from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import items, mapping, required, text
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.document import Document, First, Items, ModelName, Table, Text
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.signing.dsse import STATEMENT

PREDICATE = "urn:onnxreg:facts:v1"
"""The predicate type: these are facts about this version."""
Paragraphs = Text | Items[Text]


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
