"""Release statements: an in-toto Statement v1 about one manifest (github.com/in-toto/attestation).

The subject is the manifest by name and digest; the predicate repeats the recipe and the certificate of every artifact,
so that an auditor reads them without our software. They must be those of the manifest.
"""

from dataclasses import dataclass
from typing import Any

from onnxreg.schema.core import canonical
from onnxreg.schema.core.codec import items, mapping, required, text
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import check_name
from onnxreg.schema.core.version import Version

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"
RELEASE = "urn:onnxreg:release:v1"
"""The predicate type: this manifest is this version of this model."""

CERTIFICATE = ("format", "precision", "path", "digest", "certification")
"""The keys of each artifact that the predicate repeats."""


@dataclass(frozen=True, slots=True)
class Release:
    """The statement that a manifest is one version of a model."""

    name: str
    version: Version
    manifest: Digest
    predicate: dict[str, Any]

    @classmethod
    def about(cls, name: str, version: Version, manifest: bytes) -> "Release":
        """The statement about a manifest, given its exact bytes."""
        return cls(name, version, Digest.of(manifest), _predicate(version, manifest))

    def encode(self) -> bytes:
        """The canonical bytes of the statement, the payload to be signed."""
        subject = {"name": self.name, "digest": {"sha256": self.manifest.hex}}
        return canonical.encode(
            {
                "_type": STATEMENT,
                "subject": [subject],
                "predicateType": RELEASE,
                "predicate": self.predicate,
            }
        )

    @classmethod
    def decode(cls, payload: bytes) -> "Release":
        """Read a statement. InputError if it is malformed, or has another predicate or several subjects."""
        value = mapping(canonical.decode(payload, "statement"))
        if value.get("_type") != STATEMENT or value.get("predicateType") != RELEASE:
            raise InputError("not the statement of a release")
        subjects = items(required(value, "subject"), mapping)
        if len(subjects) != 1:
            raise InputError("the statement has not exactly one subject")
        digest = Digest(text(required(mapping(required(subjects[0], "digest")), "sha256")))
        predicate = mapping(required(value, "predicate"))
        version = Version.parse(text(required(predicate, "version")))
        return cls(check_name(text(required(subjects[0], "name"))), version, digest, predicate)

    def contradiction(self, manifest: bytes) -> str | None:
        """The first difference between the statement and the manifest with these bytes; None if they agree."""
        if Digest.of(manifest) != self.manifest:
            return f"it is about manifest {self.manifest.short}..."
        if self.predicate != _predicate(self.version, manifest):
            return "its recipe or certificates are not those of the manifest"
        return None


def is_release(payload_type: str, payload: bytes) -> bool:
    """True if a payload claims to be the statement of a release: others may be attested by the same kind of envelope."""
    if payload_type != PAYLOAD_TYPE:
        return False
    value = canonical.decode(payload, "statement")
    return isinstance(value, dict) and value.get("predicateType") == RELEASE


def _predicate(version: Version, manifest: bytes) -> dict[str, Any]:
    value = mapping(canonical.decode(manifest, "manifest"))
    artifacts = [
        {key: artifact[key] for key in CERTIFICATE if key in artifact}
        for artifact in items(value.get("artifacts", []), mapping)
    ]
    recipe = {"recipe": value["recipe"]} if "recipe" in value else {}
    return {"version": str(version), "artifacts": artifacts, **recipe}
